#include <gtest/gtest.h>

#include <cstdint>

#include "core/base/random.h"
#include "core/plan/search/policies.h"
#include "core/plan/search/walk.h"
#include "tests/core/plan/random_instances.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

// A pipeline of `devices` stages where each has the next number.
std::vector<WalkStage> InOrder(const CostTable& tables, int devices) {
  std::vector<int> order;
  for (int i = 0; i < devices; ++i) order.push_back(i);
  return ProportionalStages(tables, order);
}

int MostStages(const PlanProblem& problem) {
  if (problem.stages > 0) return problem.stages;
  return static_cast<int>(
      std::min(problem.layers.size(), problem.devices.size()));
}

void ExpectSameAsCostOf(const PlanProblem& problem, const WalkState& state,
                        const WalkCost& walked) {
  const Placement placement = state.ToPlacement();
  const auto cost = Value(CostOf(problem, placement));

  EXPECT_NEAR(walked.step_seconds, cost.step_seconds, 1e-9 * cost.step_seconds);
  EXPECT_NEAR(walked.bottleneck_seconds, cost.bottleneck_seconds,
              1e-9 * cost.bottleneck_seconds);
  EXPECT_EQ(walked.excess == 0, CheckMemory(problem, placement, cost).ok());
}

// The cost that is kept up to date by the move is the one that CostOf finds
// from nothing.
TEST(WalkState, CostsAsCostOfAfterEveryMove) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const CostTable tables(problem);
    SplitMix64 random(seed);
    WalkState state(tables);
    state.Reset(InOrder(tables, MostStages(problem)));
    WalkCost now = state.Evaluate();
    state.Keep();

    for (int move = 0; move < 40; ++move) {
      if (!ProposeMove(tables, now, random, state)) {
        state.Undo();
        continue;
      }
      const WalkCost walked = state.Evaluate();
      ExpectSameAsCostOf(problem, state, walked);
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " move " << move;
      if (random.Below(2) == 0) {
        state.Keep();
        now = walked;
      } else {
        state.Undo();
      }
    }
  }
}

}  // namespace
}  // namespace paceline

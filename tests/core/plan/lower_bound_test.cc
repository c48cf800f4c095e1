#include <algorithm>

#include "core/plan/cost_table.h"
#include "core/plan/policies/policies.h"
#include "core/plan/policy.h"
#include "gtest/gtest.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"

namespace paceline {
namespace {

TEST(LowerBound, IsUnderTheOptimumOfEveryProblem) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const auto best = SolvePlan("dp", problem, {});
    if (!best.ok()) continue;
    ASSERT_TRUE(best->exact);

    EXPECT_LE(LowerBoundSeconds(problem), best->cost.step_seconds * (1 + 1e-9))
        << seed;
  }
}

// RandomPlacement asks neither for the number of stages nor about replicas.
bool IsAllowed(const PlanProblem& problem, const Placement& placement) {
  if (problem.stages > 0 &&
      static_cast<int>(placement.size()) != problem.stages) {
    return false;
  }
  return problem.replicas || std::all_of(placement.begin(), placement.end(),
                                         [](const PlacedStage& stage) {
                                           return stage.devices.size() == 1;
                                         });
}

// Whatever its shares are.
TEST(LowerBound, IsUnderEveryPlacementThatIsAllowed) {
  SplitMix64 random(5);
  int judgements = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const Placement placement = RandomPlacement(problem, random);
    if (!IsAllowed(problem, placement)) continue;

    const Judgement judged = Judge(problem, placement);

    if (!judged.fits) continue;
    EXPECT_LE(LowerBoundSeconds(problem), judged.step_seconds * (1 + 1e-9))
        << seed;
    ++judgements;
  }
  EXPECT_GT(judgements, 100);
}

TEST(LowerBound, IsTotalWorkOverTotalSpeed) {
  EXPECT_NEAR(LowerBoundSeconds(TwoSlowTwoFast()), 12 / 2.2, 1e-9);
}

TEST(LowerBound, CountsWholeLayersWithoutReplicas) {
  PlanProblem problem = TwoSlowTwoFast();
  problem.replicas = false;

  EXPECT_NEAR(LowerBoundSeconds(problem), 6, 1e-5);
}

TEST(LowerBound, IsTheLargestLayerOnTheFastestDevice) {
  PlanProblem problem = ProblemOf({1, 8, 1}, {1, 2, 1});
  problem.replicas = false;

  EXPECT_NEAR(LowerBoundSeconds(problem), 4, 1e-5);
}

TEST(LowerBound, CountsTheFillOfAStep) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  problem.replicas = false;
  problem.micro_batches = 9;

  // Two seconds to fill, eight more at a second each.
  EXPECT_NEAR(LowerBoundSeconds(problem), 10, 1e-4);
}

TEST(LowerBound, CountsTransfersThatStagesForce) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  SetLinks(problem, {1, 0.5});
  SetOutputs(problem, {1});
  problem.micro_batches = 1;
  problem.replicas = false;
  problem.stages = 2;

  // Two layers, and a frame there and back: 2 x (1 + 0.5).
  EXPECT_NEAR(LowerBoundSeconds(problem), 5, 1e-4);
}

TEST(LowerBound, CountsTheSynchronisationOfReplicas) {
  PlanProblem problem = ProblemOf({4}, {1, 1});
  problem.layers[0].parameter_bytes = 3;
  SetLinks(problem, {1, 0});

  // Shared: two seconds each, three to synchronise beside them; alone four.
  EXPECT_NEAR(LowerBoundSeconds(problem), 3, 1e-9);
}

TEST(LowerBound, IsZeroForAModelThatTakesNoTime) {
  EXPECT_EQ(LowerBoundSeconds(ProblemOf({0, 0}, {1, 2})), 0);
}

TEST(PackingBound, KnowsWhatMemoryHolds) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, {1, 1});
  for (LayerCost& layer : problem.layers) layer.parameter_bytes = 10;
  problem.devices[0].memory_bytes = 25;
  problem.replicas = false;

  // Two copies of ten bytes a layer: the first holds one layer.
  EXPECT_NEAR(PackingBoundSeconds(CostTable(problem)), 3, 1e-5);
}

}  // namespace
}  // namespace paceline

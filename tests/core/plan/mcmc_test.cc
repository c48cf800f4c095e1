#include "core/plan/mcmc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/base/random.h"
#include "core/plan/mcmc_moves.h"
#include "core/plan/policy.h"
#include "core/plan/walk_state.h"
#include "tests/core/plan/random_instances.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// A pipeline of `devices` stages where each has the next number.
std::vector<WalkStage> InOrder(const PlanTables& tables, int devices) {
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
  const auto cost = CostOf(problem, placement);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_NEAR(walked.step_seconds, cost->step_seconds,
              1e-9 * cost->step_seconds);
  EXPECT_NEAR(walked.bottleneck_seconds, cost->bottleneck_seconds,
              1e-9 * cost->bottleneck_seconds);
  EXPECT_EQ(walked.excess == 0, CheckMemory(problem, placement, *cost).ok());
}

// What is kept up to date by the move is what CostOf finds from nothing.
TEST(WalkState, CostsAsCostOfAfterEveryMove) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const PlanTables tables(problem);
    SplitMix64 random(seed);
    WalkState state(tables);
    state.Reset(InOrder(tables, MostStages(problem)));
    state.Evaluate();
    state.Keep();

    for (int move = 0; move < 40; ++move) {
      if (!ProposeMove(tables, 0, random, state)) {
        state.Undo();
        continue;
      }
      const WalkCost walked = state.Evaluate();
      ExpectSameAsCostOf(problem, state, walked);
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " move " << move;
      if (random.Below(2) == 0) {
        state.Keep();
      } else {
        state.Undo();
      }
    }
  }
}

TEST(WalkState, AnUndoneMoveLeavesNoTrace) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const PlanProblem problem = RandomProblem(seed);
    const PlanTables tables(problem);
    SplitMix64 random(seed);
    WalkState state(tables);
    state.Reset(InOrder(tables, MostStages(problem)));
    const WalkCost before = state.Evaluate();
    state.Keep();
    const Placement placement = state.ToPlacement();

    for (int move = 0; move < 20; ++move) {
      if (ProposeMove(tables, 0, random, state)) state.Evaluate();
      state.Undo();
    }

    EXPECT_EQ(state.ToPlacement(), placement) << "seed " << seed;
    EXPECT_EQ(state.Evaluate().step_seconds, before.step_seconds);
  }
}

TEST(ProposeMove, KeepsTheNumberOfStagesAndTheBanOnReplicas) {
  PlanProblem problem = LargeProblem(12, 6, 1);
  problem.stages = 4;
  problem.replicas = false;
  const PlanTables tables(problem);
  SplitMix64 random(1);
  WalkState state(tables);
  state.Reset(InOrder(tables, 4));
  state.Evaluate();
  state.Keep();

  for (int move = 0; move < 1000; ++move) {
    if (!ProposeMove(tables, move % 4, random, state)) {
      state.Undo();
      continue;
    }
    state.Evaluate();
    state.Keep();
    ASSERT_EQ(state.size(), 4);
    for (int s = 0; s < 4; ++s) ASSERT_EQ(state.stage(s).devices.size(), 1u);
  }
}

TEST(BalancedCut, GivesTheQuickerDeviceMore) {
  PlanProblem problem;
  problem.layers.assign(12, {"layer", 1, 0, 0, 0, 0});
  problem.devices.resize(2);
  problem.devices[1].speed = 3;
  problem.links.assign(2, std::vector<LinkCost>(2, {1e9, 0}));
  const PlanTables tables(problem);

  EXPECT_EQ(BalancedCut(tables, {0, 12}, {0}, {1}), 3);
  EXPECT_EQ(BalancedCut(tables, {0, 12}, {1}, {0}), 9);
  EXPECT_EQ(BalancedCut(tables, {4, 6}, {0}, {1}), 5);
}

TEST(McmcPlacement, SameSeedSamePlacement) {
  const PlanProblem problem = LargeProblem(40, 8, 3);

  const auto first = McmcPlacement(problem, 5);
  const auto second = McmcPlacement(problem, 5);

  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, *second);
}

TEST(McmcPlacement, FindsTheCutThatSparesTheSlowMachines) {
  // Two machines of 10 s a layer, two of 1 s; 12 layers.
  PlanProblem problem;
  problem.layers.assign(12, {"layer", 1, 0, 0, 0, 0});
  problem.devices.resize(4);
  problem.devices[0].speed = problem.devices[1].speed = 0.1;
  problem.links.assign(4, std::vector<LinkCost>(4, {1e9, 0}));
  problem.training = false;
  problem.replicas = false;

  const auto placement = McmcPlacement(problem, 1);

  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_DOUBLE_EQ(CostOf(problem, *placement)->bottleneck_seconds, 6);
}

TEST(McmcPlacement, MakesAsManyStagesAsAsked) {
  PlanProblem problem = LargeProblem(20, 6, 2);
  problem.stages = 5;

  const auto placement = McmcPlacement(problem, 1);

  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(placement->size(), 5u);
}

TEST(McmcPlacement, PlansOneLayerOnOneDevice) {
  const auto placement = McmcPlacement(LargeProblem(1, 1, 1), 1);

  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(*placement, (Placement{{{0, 1}, {0}, {1}}}));
}

TEST(McmcPlacement, PlansAModelThatTakesNoTime) {
  PlanProblem problem = LargeProblem(5, 3, 1);
  for (LayerCost& layer : problem.layers) layer = {"layer", 0, 0, 0, 0, 0};

  const auto placement = McmcPlacement(problem, 1);

  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_TRUE(CostOf(problem, *placement).ok());
}

TEST(McmcPlacement, SaysWhichLayerFitsNowhere) {
  PlanProblem problem = LargeProblem(5, 3, 1);
  problem.layers[3].parameter_bytes = 1e9;
  for (Device& device : problem.devices) device.memory_bytes = 1e9;

  const auto placement = McmcPlacement(problem, 1);

  EXPECT_EQ(placement.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(placement.status().message()), HasSubstr("layer3"));
}

TEST(SolvePlan, ReachesMcmcByItsName) {
  const auto answer =
      SolvePlan("mcmc", LargeProblem(20, 4, 1), PolicyOptions());

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->why.empty());
}

}  // namespace
}  // namespace paceline

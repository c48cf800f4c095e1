#include "core/plan/policies/dp.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/plan/policies/dp_exact.h"
#include "core/plan/policies/dp_search.h"
#include "core/plan/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kProblems = 150;

double StepSeconds(const PlanProblem& problem) {
  const auto answer = SolvePlan("dp", problem, {});
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->cost.step_seconds : HUGE_VAL;
}

// Random problems for which some placement fits.
std::vector<PlanProblem> SolvableProblems() {
  std::vector<PlanProblem> problems;
  for (uint64_t seed = 1; problems.size() < kProblems; ++seed) {
    PlanProblem problem = RandomProblem(seed);
    if (SolvePlan("dp", problem, {}).ok()) {
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

// Whether a search alone counts all memory: what stages before a stage make it
// keep is SolveHalves' to see to.
bool CountsAllMemory(const PlanProblem& problem) { return !problem.splits; }

// Device i of the result is device order[i] of `problem`.
PlanProblem Reordered(const PlanProblem& problem,
                      const std::vector<int>& order) {
  PlanProblem reordered = problem;
  for (size_t i = 0; i < order.size(); ++i) {
    reordered.devices[i] = problem.devices[order[i]];
    for (size_t j = 0; j < order.size(); ++j) {
      reordered.links[i][j] = problem.links[order[i]][order[j]];
    }
  }
  return reordered;
}

PlanProblem WithOneMoreDevice(const PlanProblem& problem) {
  PlanProblem more = problem;
  Device device = problem.devices[0];
  device.name = "one more";
  more.devices.push_back(device);
  for (std::vector<LinkCost>& row : more.links) row.push_back({1e6, 0.01});
  more.links.emplace_back(more.devices.size(), LinkCost{2e6, 0.02});
  return more;
}

TEST(Dp, KeepsTheSlowDevicesShortWithoutReplicas) {
  PlanProblem problem = TwoSlowTwoFast();
  problem.replicas = false;

  const auto answer = SolvePlan("dp", problem, {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_DOUBLE_EQ(answer->cost.bottleneck_seconds, 6);
  EXPECT_TRUE(answer->exact);
}

TEST(Dp, SharesUnevenlySoThatAllEndTogether) {
  const auto answer = SolvePlan("dp", TwoSlowTwoFast(), {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_NEAR(answer->cost.bottleneck_seconds, 12 / 2.2, 1e-9);
  EXPECT_NEAR(answer->gap, 0, 1e-9);
}

TEST(Dp, LeavesASlowDeviceOutWhenTheStepIsShort) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 0.01});
  problem.micro_batches = 4;
  problem.replicas = false;

  const auto answer = SolveDp(problem);

  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->placement.size(), 1u);
  EXPECT_THAT(answer->placement[0].devices, ElementsAre(0));
}

TEST(Dp, CutsAtTheCheapOutputWhenTransfersBound) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, {1, 1});
  SetLinks(problem, {1, 0});
  SetOutputs(problem, {0.5, 100, 100, 100});
  problem.replicas = false;

  const auto answer = SolvePlan("dp", problem, {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->placement[0].layers, (LayerRange{0, 1}));
  EXPECT_DOUBLE_EQ(answer->cost.bottleneck_seconds, 3);
}

TEST(Dp, SendsOverTheFasterDirection) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  problem.training = false;
  problem.replicas = false;
  problem.stages = 2;
  SetOutputs(problem, {4});
  problem.links[0][1] = {1, 0};
  problem.links[1][0] = {4, 0};

  const auto answer = SolvePlan("dp", problem, {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->placement[0].devices, ElementsAre(1));
  EXPECT_DOUBLE_EQ(answer->cost.bottleneck_seconds, 1);
}

TEST(Dp, MakesExactlyAsManyStagesAsAsked) {
  for (int stages = 1; stages <= 4; ++stages) {
    PlanProblem problem = TwoSlowTwoFast();
    problem.stages = stages;

    const auto answer = SolveDp(problem);

    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(static_cast<int>(answer->placement.size()), stages);
    EXPECT_TRUE(answer->exact);
  }
}

// The first stage keeps a micro-batch for each device behind it.
TEST(Dp, GivesTheStageThatKeepsMoreLessWhenMemoryIsTight) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, {1, 1});
  for (LayerCost& layer : problem.layers) layer.kept_bytes = 100;
  for (Device& device : problem.devices) device.memory_bytes = 300;
  problem.replicas = false;

  const auto answer = SolvePlan("dp", problem, {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->placement[0].layers, (LayerRange{0, 1}));
  EXPECT_DOUBLE_EQ(answer->cost.bottleneck_seconds, 3);
}

TEST(Dp, NamesTheLayerThatFitsNowhereAndByHowMuch) {
  PlanProblem problem = TwoSlowTwoFast();
  problem.parameter_copies = 2;
  problem.layers[7].parameter_bytes = 3 * 1024;
  for (Device& device : problem.devices) device.memory_bytes = 4 * 1024;

  for (const char* policy : {"dp", "brute"}) {
    problem.layers.resize(policy == std::string("brute") ? 8 : 12);
    const auto answer = SolvePlan(policy, problem, {});

    EXPECT_EQ(answer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(answer.status().message()),
                AllOf(HasSubstr("layer 7 (layer7)"), HasSubstr("6.0 KiB"),
                      HasSubstr("4.0 KiB"), HasSubstr("2.0 KiB too much")));
  }
}

TEST(Dp, SaysWhatTheWholeNeedsWhenEachLayerWouldFit) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, {1, 1});
  for (LayerCost& layer : problem.layers) layer.parameter_bytes = 1024;
  for (Device& device : problem.devices) device.memory_bytes = 3 * 1024;

  const auto answer = SolvePlan("dp", problem, {});

  EXPECT_EQ(answer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr("8.0 KiB together"), HasSubstr("have 6.0 KiB")));
}

TEST(Dp, MoreDevicesAreNeverWorse) {
  for (PlanProblem problem : SolvableProblems()) {
    problem.stages = 0;
    const double before = StepSeconds(problem);

    EXPECT_LE(StepSeconds(WithOneMoreDevice(problem)), before * (1 + 1e-9));
  }
}

TEST(Dp, ScalesWithAllSeconds) {
  for (const PlanProblem& problem : SolvableProblems()) {
    PlanProblem slower = problem;
    for (LayerCost& layer : slower.layers) {
      layer.forward_seconds *= 8;
      layer.backward_seconds *= 8;
    }
    for (Device& device : slower.devices) {
      for (double& seconds : device.layer_seconds) seconds *= 8;
      device.frame_seconds *= 8;
      device.frame_seconds_per_byte *= 8;
    }
    for (std::vector<LinkCost>& row : slower.links) {
      for (LinkCost& link : row) {
        link.bytes_per_second /= 8;
        link.latency_seconds *= 8;
      }
    }

    const double seconds = StepSeconds(problem);
    EXPECT_NEAR(StepSeconds(slower), 8 * seconds, 1e-9 * 8 * seconds);
  }
}

TEST(Dp, CostsTheSameInWhateverOrderDevicesAreGiven) {
  for (const PlanProblem& problem : SolvableProblems()) {
    std::vector<int> order(problem.devices.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + order.size() / 2, order.end());
    std::swap(order.front(), order.back());

    const double seconds = StepSeconds(problem);
    EXPECT_NEAR(StepSeconds(Reordered(problem, order)), seconds,
                1e-9 * seconds);
  }
}

TEST(Dp, GivesTheSameAnswerEveryTime) {
  for (const PlanProblem& problem : SolvableProblems()) {
    EXPECT_EQ(SolveDp(problem)->placement, SolveDp(problem)->placement);
  }
  const PlanProblem large = LargeProblem(120, 20, 1);
  EXPECT_EQ(SolveDp(large)->placement, SolveDp(large)->placement);
}

TEST(Dp, IsExactOnSixteenEqualMachines) {
  PlanProblem problem =
      ProblemOf(std::vector<double>(20, 1.0), std::vector<double>(16, 1.0));
  SetLinks(problem, {1e3, 0});
  SetOutputs(problem, std::vector<double>(19, 1.0));
  problem.micro_batches = 32;

  const auto answer = SolveDp(problem);

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->exact);
}

TEST(Dp, SaysThatALargePlanIsNotProved) {
  const auto answer = SolvePlan("dp", LargeProblem(100, 24, 3), {});

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->exact);
  EXPECT_GT(answer->lower_bound_seconds, 0);
  EXPECT_THAT(answer->why, HasSubstr("not proved"));
}

// The heuristic side alone, against what is optimal.
TEST(SearchPlacement, IsNearTheOptimumOfSmallProblems) {
  std::vector<double> gaps;
  size_t problems = 0;
  for (const PlanProblem& problem : SolvableProblems()) {
    if (!CountsAllMemory(problem)) continue;
    ++problems;
    const CostTable table(problem);
    const Placement found = SearchPlacement(table, {20000});
    if (found.empty()) continue;
    const auto cost = CostOf(problem, found);
    ASSERT_TRUE(cost.ok()) << cost.status();
    EXPECT_TRUE(CheckMemory(problem, found, *cost).ok());
    gaps.push_back(cost->step_seconds / StepSeconds(problem) - 1);
  }

  EXPECT_GE(problems, kProblems / 2);
  EXPECT_GE(gaps.size(), problems * 95 / 100);
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[gaps.size() / 2], 1e-9);
  EXPECT_LE(gaps[gaps.size() * 9 / 10], 0.05);
}

TEST(SearchPlacement, MakesAsManyStagesAsAskedWithEachDeviceOnce) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PlanProblem problem = LargeProblem(40, 12, seed);
    problem.stages = 5;
    const CostTable table(problem);

    const Placement found = SearchPlacement(table, {30000});

    EXPECT_EQ(found.size(), 5u);
    EXPECT_TRUE(CostOf(problem, found).ok()) << CostOf(problem, found).status();
  }
}

TEST(SolveExactly, FindsNothingBelowTheOptimum) {
  for (const PlanProblem& problem : SolvableProblems()) {
    if (!CountsAllMemory(problem)) continue;
    const double best = StepSeconds(problem);
    const CostTable table(problem);

    const DpExactAnswer answer = SolveExactly(table, {best, 1e9});

    EXPECT_TRUE(answer.finished);
    EXPECT_TRUE(answer.placement.empty());
  }
}

TEST(SolveExactly, GivesUpAfterTheStepsItIsAllowed) {
  const PlanProblem problem = LargeProblem(30, 8, 1);
  const CostTable table(problem);

  EXPECT_FALSE(SolveExactly(table, {HUGE_VAL, 1000}).finished);
}

TEST(InterchangeableDevices, JoinsThoseThatOnlyDifferByName) {
  PlanProblem problem = ProblemOf({1}, {1, 2, 1, 1});
  problem.links[0][2] = {5, 0};

  const auto classes = InterchangeableDevices(problem);

  // 0 and 2 are told apart by their link's direction, and from 3 by having it.
  EXPECT_THAT(classes, ElementsAre(ElementsAre(0), ElementsAre(1),
                                   ElementsAre(2), ElementsAre(3)));
  problem.links[2][0] = {5, 0};
  EXPECT_THAT(InterchangeableDevices(problem),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3)));
}

}  // namespace
}  // namespace paceline

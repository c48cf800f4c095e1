#include <vector>

#include "core/plan/policies/policies.h"
#include "core/plan/policy.h"
#include "gtest/gtest.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

constexpr PolicyOptions kTwoLevels = {.levels = 2};

// Random small problems, devices dealt to two machines.
PlanProblem OnTwoMachines(uint64_t seed) {
  PlanProblem problem = RandomProblem(seed);
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    problem.devices[i].machine = static_cast<int>(i % 2);
  }
  return problem;
}

TEST(TwoLevels, IsNeverBetterThanTheExactSingleLevel) {
  int planned = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const PlanProblem problem = OnTwoMachines(seed);
    const auto single = SolvePlan("dp", problem, {});
    const auto two = SolvePlan("dp", problem, kTwoLevels);

    ASSERT_EQ(single.ok(), two.ok()) << seed << single.status() << two.status();
    if (!single.ok()) continue;
    ASSERT_TRUE(single->exact);
    EXPECT_GE(two->cost.step_seconds, single->cost.step_seconds * (1 - 1e-9));
    ++planned;
  }
  EXPECT_GT(planned, 15);
}

TEST(TwoLevels, OfOneMachineIsTheSingleLevel) {
  const PlanProblem problem = TwoSlowTwoFast();

  const auto two = Value(SolveTwoLevels(problem));

  EXPECT_EQ(two.placement, SolveDp(problem)->placement);
  EXPECT_TRUE(two.exact);
}

TEST(TwoLevels, CutsBetweenMachinesOnce) {
  // Machines of two devices each, near inside, far between.
  PlanProblem problem = ProblemOf(std::vector<double>(8, 1.0), {1, 1, 1, 1});
  SetLinks(problem, {1, 0});
  SetOutputs(problem, std::vector<double>(7, 1.0));
  const std::vector<int> machine = {0, 1, 0, 1};
  for (int a = 0; a < 4; ++a) {
    problem.devices[a].machine = machine[a];
    for (int b = 0; b < 4; ++b) {
      if (machine[a] == machine[b]) problem.links[a][b] = {1000, 0};
    }
  }
  problem.replicas = false;

  const auto two = Value(SolvePlan("dp", problem, kTwoLevels));

  ASSERT_EQ(two.placement.size(), 4u);
  int changes = 0;
  for (int s = 1; s < 4; ++s) {
    changes += machine[two.placement[s].devices[0]] !=
               machine[two.placement[s - 1].devices[0]];
  }
  EXPECT_EQ(changes, 1);
  EXPECT_DOUBLE_EQ(two.cost.bottleneck_seconds, 2);
}

TEST(TwoLevels, ReplicatesOverMachinesWhereThatIsBest) {
  PlanProblem problem = ProblemOf({4}, {1, 1, 1, 1});
  for (int i = 0; i < 4; ++i) problem.devices[i].machine = i / 2;

  const auto two = Value(SolvePlan("dp", problem, kTwoLevels));

  EXPECT_DOUBLE_EQ(two.cost.bottleneck_seconds, 1);
}

TEST(TwoLevels, KeepsTheNumberOfStages) {
  for (int stages = 1; stages <= 4; ++stages) {
    PlanProblem problem = ProblemOf({1, 1, 1, 1, 1}, {0.1, 0.1, 1, 1});
    for (int i = 0; i < 4; ++i) problem.devices[i].machine = i / 2;
    problem.stages = stages;

    const auto two = Value(SolveTwoLevels(problem));

    EXPECT_EQ(static_cast<int>(two.placement.size()), stages);
  }
}

TEST(TwoLevels, IsNearTheSingleLevelWhereMachinesAreFarApart) {
  PlanProblem problem = LargeProblem(24, 6, 2);
  for (int a = 0; a < 6; ++a) {
    problem.devices[a].machine = a / 3;
    for (int b = 0; b < 6; ++b) {
      problem.links[a][b] =
          a / 3 == b / 3 ? LinkCost{1e10, 1e-6} : LinkCost{1e8, 1e-4};
    }
  }

  const auto single = SolvePlan("dp", problem, {});
  const auto two = SolvePlan("dp", problem, kTwoLevels);

  ASSERT_TRUE(single.ok() && two.ok());
  EXPECT_LE(two->cost.step_seconds, 1.25 * single->cost.step_seconds);
}

}  // namespace
}  // namespace paceline

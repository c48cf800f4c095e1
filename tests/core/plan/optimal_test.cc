#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/search/policies.h"
#include "core/plan/search/policy.h"
#include "core/plan/search/walk.h"
#include "core/plan/stage_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/plan/random_instances.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kProblems = 150;

double StepSeconds(const PlanProblem& problem) {
  return Value(SolvePlan("optimal", problem, {})).cost.step_seconds;
}

// Random problems for which some placement fits.
std::vector<PlanProblem> SolvableProblems() {
  std::vector<PlanProblem> problems;
  for (uint64_t seed = 1; problems.size() < kProblems; ++seed) {
    PlanProblem problem = RandomProblem(seed);
    if (SolvePlan("optimal", problem, {}).ok()) {
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

// Whether a search alone counts all memory: what stages before a stage make it
// keep is SolveOptimal's to see to.
bool CountsAllMemory(const PlanProblem& problem) {
  return !CountsEarlier(problem);
}

TEST(Optimal, GivesTheSameAnswerEveryTime) {
  for (const PlanProblem& problem : SolvableProblems()) {
    EXPECT_EQ(SolveOptimal(problem)->placement,
              SolveOptimal(problem)->placement);
  }
  const PlanProblem large = LargeProblem(120, 20, 1);
  EXPECT_EQ(SolveOptimal(large)->placement, SolveOptimal(large)->placement);
}

TEST(Optimal, IsExactOnSixteenEqualMachines) {
  PlanProblem problem =
      ProblemOf(std::vector<double>(20, 1.0), std::vector<double>(16, 1.0));
  SetLinks(problem, {1e3, 0});
  SetOutputs(problem, std::vector<double>(19, 1.0));
  problem.micro_batches = 32;

  const auto answer = Value(SolveOptimal(problem));

  EXPECT_TRUE(answer.exact);
}

TEST(Optimal, SaysThatALargePlanIsNotProved) {
  const auto answer = Value(SolvePlan("optimal", LargeProblem(100, 24, 3), {}));

  EXPECT_FALSE(answer.exact);
  EXPECT_GT(answer.lower_bound_seconds, 0);
  EXPECT_THAT(answer.why, HasSubstr("not proved"));
}

// The walks alone, against what is optimal.
TEST(BestOfWalks, IsNearTheOptimumOfSmallProblems) {
  std::vector<double> gaps;
  size_t problems = 0;
  for (const PlanProblem& problem : SolvableProblems()) {
    if (!CountsAllMemory(problem)) continue;
    ++problems;
    const CostTable table(problem);
    const auto found = BestOfWalks(table, 1, 4000);
    if (!found.ok()) continue;
    const auto cost = Value(CostOf(problem, *found));
    EXPECT_TRUE(CheckMemory(problem, *found, cost).ok());
    gaps.push_back(cost.step_seconds / StepSeconds(problem) - 1);
  }

  EXPECT_GE(problems, kProblems / 2);
  EXPECT_GE(gaps.size(), problems * 95 / 100);
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[gaps.size() / 2], 1e-9);
  EXPECT_LE(gaps[gaps.size() * 9 / 10], 0.05);
}

TEST(BestOfWalks, MakesAsManyStagesAsAskedWithEachDeviceOnce) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PlanProblem problem = LargeProblem(40, 12, seed);
    problem.stages = 5;
    const CostTable table(problem);

    const Placement found = Value(BestOfWalks(table, 1, 6000));

    EXPECT_EQ(found.size(), 5u);
    EXPECT_TRUE(CostOf(problem, found).ok()) << CostOf(problem, found).status();
  }
}

TEST(SolveExactly, GivesUpAfterTheStepsItIsAllowed) {
  const PlanProblem problem = LargeProblem(30, 8, 1);
  const CostTable table(problem);

  EXPECT_FALSE(SolveExactly(table, HUGE_VAL, 1000).exact);
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

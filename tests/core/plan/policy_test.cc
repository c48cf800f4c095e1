#include "core/plan/search/policy.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/job/job_check.h"
#include "core/job/spec/job_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<LayerRange> RangesOf(const PlanAnswer& answer) {
  std::vector<LayerRange> ranges;
  for (const PlacedStage& stage : answer.placement) {
    ranges.push_back(stage.layers);
  }
  return ranges;
}

TEST(PolicyNames, AreSortedAndKnown) {
  const std::vector<std::string> names = PolicyNames();

  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"brute", "equal", "min-cut", "optimal"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

TEST(SolvePlan, AsksWhetherANearPolicyWasMeant) {
  const auto answer = SolvePlan("mincut", TwoSlowTwoFast(), {});

  ExpectError(answer.status(), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("'mincut'"), HasSubstr("did you mean 'min-cut'"),
                    HasSubstr("brute, equal, mcmc, min-cut, optimal")));
}

TEST(SolvePlan, KnowsOptimalByItsOldName) {
  JobSpec old;
  old.pipeline.policy = "dp";
  const size_t problems = CheckJobSpec({}).size();

  EXPECT_EQ(CheckJobSpec(old).size(), problems);
  EXPECT_EQ(Value(SolvePlan("dp", TwoSlowTwoFast(), {})).placement,
            Value(SolvePlan("optimal", TwoSlowTwoFast(), {})).placement);
}

TEST(SolvePlan, ShowsOnlyTheStartOfALongPolicyName) {
  const auto answer = SolvePlan(std::string(100000, 'x'), TwoSlowTwoFast(), {});

  EXPECT_TRUE(absl::IsInvalidArgument(answer.status()));
  EXPECT_LT(answer.status().message().size(), 300u);
}

TEST(SolvePlan, RefusesWhatCheckProblemRefusesAndThatThereAreNoDevices) {
  PlanProblem problem = TwoSlowTwoFast();
  problem.layers[3].forward_seconds = -1;
  for (const std::string& policy : PolicyNames()) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(SolvePlan(policy, problem, {}).status()))
        << policy;
    EXPECT_EQ(SolvePlan(policy, ProblemOf({1}, {}), {}).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << policy;
  }
}

TEST(SolvePlan, RefusesAStepLongerThanANumberHolds) {
  PlanProblem problem = ProblemOf({1e308, 1e308}, {1});
  problem.micro_batches = 1 << 20;

  EXPECT_EQ(SolvePlan("equal", problem, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SolvePlan, ReportsTheGapToTheLowerBound) {
  const auto answer = Value(SolvePlan("equal", TwoSlowTwoFast(), {}));

  EXPECT_DOUBLE_EQ(answer.cost.step_seconds, 30);
  EXPECT_NEAR(answer.lower_bound_seconds, 12 / 2.2, 1e-6);
  EXPECT_NEAR(answer.gap, 30 / (12 / 2.2) - 1, 1e-6);
  EXPECT_FALSE(answer.exact);
  EXPECT_THAT(answer.why, HasSubstr("at most 450 % above"));
  EXPECT_EQ(SolvePlan("optimal", ProblemOf({0, 0}, {1, 1}), {})->gap, 0)
      << "a model that takes no time";
}

TEST(Why, NamesWhatSetsThePaceAndThatItIsProved) {
  PlanProblem problem = TwoSlowTwoFast();
  problem.replicas = false;

  const auto answer = Value(SolvePlan("optimal", problem, {}));

  EXPECT_THAT(answer.why, AllOf(HasSubstr("set the pace: 6 s"),
                                HasSubstr("proved to be the best")));
}

TEST(Why, SaysWhoIsLeftOutAndWhatTakingItWouldCost) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 0.01});
  problem.micro_batches = 2;
  problem.replicas = false;

  const auto answer = Value(SolvePlan("optimal", problem, {}));

  EXPECT_THAT(answer.why, AllOf(HasSubstr("device1 is left out"),
                                HasSubstr("at least 396 s more")));
}

TEST(Why, NamesTheTransferThatSetsThePace) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  SetLinks(problem, {1, 0});
  SetOutputs(problem, {5});
  problem.stages = 2;

  const auto answer = Value(SolvePlan("equal", problem, {}));

  EXPECT_THAT(answer.why, AllOf(HasSubstr("a transfer sets the pace: 10 s"),
                                HasSubstr("device0 to device1 after layer 0")));
}

TEST(Equal, GivesTheFirstDevicesAsManyLayersEach) {
  PlanProblem problem =
      ProblemOf(std::vector<double>(10, 1.0), {1, 1, 1, 1, 1});
  problem.stages = 4;

  const auto answer = Value(SolvePlan("equal", problem, {}));

  EXPECT_THAT(RangesOf(answer),
              ElementsAre(LayerRange{0, 3}, LayerRange{3, 6}, LayerRange{6, 8},
                          LayerRange{8, 10}));
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_THAT(answer.placement[stage].devices, ElementsAre(stage));
  }
}

TEST(Equal, MakesAsManyStagesAsLayersAndDevicesAllow) {
  for (const char* policy : {"equal", "min-cut"}) {
    const auto few_layers =
        Value(SolvePlan(policy, ProblemOf({1, 1}, {1, 1, 1}), {}));
    const auto few_devices =
        Value(SolvePlan(policy, ProblemOf({1, 1, 1}, {1, 1}), {}));

    EXPECT_EQ(few_layers.placement.size(), 2u);
    EXPECT_EQ(few_devices.placement.size(), 2u);
  }
}

TEST(Equal, RefusesADeviceThatIsTooSmallAndSaysByHowMuch) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  problem.layers[1].parameter_bytes = 1024;
  for (Device& device : problem.devices) device.memory_bytes = 1024;
  problem.stages = 2;

  for (const char* policy : {"equal", "min-cut"}) {
    const auto answer = SolvePlan(policy, problem, {});

    ExpectError(answer.status(), absl::StatusCode::kResourceExhausted,
                AllOf(HasSubstr("device1"), HasSubstr("1.0 KiB"),
                      HasSubstr("2.0 KiB"), HasSubstr("layer1")));
  }
}

TEST(Equal, PassesOverADeviceThatIsTooSmall) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1, 1});
  for (LayerCost& layer : problem.layers) layer.parameter_bytes = 1024;
  problem.devices[1].memory_bytes = 1024;

  for (const char* policy : {"equal", "min-cut"}) {
    const auto answer = Value(SolvePlan(policy, problem, {}));

    ASSERT_EQ(answer.placement.size(), 2u) << policy;
    EXPECT_THAT(answer.placement[0].devices, ElementsAre(0));
    EXPECT_THAT(answer.placement[1].devices, ElementsAre(2));
    EXPECT_THAT(answer.why, HasSubstr("device1 is left out"));
  }
}

TEST(Equal, TurnsDevicesAroundWhereOnlyThatFits) {
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  problem.layers[0].parameter_bytes = 1024;
  problem.layers[1].parameter_bytes = 4096;
  problem.devices[0].memory_bytes = 10000;
  problem.devices[1].memory_bytes = 3000;
  problem.stages = 2;

  for (const char* policy : {"equal", "min-cut"}) {
    const auto answer = Value(SolvePlan(policy, problem, {}));

    EXPECT_THAT(answer.placement[0].devices, ElementsAre(1)) << policy;
    EXPECT_THAT(answer.placement[1].devices, ElementsAre(0)) << policy;
  }
}

TEST(MinCut, CutsWhereTheFewestBytesCross) {
  PlanProblem problem = ProblemOf(std::vector<double>(6, 1.0), {1, 1, 1});
  SetOutputs(problem, {9, 2, 9, 9, 1});

  const auto answer = Value(SolvePlan("min-cut", problem, {}));

  EXPECT_THAT(RangesOf(answer), ElementsAre(LayerRange{0, 2}, LayerRange{2, 5},
                                            LayerRange{5, 6}));
}

TEST(MinCut, OfEqualCutsTakesTheMostEvenLayerCounts) {
  PlanProblem problem = ProblemOf(std::vector<double>(7, 1.0), {1, 1, 1});
  SetOutputs(problem, std::vector<double>(6, 1.0));

  const auto answer = Value(SolvePlan("min-cut", problem, {}));

  std::vector<int> counts;
  for (const LayerRange& range : RangesOf(answer)) {
    counts.push_back(range.last - range.first);
  }
  EXPECT_THAT(counts, ::testing::UnorderedElementsAre(2, 2, 3));
}

// Two stages take half as long, until their tie costs more than they save.
TEST(Policy, OptimalPutsWhatIsTiedOnOneStageWhereTrafficCostsMore) {
  PlanProblem problem = ProblemOf({1, 1, 1, 1}, {1, 1});
  SetLinks(problem, {100, 0});
  problem.micro_batches = 4;
  problem.replicas = false;
  problem.ties = {{0, 3, 1}};
  const auto cheap = SolvePlan("optimal", problem, {});
  problem.ties = {{0, 3, 1000}};
  const auto dear = SolvePlan("optimal", problem, {});
  problem.stages = 2;
  const auto asked = SolvePlan("optimal", problem, {});

  ASSERT_TRUE(cheap.ok() && dear.ok() && asked.ok()) << cheap.status();
  EXPECT_EQ(cheap->placement.size(), 2u);
  EXPECT_EQ(dear->placement.size(), 1u);
  EXPECT_EQ(asked->placement.size(), 2u);
}

}  // namespace
}  // namespace paceline

#include <cmath>
#include <vector>

#include "core/plan/search/policies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CountPlacements, CountsCutsTimesDevices) {
  // One stage: {0}, {1}, {0,1}; two: 0 then 1, 1 then 0, at one cut.
  PlanProblem problem = ProblemOf({1, 1}, {1, 1});
  EXPECT_EQ(CountPlacements(problem), 5);
  problem.replicas = false;
  EXPECT_EQ(CountPlacements(problem), 4);
  problem.stages = 2;
  EXPECT_EQ(CountPlacements(problem), 2);
}

TEST(CountPlacements, IsLargeForManyDevicesInsteadOfWrong) {
  const PlanProblem problem =
      ProblemOf(std::vector<double>(1000, 1.0), std::vector<double>(64, 1.0));

  EXPECT_GT(std::abs(CountPlacements(problem)), kMostBrutePlacements);
}

TEST(Brute, RefusesWhatWouldTakeTooLongWithBothNumbers) {
  const PlanProblem problem =
      ProblemOf(std::vector<double>(30, 1.0), std::vector<double>(8, 1.0));

  const auto placement = BrutePlacement(problem);

  ExpectError(placement.status(), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("30 layers on 8 devices"),
                    HasSubstr("limit is 2e+06"), HasSubstr("use optimal")));
}

TEST(Brute, PrefersFewerStagesAmongEquals) {
  const auto placement = Value(BrutePlacement(ProblemOf({1, 1}, {1, 1})));

  EXPECT_EQ(placement.size(), 1u);
}

}  // namespace
}  // namespace paceline

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

TEST(PolicyNames, AreSortedAndKnown) {
  const std::vector<std::string> names = PolicyNames();

  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"brute", "equal", "min-cut", "optimal"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
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

}  // namespace
}  // namespace paceline

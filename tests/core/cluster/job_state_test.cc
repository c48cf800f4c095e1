#include "core/cluster/job_state.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(JobState, EveryStateHasANameOfItsOwn) {
  std::set<std::string> names;

  for (int i = 0; i < kJobStates; ++i) {
    names.insert(std::string(JobStateName(static_cast<JobState>(i))));
  }

  EXPECT_EQ(names.size(), static_cast<size_t>(kJobStates));
}

TEST(JobState, AnUnheardOfOneIsUnknownAndMayStillMove) {
  const auto state = static_cast<JobState>(kJobStates);

  EXPECT_EQ(JobStateName(state), "unknown");
  EXPECT_FALSE(HasEnded(state));
}

TEST(JobState, EndsAsSucceededFailedOrStopped) {
  EXPECT_FALSE(HasEnded(JobState::kQueued));
  EXPECT_FALSE(HasEnded(JobState::kRunning));
  EXPECT_TRUE(HasEnded(JobState::kSucceeded));
  EXPECT_TRUE(HasEnded(JobState::kFailed));
  EXPECT_TRUE(HasEnded(JobState::kStopped));
}

}  // namespace
}  // namespace paceline

#include "core/cluster/job_state.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(JobState, AnUnheardOfOneIsUnknownAndMayStillMove) {
  const auto state = static_cast<v1::JobState>(v1::JobState_ARRAYSIZE);

  EXPECT_EQ(JobStateName(state), "unknown");
  EXPECT_FALSE(HasEnded(state));
}

}  // namespace
}  // namespace paceline

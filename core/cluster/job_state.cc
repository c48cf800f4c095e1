#include "core/cluster/job_state.h"

namespace paceline {

absl::string_view JobStateName(JobState state) {
  constexpr absl::string_view kNames[kJobStates] = {
      "unknown", "queued", "running", "succeeded", "failed", "stopped"};
  const auto number = static_cast<int>(state);
  return kNames[number < kJobStates ? number : 0];
}

bool HasEnded(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kStopped;
}

}  // namespace paceline

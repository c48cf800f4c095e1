#include "coordinator/records.h"

namespace paceline {

absl::string_view JobStateName(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kRunning:
      return "running";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kStopped:
      return "stopped";
  }
  return "";
}

bool HasEnded(JobState state) {
  return state != JobState::kQueued && state != JobState::kRunning;
}

}  // namespace paceline

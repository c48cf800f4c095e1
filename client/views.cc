#include "client/views.h"

namespace paceline {

std::string JobStateName(JobState state) {
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
    case JobState::kUnknown:
      break;
  }
  return "unknown";
}

bool HasEnded(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kStopped;
}

std::optional<double> TestAccuracy(const JobView& job) {
  if (job.evaluations.empty()) return std::nullopt;
  return job.evaluations.back().accuracy;
}

}  // namespace paceline

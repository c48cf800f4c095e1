// A job state says in one word how far a job has come.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace paceline {

// Values are those of paceline.v1.JobState.
enum class JobState : uint8_t {
  kUnknown = 0,  // of a coordinator that is newer than the reader
  kQueued = 1,
  kRunning = 2,
  kSucceeded = 3,
  kFailed = 4,
  kStopped = 5,
};
constexpr int kJobStates = 6;  // a state that is known is in [1, kJobStates)

// "queued", "running", "succeeded", "failed", "stopped", "unknown".
absl::string_view JobStateName(JobState state);

// The job takes no further step.
bool HasEnded(JobState state);

}  // namespace paceline

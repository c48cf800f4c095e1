// A job state says in one word how far a job has come.
#pragma once

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// "queued", "running", "succeeded", "failed", "stopped"; "unknown" for one of a
// coordinator that is newer than the reader.
inline std::string JobStateName(v1::JobState state) {
  if (state == 0 || !v1::JobState_IsValid(state)) return "unknown";
  return absl::AsciiStrToLower(
      absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

// The job takes no further step.
inline bool HasEnded(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_STOPPED;
}

}  // namespace paceline

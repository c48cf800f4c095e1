#include "client/exit_code.h"

namespace paceline {

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotPermitted;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimedOut;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

ExitCode SubmitExitCodeFor(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kResourceExhausted ||
      status.code() == absl::StatusCode::kFailedPrecondition) {
    return kExitUnplaceable;
  }
  return ExitCodeFor(status);
}

ExitCode ExitCodeFor(JobState state) {
  switch (state) {
    case JobState::kFailed:
      return kExitFailed;
    case JobState::kStopped:
      return kExitStopped;
    default:
      return kExitOk;
  }
}

}  // namespace paceline

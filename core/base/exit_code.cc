#include "core/base/exit_code.h"

namespace paceline {

int DaemonExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kAborted:
      return kConfigurationExit;
    default:
      return 1;
  }
}

}  // namespace paceline

#include "core/base/exit_code.h"

namespace paceline {

int DaemonExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return 2;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return 7;
    default:
      return 1;
  }
}

}  // namespace paceline

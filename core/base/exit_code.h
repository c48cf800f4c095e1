// What a daemon's process ends with.
#pragma once

#include "absl/status/status.h"

namespace paceline {

// The client's numbers, as far as a daemon has use for them: 0 ok, 2 wrong
// usage (InvalidArgument), 7 not permitted (PermissionDenied, Unauthenticated),
// 1 anything else.
int DaemonExitCode(const absl::Status& status);

}  // namespace paceline

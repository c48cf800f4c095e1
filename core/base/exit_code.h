// The exit codes of the daemons.
#pragma once

#include "absl/status/status.h"

namespace paceline {

// EX_CONFIG of sysexits.h.  The systemd units do not start a daemon again that
// ends with it: the same configuration would fail again.
inline constexpr int kConfigurationExit = 78;

// 0 ok; 78 wrong configuration, be it a flag, a variable, the file, a
// certificate, or an address that may not be used (InvalidArgument,
// PermissionDenied, Unauthenticated), a name that another process has
// (Aborted), or a folder that another release has written
// (FailedPrecondition); 1 anything else.
int DaemonExitCode(const absl::Status& status);

// The same for --help.
inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 stopped, 78 wrong configuration (flag, variable or file),\n"
    "1 anything else, as a port in use";

}  // namespace paceline

// The exit codes of the daemons.
#pragma once

#include "absl/status/status.h"

namespace paceline {

// EX_CONFIG of sysexits.h.  The systemd units do not start a daemon again that
// ends with it: the same configuration would fail again.
inline constexpr int kConfigurationExit = 78;

// 0 ok; 78 wrong configuration, be it a flag, a variable, the file, a
// certificate, an address that may not be used, or a state that another release
// has written (InvalidArgument, PermissionDenied, Unauthenticated), or a name
// that another process has (Aborted); 1 anything else, since it may be right
// later: a port in use, clocks that differ, several coordinators on a network.
int DaemonExitCode(const absl::Status& status);

// The same for --help.
inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 stopped, 78 wrong configuration (flag, variable or file),\n"
    "1 anything else, as a port in use";

}  // namespace paceline

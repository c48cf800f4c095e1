// A daemon as a process: the ports that it tells its caller, the signals that
// end it, and its exit codes.
#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"

namespace paceline {

// Writes {"grpc": "host:port", "http": "host:port", "pid": N} to `path`, whole
// or not at all: the caller that gave --port-file may have started the daemon
// with port 0.  Writes nothing if the path is empty.
// Errors: Unavailable  the file cannot be written; names flag, path and why.
absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http);

// main waits for signals, and no other thread sees them.

// Blocks these, before the first thread starts, so that every thread inherits
// it; and SIGHUP where systemd has started the process: elsewhere it says that
// the terminal is gone, and ends the process.  Ignores SIGPIPE: the reader of
// the log may leave, the daemon stays.
sigset_t BlockSignals(std::initializer_list<int> signals);

// Waits for one of `signals`, and returns it.  Each SIGHUP calls `reload`.
int AwaitSignal(const sigset_t& signals, const std::function<void()>& reload);

// Takes one of `signals`.  False: none has come.
bool TakeSignal(const sigset_t& signals);

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

// A daemon as a process: the ports that it tells its caller, the signals that
// end it, its exit codes, and its configuration file.
#pragma once

#include <signal.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"

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

// Where a daemon ("worker") keeps its files, unless it is told: the folder that
// systemd has made, else one below /var/lib for root, or in the home folder.
std::string DefaultStateFolder(const std::string& daemon);

// --- the configuration file ---
//
// Lines of KEY = VALUE, a part of TOML:
//
//   # Where workers and clients call.
//   listen = "0.0.0.0:7400"   # or '0.0.0.0:7400'
//   lease = 3
//
// A quoted value is taken as it stands: a backslash means itself.

struct ConfigEntry {
  std::string where;  // FILE:LINE: KEY
  std::string key;
  std::string value;
};

// Errors:
//   NotFound         there is no such file
//   InvalidArgument  it cannot be read, a line is not KEY = VALUE, a key stands
//                    twice; the message names the file and the line
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(
    const std::string& path);

// Gives the key a value in the file, which is made where there is none; all
// other lines stay.
// Errors: those of WriteFileAtomically()
absl::Status SetConfigValue(const std::string& path, const std::string& key,
                            const std::string& value);

// FILE:LINE: KEY of each option whose value is from the file, by key.
using ConfigOrigins = std::map<std::string, std::string>;

// `status`, whose message then begins with the place that the value of the
// option `key` is from: "FILE:LINE: listen: ", or "--listen: " of a flag or a
// variable.
absl::Status AtOption(const ConfigOrigins& origins, const std::string& key,
                      const absl::Status& status);

// Gives `option` a value.
// Errors: InvalidArgument  the option refuses it; the message begins with
//                          `where`
template <typename Option>
absl::Status GiveValue(Option& option, const std::string& value,
                       const std::string& where) {
  try {
    option.add_result(value);
    option.run_callback();
  } catch (const std::exception& refused) {
    // CLI11's text begins with the flag's name.
    return InvalidArgument(
        where, ": ",
        absl::StripPrefix(refused.what(),
                          absl::StrCat(option.get_name(), ": ")));
  }
  return absl::OkStatus();
}

// Call it before app.parse().  It names the variable of each option of `app`
// but --help and --version: --data-dir gives <prefix>DATA_DIR.
template <typename App>
void NameVariables(App& app, const std::string& prefix) {
  for (auto* const option : app.get_options()) {
    if (option == app.get_help_ptr() || option == app.get_version_ptr()) {
      continue;
    }
    option->envname(prefix + absl::AsciiStrToUpper(absl::StrReplaceAll(
                                 option->get_single_name(), {{"-", "_"}})));
  }
}

// Call it after app.parse().  It sets each option of `app` that neither a flag
// nor a variable has set to the value in the file, and notes that in `origins`.
// A missing file is an error only if `must_exist`.
// App is CLI::App, which only options.cc may include.
// Errors: InvalidArgument  as ReadConfigFile; there is no such option, or it
//                          refuses the value: names the file, line and key;
//                          an option refuses its variable: names the variable
template <typename App>
absl::Status ApplyConfigFile(const std::string& path, bool must_exist, App& app,
                             ConfigOrigins& origins) {
  // CLI11 from 2.4 on passes over a variable whose value its option refuses.
  for (auto* const option : app.get_options()) {
    const char* const value = option->get_envname().empty()
                                  ? nullptr
                                  : std::getenv(option->get_envname().c_str());
    if (value == nullptr || *value == '\0' || !option->empty()) continue;
    PACELINE_RETURN_IF_ERROR(GiveValue(*option, value, option->get_envname()));
  }
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ReadConfigFile(path);
  if (absl::IsNotFound(entries.status())) {
    return must_exist ? InvalidArgument(entries.status().message())
                      : absl::OkStatus();
  }
  PACELINE_RETURN_IF_ERROR(entries.status());
  for (const ConfigEntry& entry : *entries) {
    auto* const option = app.get_option_no_throw("--" + entry.key);
    if (option == nullptr || !option->get_configurable()) {
      return InvalidArgument(entry.where, ": there is no such key; ",
                             app.get_name(), " --help lists them, as flags");
    }
    if (!option->empty()) continue;
    origins[entry.key] = entry.where;
    PACELINE_RETURN_IF_ERROR(GiveValue(*option, entry.value, entry.where));
  }
  return absl::OkStatus();
}

}  // namespace paceline

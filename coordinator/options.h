// The coordinator's command line, environment and configuration file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/obs/log.h"
#include "core/os/daemon_process.h"

namespace paceline {

struct CoordinatorOptions {
  std::string listen = "127.0.0.1:7400";
  std::string http = "127.0.0.1:7480";
  std::string state;           // absolute: clients see paths in it
  std::string checkpoint_dir;  // empty: in `state`
  bool adopt_checkpoints = false;
  std::string port_file;    // empty: none
  std::string secret_file;  // empty: anyone may call
  std::vector<std::string> http_hosts;
  bool insecure = false;
  bool http_insecure = false;
  bool tls = false;
  bool http_tls = false;  // with `tls` only
  absl::Duration certificate_life = absl::Hours(24 * 90);
  absl::Duration lease = absl::Seconds(3);
  LogLevel log_level = LogLevel::kInfo;
  ConfigOrigins origins;
};

// A flag overrides the environment (PACELINE_COORDINATOR_LISTEN ...), which
// overrides the file.
// Empty: the process shall end with *exit_code now; the help, version or error
// was printed.
std::optional<CoordinatorOptions> ParseOptions(int argc, char** argv,
                                               int* exit_code);

}  // namespace paceline

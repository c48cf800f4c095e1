// The worker's command line, environment and configuration file.
#pragma once

#include <string>
#include <vector>

#include "core/obs/log.h"
#include "core/os/daemon_process.h"
#include "core/os/files.h"

namespace paceline {

// Debian's packages of data sets; jobs may read them on every worker.
inline constexpr char kPublicData[] = "/usr/share/datasets";

struct WorkerOptions {
  std::string coordinator = "127.0.0.1:7400";
  std::string name;         // default: the host's name
  std::string machine_id;   // default: /etc/machine-id, else kept in state
  int machine_workers = 1;  // that share the machine's memory
  std::string listen = "127.0.0.1:7401";
  std::string advertise;  // default: where it listens, as others see it
  std::string http = "127.0.0.1:7481";
  std::string state;        // folder for what the worker keeps
  std::string port_file;    // JSON with the ports, written when ready
  std::string tls_dir;      // default: tls in `state`; used where it has files
  std::string secret_file;  // empty: none is shown, none asked for
  std::vector<std::string> http_hosts;
  bool insecure = false;
  bool http_insecure = false;
  bool http_tls = false;
  // Jobs may read below these folders; kPublicData is the last one.
  std::vector<std::string> data_dirs;
  bool data_hidden = false;  // hidden files and folders in them too
  bool no_scripts = false;
  // 'join': where, and with what; both empty: the worker works.
  std::string join;
  std::string token;
  std::string config = "/etc/paceline/worker.toml";
  LogLevel log_level = LogLevel::kInfo;
  ConfigOrigins origins;
};

// Parses argv, PACELINE_WORKER_* and the configuration file, in this order of
// precedence.  Returns true to go on; else *exit_code is what main returns
// (0 after --help and --version, 78 after a mistake, which was printed).
bool ParseWorkerOptions(int argc, char** argv, WorkerOptions* options,
                        int* exit_code);

// For LimitReads().
ReadAccess ReadAccessOf(const WorkerOptions& options);

}  // namespace paceline

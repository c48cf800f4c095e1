#include "worker/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/base/version.h"
#include "core/cluster/registration.h"
#include "core/os/daemon_process.h"
#include "core/os/files.h"

namespace paceline {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "worker";
}

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// /etc/machine-id; where there is none (a container, a bare root), one of our
// own, drawn once and kept in the state folder.
std::string MachineId(const std::string& state) {
  const std::string given = FirstLine("/etc/machine-id");
  if (!given.empty()) return given;
  const std::string path = state + "/machine-id";
  const std::string kept = FirstLine(path.c_str());
  if (!kept.empty()) return kept;

  std::random_device random;
  char id[33];
  std::snprintf(id, sizeof(id), "%08x%08x%08x%08x", random(), random(),
                random(), random());
  std::error_code ignored;
  std::filesystem::create_directories(state, ignored);
  std::ofstream(path) << id << "\n";
  return id;
}

void AddJobs(CLI::App& app, WorkerOptions& options) {
  app.add_option("--data-dir", options.data_dirs,
                 "Folder whose files jobs may read, besides "
                 "/usr/share/datasets; several: again, or DIR:DIR")
      ->type_name("DIR")
      ->delimiter(':')
      ->allow_extra_args(false)
      ->check(
          [](const std::string& folder) {
            return folder.empty() || folder.front() != '/'
                       ? "'" + folder + "' is no absolute path"
                       : "";
          },
          "");
  app.add_flag("--data-hidden", options.data_hidden,
               "Jobs may read hidden files and folders in --data-dir too");
  app.add_flag("--no-scripts", options.no_scripts,
               "Run no TorchScript, which is code of those who submit jobs");
}

void AddTrust(CLI::App& app, WorkerOptions& options) {
  AddJobs(app, options);
  app.add_option("--tls-dir", options.tls_dir,
                 "Folder of certificate and key (default: tls in --state); "
                 "without them no TLS");
  app.add_option("--secret-file", options.secret_file,
                 "File of the coordinator's secret, which calls to this worker "
                 "must show too");
  app.add_option("--http-host", options.http_hosts,
                 "More names by which --http may be called, besides addresses "
                 "and this machine's names: NAME,...")
      ->delimiter(',');
  app.add_flag("--insecure", options.insecure,
               "Listen off loopback without TLS");
  app.add_flag("--http-insecure", options.http_insecure,
               "Allow --http off loopback, where anybody may read it");
  app.add_flag("--http-tls", options.http_tls,
               "Serve --http as https, to certificates of the mesh only");
  CLI::App* const join = app.add_subcommand(
      "join",
      "Gets a certificate with a token, writes the configuration, and ends");
  join->fallthrough();
  join->add_option("COORDINATOR", options.join,
                   "host:port of the coordinator, or auto")
      ->required();
  join->add_option("TOKEN", options.token,
                   "As 'paceline token create --role worker' prints it")
      ->required();
}

// Fills in what follows from other options.
void FillIn(WorkerOptions& options) {
  if (options.tls_dir.empty()) options.tls_dir = options.state + "/tls";
  if (options.machine_id.empty()) options.machine_id = MachineId(options.state);
  options.data_dirs.push_back(kPublicData);
}

}  // namespace

bool ParseWorkerOptions(int argc, char** argv, WorkerOptions* options,
                        int* exit_code) {
  options->name = HostName();
  options->state = DefaultStateFolder("worker");
  std::string level(LogLevelName(options->log_level));

  CLI::App app(
      "Holds stages of a model, computes them, and streams to its neighbours.",
      "paceline-worker");
  app.set_version_flag("--version", std::string("paceline-worker ") + kVersion);
  app.footer(kExitCodesHelp);
  const auto option = [&app](const char* flag, std::string& value,
                             const char* help) {
    return app.add_option(flag, value, help)->capture_default_str();
  };
  // CLI11 would put the file above the environment, and name no line.
  CLI::Option* const named = option("--config", options->config,
                                    "File of options (TOML): name = \"pi-1\"")
                                 ->configurable(false);
  option("--coordinator", options->coordinator,
         "host:port of the coordinator; auto: the only one that Avahi finds");
  option("--name", options->name, "Unique name of this worker")
      ->default_str("the host's")
      ->check([](const std::string& name) { return WhyNoWorkerName(name); },
              "");
  option("--machine-id", options->machine_id,
         "Workers with the same id fail together (default: the machine's)");
  app.add_option("--machine-workers", options->machine_workers,
                 "How many workers run on this machine: each counts on its "
                 "part of the memory")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  option("--listen", options->listen,
         "host:port for other workers; port 0: any");
  option("--advertise", options->advertise,
         "host:port where others reach this worker");
  option("--http", options->http,
         "host:port of /metrics, /healthz and /readyz; port 0: any");
  option("--state", options->state,
         "Folder of key, certificate (tls) and, if need be, a machine id");
  option("--port-file", options->port_file,
         "Write the ports there as JSON once ready");
  option("--log-level", level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  AddTrust(app, *options);
  NameVariables(app, "PACELINE_WORKER_");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : kConfigurationExit;
    return false;
  }
  // 'join' makes the file.
  if (const absl::Status status = ApplyConfigFile(
          options->config, named->count() > 0 && options->join.empty(), app,
          options->origins);
      !status.ok()) {
    std::fprintf(stderr, "paceline-worker: %s\n",
                 std::string(status.message()).c_str());
    *exit_code = DaemonExitCode(status);
    return false;
  }
  // That of the host was not checked.
  if (const std::string why = WhyNoWorkerName(options->name); !why.empty()) {
    std::fprintf(stderr,
                 "paceline-worker: the host's name cannot be the worker's: %s; "
                 "give it one with --name\n",
                 why.c_str());
    *exit_code = kConfigurationExit;
    return false;
  }
  ParseLogLevel(level, &options->log_level);
  FillIn(*options);
  return true;
}

ReadAccess ReadAccessOf(const WorkerOptions& options) {
  ReadAccess access;
  access.folders = options.data_dirs;
  access.hidden = options.data_hidden;
  for (const std::string& own :
       {options.state, options.tls_dir, options.config, options.secret_file}) {
    if (!own.empty()) access.never.push_back(own);
  }
  return access;
}

}  // namespace paceline

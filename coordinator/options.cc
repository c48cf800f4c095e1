#include "coordinator/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/base/version.h"
#include "core/os/daemon_process.h"

namespace paceline {
namespace {

constexpr char kConfigFile[] = "/etc/paceline/coordinator.toml";

// CLI::Range accepts NaN, since every comparison with it is false.
std::string WhyNoNumber(const std::string& text) {
  return std::isfinite(std::strtod(text.c_str(), nullptr))
             ? ""
             : "need a number, got " + text;
}

void AddTrust(CLI::App& app, CoordinatorOptions& options, double& life_hours) {
  app.add_flag(
      "--tls", options.tls,
      "Use TLS: workers and clients join with a token; the authority's "
      "files are in the folder tls of --state");
  app.add_flag("--http-tls", options.http_tls,
               "With --tls: serve --http as https, to certificates of the mesh "
               "only");
  app.add_option("--certificate-hours", life_hours,
                 "How long certificates live; they are renewed in time")
      ->check(CLI::Range(0.001, 10.0 * 365 * 24))
      ->check(WhyNoNumber)
      ->capture_default_str();
  app.add_option("--secret-file", options.secret_file,
                 "File of a secret that every call must show; without it, and "
                 "without --tls, every user of this machine may submit jobs");
  app.add_option("--http-host", options.http_hosts,
                 "More names by which --http may be called, besides addresses "
                 "and this machine's names: NAME,...")
      ->delimiter(',');
  app.add_flag("--insecure", options.insecure,
               "Allow addresses off loopback without TLS");
  app.add_flag("--http-insecure", options.http_insecure,
               "Allow --http off loopback, where anybody may read it");
}

void AddFolders(CLI::App& app, CoordinatorOptions& options) {
  app.add_option("--state", options.state, "Folder of all that is kept")
      ->check([](const std::string& text) {
        return text.empty() ? "need the name of a folder" : "";
      })
      ->capture_default_str();
  app.add_option("--checkpoint-dir", options.checkpoint_dir,
                 "Folder of checkpoints; default: one in that of --state");
  app.add_flag(
      "--adopt-checkpoints", options.adopt_checkpoints,
      "Take over a --checkpoint-dir of another state; keeps its files");
}

}  // namespace

std::optional<CoordinatorOptions> ParseOptions(int argc, char** argv,
                                               int* exit_code) {
  CoordinatorOptions options;
  options.state = DefaultStateFolder("coordinator");
  double lease_seconds = absl::ToDoubleSeconds(options.lease);
  double life_hours = absl::ToDoubleHours(options.certificate_life);
  std::string log_level = "info";

  CLI::App app("Keeps a mesh's members, jobs and plans.",
               "paceline-coordinator");
  app.set_version_flag("--version",
                       std::string("paceline-coordinator ") + kVersion);
  app.footer(kExitCodesHelp);
  // Not CLI11's configuration file: CLI11 ranks it above the environment and
  // its errors name no line.
  std::string config = kConfigFile;
  CLI::Option* const named =
      app.add_option("--config", config,
                     "File of options (TOML): listen = \"0.0.0.0:7400\"")
          ->configurable(false)
          ->capture_default_str();
  app.add_option("--listen", options.listen,
                 "host:port for workers and clients; port 0: any")
      ->capture_default_str();
  app.add_option(
         "--http", options.http,
         "host:port of the page, /metrics /healthz /readyz /sd; port 0: any")
      ->capture_default_str();
  AddFolders(app, options);
  AddTrust(app, options, life_hours);
  app.add_option("--lease", lease_seconds,
                 "Seconds of silence after which a worker counts as lost")
      ->check(CLI::Range(0.3, 3600.0))
      ->check(WhyNoNumber)
      ->capture_default_str();
  app.add_option("--log-level", log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  app.add_option("--port-file", options.port_file,
                 "Once ready, write {\"grpc\",\"http\",\"pid\"} as JSON here");
  NameVariables(app, "PACELINE_COORDINATOR_");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : kConfigurationExit;
    return std::nullopt;
  }
  if (const absl::Status status = ApplyConfigFile(
          config, /*must_exist=*/named->count() > 0, app, options.origins);
      !status.ok()) {
    std::fprintf(stderr, "paceline-coordinator: %s\n",
                 std::string(status.message()).c_str());
    *exit_code = DaemonExitCode(status);
    return std::nullopt;
  }
  std::error_code error;
  const auto state = std::filesystem::absolute(options.state, error);
  if (!error) options.state = state;
  options.lease = absl::Seconds(lease_seconds);
  options.certificate_life = absl::Hours(life_hours);
  ParseLogLevel(log_level, &options.log_level);
  return options;
}

}  // namespace paceline

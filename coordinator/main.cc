// paceline-coordinator keeps a mesh's members, jobs, plans and standing orders.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/options.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/pieces.h"
#include "coordinator/rpc/trust_service.h"
#include "coordinator/store/file_checkpoint_store.h"
#include "coordinator/store/file_system.h"
#include "coordinator/store/file_weights_store.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/watch/http.h"
#include "coordinator/watch/metrics.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/version.h"
#include "core/obs/http_server.h"
#include "core/obs/log.h"
#include "core/obs/metrics.h"
#include "core/obs/notify.h"
#include "core/os/daemon_process.h"
#include "core/os/host_port.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/enrol.h"
#include "core/rpc/tls.h"
#include "core/trust/secret.h"

namespace paceline {
namespace {

constexpr absl::Duration kTickPeriod = absl::Milliseconds(50);
// The period of checks of the certificates and the host.
constexpr absl::Duration kRenewalPeriod = absl::Seconds(1);
// The share of calls in the five seconds that a stop may take.
constexpr absl::Duration kCallsMayTake = absl::Seconds(2);

// Main passes this to the serving parts.
struct Running {
  const sigset_t signals;
  const std::function<void()> reload;  // at SIGHUP
};

// `host`, or this machine's name where `host` means all its addresses.
std::string ReachableHost(const std::string& host) {
  if (!host.empty() && host != "0.0.0.0" && host != "::") return host;
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// A database that was moved away leaves weights behind, which a new job of the
// same number would take for its own.
void SkipTakenNumbers(int64_t newest_folder, StoredState& stored) {
  if (newest_folder < stored.next_job.value) return;
  Log(LogLevel::kWarn, "numbers of jobs go on after those whose files are here",
      {{"newest", newest_folder}, {"expected", stored.next_job.value - 1}});
  stored.next_job = JobId{newest_folder + 1};
}

void RevokeAgain(const StoredState& stored) {
  for (const auto& [holder, unix_ms] : stored.revoked) {
    RevokeCertificates(holder, absl::FromUnixMillis(unix_ms));
  }
}

// Null without --tls.
absl::StatusOr<std::unique_ptr<Authority>> OpenAuthority(
    const CoordinatorOptions& options) {
  if (!options.tls) return std::unique_ptr<Authority>();
  const std::string folder = options.state + "/tls";
  auto authority =
      Authority::Open(folder, options.certificate_life, SystemClock().Today());
  absl::Status status = authority.status();
  if (status.ok()) status = UseTls((*authority)->own());
  if (status.ok()) return authority;
  return absl::Status(status.code(), absl::StrCat("the authority in ", folder,
                                                  ": ", status.message()));
}

ServerOptions GrpcOptions(const CoordinatorOptions& options) {
  ServerOptions server;
  // Saves gRPC's ping with each small heartbeat; large enough for weights.
  server.fixed_window_bytes = 1 << 20;
  server.listen = options.listen;
  server.insecure = options.insecure;
  server.with_tls = "add --tls";
  return server;
}

// Nothing without --http-tls.
absl::StatusOr<std::optional<HttpTls>> HttpFiles(
    const CoordinatorOptions& options, const Authority* authority) {
  if (!options.http_tls) return std::optional<HttpTls>();
  if (authority == nullptr) {
    return AtOption(options.origins, "http-tls",
                    InvalidArgument("it needs --tls as well"));
  }
  const TlsFiles& own = authority->own();
  return HttpTls{own.certificate, own.key, own.authority};
}

void Renew(const Authority& authority, RenewalPace& pace, Instant now,
           CoordinatorMetrics& metrics) {
  const absl::Status renewed = pace.Run(authority.own(), now, [&authority] {
    return authority.RenewOwn(SystemClock().Today());
  });
  if (!renewed.ok()) {
    Log(LogLevel::kError,
        "the coordinator's certificate cannot be renewed: trying again",
        {{"why", renewed.message()}});
  }
  const absl::StatusOr<CertificateInfo> own = CertificateOf(authority.own());
  if (own.ok()) metrics.SetCertificateExpiry(own->not_after);
}

void LookAtHost(const CoordinatorOptions& options, CoordinatorMetrics& metrics,
                ProcessMetrics& process, Coordinator& coordinator) {
  process.Update();
  int64_t least = metrics.SetDiskFree("state", options.state);
  if (!options.checkpoint_dir.empty()) {
    least = std::min(
        least, metrics.SetDiskFree("checkpoints", options.checkpoint_dir));
  }
  coordinator.SetFreeBytes(least);
}

// Waits for a signal, or until the data base is found damaged.
absl::Status AwaitEnd(const Running& running, const std::string& database) {
  absl::Status damage;
  {
    const StoreCheck check(database, [&damage](const absl::Status& why) {
      damage = why;
      kill(getpid(), SIGTERM);
    });
    const int signal = AwaitSignal(running.signals, running.reload);
    Log(LogLevel::kInfo, "coordinator stops", {{"signal", signal}});
  }
  if (!damage.ok()) {
    Log(LogLevel::kError, "the store is damaged", {{"why", damage.message()}});
  }
  return damage;
}

std::string CheckpointFolder(const CoordinatorOptions& options,
                             const StateDir& state) {
  return options.checkpoint_dir.empty() ? state.checkpoints()
                                        : options.checkpoint_dir;
}

// Starts all serving parts, in the order in which they are stopped.
absl::Status Serve(const CoordinatorOptions& options, const StateDir& state,
                   const Authority* authority, JobStore& store,
                   FileWeightsStore& weights_store,
                   FileCheckpointStore& checkpoints, const Running& running) {
  const absl::StatusOr<HostPort> http_at = ParseHttpAddress(
      options.http,
      options.insecure || options.http_insecure || options.http_tls);
  PACELINE_RETURN_IF_ERROR(AtOption(options.origins, "http", http_at.status()));
  PACELINE_ASSIGN_OR_RETURN(StoredState stored, store.Load());
  SkipTakenNumbers(std::max(NewestJobFolder(state.jobs()),
                            NewestJobFolder(CheckpointFolder(options, state))),
                   stored);
  PACELINE_ASSIGN_OR_RETURN(const std::optional<HttpTls> http_tls,
                            HttpFiles(options, authority));
  RevokeAgain(stored);
  const SystemClock clock;
  MetricsRegistry registry;
  CoordinatorMetrics metrics(registry, kVersion);
  ProcessMetrics process(registry);
  BrainPolicy policy;
  policy.membership.lease = options.lease;
  Coordinator coordinator(policy, std::move(stored), store, weights_store,
                          checkpoints, clock, metrics);
  const auto workers = MakeCoordinatorService(coordinator, metrics);
  const auto clients = MakeControlService(coordinator, metrics);
  const auto pieces = MakePieceService(coordinator);
  const auto trust = MakeTrustService(coordinator, authority, metrics);
  std::atomic<bool> serves = false;
  std::atomic<int> http_port{0};
  const std::string http_host = ReachableHost(http_at->host);
  const auto http_address = [&http_host, &http_port] {
    return JoinHostPort(http_host, http_port);
  };
  HttpServer http;
  http.AllowHosts(options.http_hosts);
  AddRoutes(http, coordinator, registry, serves, http_address,
            options.http_tls);

  absl::StatusOr<BoundServer> server =
      StartServer(GrpcOptions(options),
                  {workers.get(), clients.get(), pieces.get(), trust.get()});
  absl::Status started = AtOption(options.origins, "listen", server.status());
  if (started.ok()) {
    const absl::StatusOr<int> port =
        http.Start(http_at->host, http_at->port, http_tls);
    started = port.status();
    if (started.ok()) http_port = *port;
  }
  if (started.ok()) {
    const std::string grpc = JoinHostPort(server->host, server->port);
    Ticker ticker("ticker", kTickPeriod,
                  [&coordinator] { coordinator.Tick(); });
    RenewalPace pace;
    Ticker renewal("renewal", kRenewalPeriod, [&] {
      if (authority != nullptr) Renew(*authority, pace, clock.Now(), metrics);
      LookAtHost(options, metrics, process, coordinator);
    });
    serves = true;
    started = WritePortFile(options.port_file, grpc, http_address());
    if (started.ok()) {
      Log(LogLevel::kInfo, "coordinator is ready",
          {{"grpc", grpc}, {"http", http_address()}, {"state", options.state}});
      const std::unique_ptr<Ticker> notifying =
          KeepNotifying([&coordinator] { return coordinator.Summary(); });
      started = AwaitEnd(running, state.database());
      NotifySupervisor("STOPPING=1");
      if (!options.port_file.empty()) unlink(options.port_file.c_str());
    }
  }
  serves = false;
  coordinator.RefuseWaiters();
  if (server.ok()) server->Shutdown(kCallsMayTake);
  http.Stop();
  coordinator.Stop();
  weights_store.Stop();
  checkpoints.Stop();
  return started;
}

absl::Status Run(const CoordinatorOptions& options, const Running& running) {
  if (!options.secret_file.empty()) {
    PACELINE_RETURN_IF_ERROR(AtOption(options.origins, "secret-file",
                                      UseSecret(options.secret_file)));
  }
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<StateDir> state,
                            StateDir::Open(options.state));
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteStore> store,
                            SqliteStore::Open(state->database()));
  FileWeightsStore weights_store(state->jobs());
  const std::string checkpoint_dir = CheckpointFolder(options, *state);
  const auto owned =
      LockCheckpoints(checkpoint_dir, *state, options.adopt_checkpoints);
  PACELINE_RETURN_IF_ERROR(
      AtOption(options.origins, "checkpoint-dir", owned.status()));
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Authority> authority,
                            OpenAuthority(options));
  GrpcPieceFetcher fetcher;
  FileCheckpointStore checkpoints(checkpoint_dir, fetcher);
  return Serve(options, *state, authority.get(), *store, weights_store,
               checkpoints, running);
}

int Main(int argc, char** argv) {
  int exit_code = 0;
  const std::optional<CoordinatorOptions> options =
      ParseOptions(argc, argv, &exit_code);
  if (!options.has_value()) return exit_code;
  const Running running = {BlockSignals({SIGTERM, SIGINT}), [argc, argv] {
                             int wrong = 0;
                             const auto again =
                                 ParseOptions(argc, argv, &wrong);
                             if (again.has_value()) {
                               SetLogLevel(again->log_level);
                             }
                           }};
  signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is an error, no crash
  // Debian's absl would update a graph of all locks at every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  StartLogging({"paceline-coordinator", options->log_level});
  const absl::Status status = Run(*options, running);
  if (status.ok()) return 0;
  std::fprintf(stderr, "paceline-coordinator: %s\n",
               std::string(status.message()).c_str());
  return DaemonExitCode(status);
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }

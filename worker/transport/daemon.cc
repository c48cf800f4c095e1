#include "worker/transport/daemon.h"

#include <unistd.h>

#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/cluster/registration.h"
#include "core/obs/log.h"
#include "core/os/daemon_process.h"
#include "core/os/host_port.h"
#include "worker/meters/cpu.h"
#include "worker/profile/profiler.h"

namespace paceline {
namespace {

constexpr absl::Duration kServerGrace = absl::Seconds(1);
// A longer flag is wrong; the coordinator's error says so.  A long processor
// name of the kernel is no mistake, so it is cut to the coordinator's limit.
constexpr size_t kMaxFlagBytes = 4096;
constexpr size_t kMaxModelBytes = 255;
constexpr absl::Duration kAnnounceTime = absl::Seconds(1);
// No machine takes longer for one instruction of a stage.
constexpr absl::Duration kLongestInstruction = absl::Minutes(5);
// Period of the checks of the certificate.
constexpr absl::Duration kRenewalPeriod = absl::Seconds(1);

Incarnation DrawIncarnation() {
  std::random_device random;
  return {(static_cast<uint64_t>(random()) << 32 | random()) | 1};
}

// Returns half of the memory, where it is known: the rest is for the runs.
int64_t RoomForPieces(int64_t memory_bytes) {
  return memory_bytes > 0 ? memory_bytes / 2
                          : std::numeric_limits<int64_t>::max();
}

}  // namespace

Daemon::Daemon(DaemonOptions options)
    : options_(std::move(options)),
      incarnation_(DrawIncarnation()),
      metrics_(registry_, kVersion),
      process_(registry_),
      pieces_(RoomForPieces(MemoryShare())),
      data_plane_(
          PlaneOptions{.incarnation = incarnation_, .pieces = &pieces_}),
      round_plane_(PlaneOptions{.incarnation = incarnation_}) {}

Daemon::~Daemon() { Stop(); }

absl::Status Daemon::Start() {
  // The resolver would look up a name without a port for ever.
  const ConfigOrigins& origins = options_.worker.origins;
  PACELINE_RETURN_IF_ERROR(
      AtOption(origins, "coordinator",
               ParseHostPort(options_.worker.coordinator).status()));
  const TlsFiles tls(options_.worker.tls_dir);
  if (tls.exist()) {
    PACELINE_RETURN_IF_ERROR(AtOption(origins, "tls-dir", UseTls(tls)));
  } else if (options_.worker.http_tls) {
    return AtOption(
        origins, "http-tls",
        InvalidArgument("there is no certificate: join the mesh first with "
                        "'paceline-worker join HOST:PORT TOKEN'"));
  }
  PACELINE_RETURN_IF_ERROR(StartGrpc());
  absl::StatusOr<std::string> advertised =
      AdvertisedAddress(options_.worker.advertise, grpc_address_);
  PACELINE_RETURN_IF_ERROR(AtOption(origins, "advertise", advertised.status()));
  advertised_ = *std::move(advertised);
  const std::shared_ptr<grpc::Channel> channel =
      MakeChannel(options_.worker.coordinator, Role::kCoordinator);
  factory_ = options_.make_factory({data_plane_, round_plane_, channel});
  prober_ = std::make_unique<GrpcProber>(grpc_address_, advertised_);
  exchange_ =
      std::make_unique<PieceClient>(pieces_, options_.worker.coordinator);
  agent_ = std::make_unique<Agent>(
      AgentOptions{
          .measure =
              [this](const v1::MeasureOrder& order, const CancelToken& cancel) {
                return CarryOut(order,
                                {options_.worker.name, options_.cpu_capability,
                                 CpuModelName(), MemoryShare(), prober_.get(),
                                 *factory_, clock_},
                                cancel);
              },
          .memory_bytes = MemoryShare(),
          .cpu_capability = options_.cpu_capability,
          .active_capability = options_.active_capability,
          .restart = options_.restart,
          .fault_actions = &fault_actions_,
          .pieces = &pieces_,
          .exchange = exchange_.get()},
      *factory_, clock_);
  SetLogSink([this](LogLevel level, const std::string& text) {
    v1::LogLine line;
    line.set_unix_ms(absl::ToUnixMillis(clock_.Today()));
    line.set_level(std::string(LogLevelName(level)));
    line.set_text(text);
    agent_->AddLog(std::move(line));
  });
  PACELINE_RETURN_IF_ERROR(StartHttp());
  PACELINE_RETURN_IF_ERROR(
      WritePortFile(options_.worker.port_file, grpc_address_, http_address_));
  attach_ = std::make_unique<AttachClient>(
      AttachOptions{options_.worker.coordinator, Registration(),
                    options_.refused, options_.restart},
      channel, *agent_);
  ready_ = attach_.get();
  if (tls.exist()) {
    renewal_ = std::make_unique<Ticker>("renewal", kRenewalPeriod,
                                        [this] { Renew(); });
  }
  return absl::OkStatus();
}

void Daemon::Announce(WorkerEnd end) {
  agent_->Announce(end);
  if (end != WorkerEnd::kLeaving) attach_->AwaitEndKnown(kAnnounceTime);
}

std::optional<std::string> Daemon::Status() const {
  if (agent_->Computing() > kLongestInstruction) return std::nullopt;
  const std::string where =
      absl::StrCat(attached() ? "attached to " : "no coordinator at ",
                   options_.worker.coordinator);
  const v1::RunState run = agent_->recorder().Run();
  if (run.job() == 0) return absl::StrCat(where, "; idle");
  return absl::StrCat(where, "; job ", run.job(), ", attempt ", run.attempt(),
                      ", step ", run.step(), " of ", run.steps());
}

void Daemon::Renew() {
  const TlsFiles files(options_.worker.tls_dir);
  const absl::Status renewed = pace_.Run(files, clock_.Now(), [&] {
    return RenewIfDue(options_.worker.coordinator, files,
                      SystemClock().Today());
  });
  if (renewed.ok()) return;
  Log(LogLevel::kWarn, "the certificate cannot be renewed: trying again",
      {{"why", renewed.message()}});
}

void Daemon::Stop() {
  renewal_.reset();
  http_.Stop();
  ready_ = nullptr;
  SetLogSink(nullptr);
  attach_.reset();
  agent_.reset();
  exchange_.reset();
  data_plane_.Shutdown();
  round_plane_.Shutdown();
  if (server_.server == nullptr) return;
  server_.Shutdown(kServerGrace);
  server_.server.reset();
}

bool Daemon::attached() const {
  const AttachClient* attach = ready_;
  return attach != nullptr && attach->attached();
}

absl::Status Daemon::StartGrpc() {
  ServerOptions server;
  server.insecure = options_.worker.insecure;
  if (const int64_t memory = MemoryShare(); memory > 0) {
    server.memory_bytes = memory / 2;
  }
  const std::vector<grpc::Service*> services = {data_plane_.service(),
                                                round_plane_.service()};
  absl::StatusOr<BoundServer> bound = Unavailable("not tried");
  if (!options_.earlier_grpc.empty()) {
    server.listen = options_.earlier_grpc;
    bound = StartServer(server, services);
  }
  if (!bound.ok()) {
    server.listen = options_.worker.listen;
    bound = StartServer(server, services);
  }
  PACELINE_RETURN_IF_ERROR(
      AtOption(options_.worker.origins, "listen", bound.status()));
  server_ = *std::move(bound);
  grpc_address_ = JoinHostPort(server_.host, server_.port);
  return absl::OkStatus();
}

absl::Status Daemon::StartHttp() {
  http_.Get("/metrics", [this] { return Metrics(); });
  http_.Get("/healthz", [] {
    HttpAnswer answer;
    answer.body = "ok\n";
    return answer;
  });
  http_.Get("/readyz", [this] {
    HttpAnswer answer;
    answer.status = attached() ? 200 : 503;
    answer.body = attached() ? "ready\n" : "not attached to a coordinator\n";
    return answer;
  });
  const WorkerOptions& options = options_.worker;
  const absl::StatusOr<HostPort> wanted = ParseHttpAddress(
      options.http,
      options.insecure || options.http_insecure || options.http_tls);
  PACELINE_RETURN_IF_ERROR(
      AtOption(options_.worker.origins, "http", wanted.status()));
  http_.AllowHosts(options.http_hosts);
  std::optional<HttpTls> tls;
  if (options.http_tls) {
    const TlsFiles files(options.tls_dir);
    tls = {files.certificate, files.key, files.authority};
  }
  absl::StatusOr<int> port = Unavailable("not tried");
  if (absl::StatusOr<HostPort> earlier = ParseHostPort(options_.earlier_http);
      earlier.ok()) {
    port = http_.Start(earlier->host, earlier->port, tls);
  }
  if (!port.ok()) port = http_.Start(wanted->host, wanted->port, tls);
  PACELINE_RETURN_IF_ERROR(port.status());
  http_address_ = JoinHostPort(wanted->host, *port);
  return absl::OkStatus();
}

int64_t Daemon::MemoryShare() const {
  return MemoryBytes() / options_.worker.machine_workers;
}

v1::Registration Daemon::Registration() const {
  const WorkerOptions& worker = options_.worker;
  v1::Registration registration;
  registration.set_protocol_version(kProtocolVersion);
  registration.set_name(worker.name);
  registration.set_machine_id(ToUtf8(worker.machine_id, kMaxFlagBytes));
  registration.set_incarnation(incarnation_.value);
  registration.set_address(ToUtf8(advertised_, kMaxFlagBytes));
  registration.set_http_address(
      AdvertisedAddress("", http_address_).value_or(http_address_));
  registration.set_http_tls(options_.worker.http_tls);
  registration.set_pid(getpid());
  registration.set_cpu_capability(DetectCpuCapability());
  registration.set_started_for(options_.cpu_capability);
  registration.set_cpu_model(ToUtf8(CpuModelName(), kMaxModelBytes));
  registration.set_architecture(Architecture());
  registration.set_memory_bytes(MemoryShare());
  registration.set_cores(static_cast<int>(std::thread::hardware_concurrency()));
  registration.set_version(kVersion);
  SetDataDirs(worker.data_dirs, registration);
  registration.set_no_scripts(worker.no_scripts);
  return registration;
}

HttpAnswer Daemon::Metrics() {
  WorkerReading reading;
  reading.attached = attached();
  reading.running = agent_->recorder().running();
  reading.instructions = agent_->recorder().progress();
  reading.steps = agent_->recorder().total_steps();
  reading.steps_skipped = agent_->recorder().skipped_steps();
  reading.samples = agent_->recorder().total_samples();
  reading.frames = data_plane_.stats();
  reading.time = agent_->Time();
  reading.run = agent_->recorder().Run();
  reading.rounds = agent_->Rounds();
  reading.pieces = pieces_.stats();
  reading.round_frames = round_plane_.stats();
  reading.predicted_memory_bytes = agent_->recorder().predicted_memory_bytes();

  const auto own = CertificateOf(TlsFiles(options_.worker.tls_dir));
  if (own.ok()) reading.certificate_expiry = own->not_after;

  absl::MutexLock lock(&metrics_mutex_);
  metrics_.Update(reading);
  process_.Update();
  HttpAnswer answer;
  answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
  answer.body = registry_.Text();
  return answer;
}

}  // namespace paceline

// paceline-worker: holds stages of a model, computes them, and streams to its
// neighbours.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/obs/log.h"
#include "core/obs/notify.h"
#include "core/os/daemon_process.h"
#include "core/os/files.h"
#include "core/os/host_port.h"
#include "core/os/thread.h"
#include "core/rpc/enrol.h"
#include "core/trust/secret.h"
#include "core/weights/load.h"
#include "worker/data/sample_set.h"
#include "worker/meters/cpu.h"
#include "worker/options.h"
#include "worker/transport/daemon.h"
#ifdef PACELINE_WITH_TORCH
#include "worker/torch/engine.h"
#else
#include "tests/support/pipeline/fake_engine.h"
#endif

namespace paceline {
namespace {

// Ports of the life before, across an exec.
constexpr char kEarlierGrpc[] = "PACELINE_WORKER_EARLIER_GRPC";
constexpr char kEarlierHttp[] = "PACELINE_WORKER_EARLIER_HTTP";

// Threads that have not ended by then are not waited for.
constexpr absl::Duration kLongestStop = absl::Seconds(5);
// The job moves to other workers within that; the unit's TimeoutStopSec= is
// longer than both.
constexpr absl::Duration kLongestLeave = absl::Seconds(20);
constexpr absl::Duration kLeavePoll = absl::Milliseconds(20);

// Replaces this process by itself, with `environment` changed to that of
// `capability`.  Returns only when that failed.
absl::Status ExecuteAnew(const std::string& capability, char** argv,
                         char** environment) {
  PACELINE_ASSIGN_OR_RETURN(
      const auto variables,
      EnvironmentFor(capability, Architecture(), DetectCpuCapability()));
  std::vector<std::string> settings;
  for (const auto& [name, value] : variables) {
    settings.push_back(absl::StrCat(name, "=", value));
  }
  std::vector<char*> words;
  for (std::string& setting : settings) words.push_back(setting.data());
  for (; *environment != nullptr; ++environment) {
    const absl::string_view word(*environment);
    const bool is_set = std::any_of(
        variables.begin(), variables.end(), [&word](const auto& variable) {
          return absl::StartsWith(word, absl::StrCat(variable.first, "="));
        });
    if (!is_set) words.push_back(*environment);
  }
  words.push_back(nullptr);
  // Whatever a library left open without O_CLOEXEC must not live on, least of
  // all a listening socket.
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd > STDERR_FILENO) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  execve("/proc/self/exe", argv, words.data());
  return Internal("cannot execute myself anew: ", strerror(errno));
}

// Stops the daemon.  A compute thread that hangs, in somebody's script say,
// cannot be joined: then `overdue`, which ends the process, is called.
void Stop(Daemon& daemon, const std::function<void()>& overdue) {
  SteadyNotification stopped;
  Thread watch("overdue", [&] {
    if (!stopped.WaitFor(kLongestStop)) overdue();
  });
  daemon.Stop();
  stopped.Notify();
  watch.Join();
}

// Waits until the job goes on with other workers.  Another SIGTERM or a SIGINT
// ends that.
void Leave(Daemon& daemon) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  daemon.Announce(WorkerEnd::kLeaving);
  const SystemClock clock;
  const Instant end = clock.Now() + kLongestLeave;
  while (clock.Now() < end && !daemon.AwaitRelease(kLeavePoll)) {
    if (TakeSignal(signals)) return;
  }
}

#ifndef PACELINE_WITH_TORCH
// This build computes with FakeEngines, which have no level of the CPU.
void SetComputeThreads(int /*threads*/) {}
absl::StatusOr<std::unique_ptr<StageEngine>> MakeTorchEngine(
    const EngineOptions& options) {
  return std::make_unique<FakeEngine>(options);
}
absl::StatusOr<ScriptModel> ReadScript(const JobSpec& /*spec*/) {
  return Unimplemented(
      "this worker was built without LibTorch: it computes no scripts");
}
std::string ActiveCpuCapability() { return ""; }
#endif

// Adds engines and data to the connections.  Immutable.
class WorkerRunFactory final : public GrpcRunFactory {
 public:
  WorkerRunFactory(const GrpcConnections& connections, bool no_scripts)
      : GrpcRunFactory(connections), no_scripts_(no_scripts) {}

  void SetThreads(int threads) override { SetComputeThreads(threads); }
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const EngineOptions& options) override {
    if (no_scripts_ && !options.model.file.empty()) return NoScripts();
    return MakeTorchEngine(options);
  }
  absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec) override {
    if (no_scripts_) return NoScripts();
    return paceline::ReadScript(spec);
  }
  absl::StatusOr<std::vector<NamedTensor>> ReadWeights(
      const ModelSpec& spec, const ModelDescription& model,
      const LayerRange& layers, WeightsOrigin& origin) override {
    return LoadWeights(spec, model, layers, &origin);
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) override {
    return OpenBatchSource(spec, turns);
  }

 private:
  static absl::Status NoScripts() {
    return PermissionDenied(
        "model.file: this worker runs no scripts (--no-scripts): name other "
        "workers for the job, or start this one without it");
  }

  const bool no_scripts_;
};

// Why main shall wake up.  Thread-safe.
class WakeUp {
 public:
  // One of both is set.
  struct Reason {
    std::string restart_at;  // a CPU capability
    absl::Status refused;
  };

  void Say(Reason reason) {
    {
      absl::MutexLock lock(&mutex_);
      reason_ = std::move(reason);
    }
    kill(getpid(), SIGUSR1);
  }
  Reason reason() const {
    absl::MutexLock lock(&mutex_);
    return reason_;
  }

 private:
  mutable absl::Mutex mutex_;
  Reason reason_ ABSL_GUARDED_BY(mutex_);
};

std::string Taken(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string taken = value == nullptr ? "" : value;
  unsetenv(variable);
  return taken;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "paceline-worker: %s\n",
               std::string(status.message()).c_str());
  return DaemonExitCode(status);
}

int Run(const WorkerOptions& worker, const std::string& capability, int argc,
        char** argv) {
  // The kernel calls it "exe" after the exec; people look for it by name.
  prctl(PR_SET_NAME, "paceline-worker");
  const sigset_t signals = BlockSignals({SIGINT, SIGTERM, SIGUSR1});

  // Debian's absl keeps a graph of all locks otherwise, at every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  StartLogging({"paceline-worker", worker.log_level, worker.name});
  LimitReads(ReadAccessOf(worker));
  WakeUp wake_up;
  const std::string kernels = ActiveCpuCapability();
  DaemonOptions options;
  options.worker = worker;
  options.cpu_capability = capability;
  options.active_capability = kernels;
  options.earlier_grpc = Taken(kEarlierGrpc);
  options.earlier_http = Taken(kEarlierHttp);
  options.restart = [&](const std::string& to) { wake_up.Say({to, {}}); };
  options.refused = [&](absl::Status why) { wake_up.Say({"", why}); };
  options.make_factory = [&](const GrpcConnections& connections) {
    return std::make_unique<WorkerRunFactory>(connections, worker.no_scripts);
  };
  Daemon daemon(std::move(options));
  if (const absl::Status status = daemon.Start(); !status.ok()) {
    return Fail(status);
  }
  Log(LogLevel::kInfo, "worker is ready",
      {{"name", worker.name},
       {"grpc", daemon.grpc_address()},
       {"http", daemon.http_address()},
       {"coordinator", worker.coordinator},
       {"cpu_capability", capability},
       {"kernels", kernels.empty() ? "none" : kernels}});
  std::unique_ptr<Ticker> notifying =
      KeepNotifying([&daemon] { return daemon.Status(); });

  const int signal = AwaitSignal(signals, [argc, argv] {
    WorkerOptions again;
    int wrong = 0;
    if (ParseWorkerOptions(argc, argv, &again, &wrong)) {
      SetLogLevel(again.log_level);
    }
  });
  if (signal == SIGUSR1 && !wake_up.reason().restart_at.empty()) {
    setenv(kEarlierGrpc, daemon.grpc_address().c_str(), 1);
    setenv(kEarlierHttp, daemon.http_address().c_str(), 1);
    daemon.Announce(WorkerEnd::kRestarting);
    notifying.reset();
    const auto anew = [&] {
      return Fail(ExecuteAnew(wake_up.reason().restart_at, argv, environ));
    };
    Stop(daemon, [&] { _exit(anew()); });
    return anew();
  }
  NotifySupervisor("STOPPING=1");
  if (signal == SIGTERM) Leave(daemon);
  daemon.Announce(WorkerEnd::kStopping);
  notifying.reset();
  Stop(daemon, [&] {
    Log(LogLevel::kWarn, "what it computes does not end: leaving it",
        {{"name", worker.name}, {"after", absl::FormatDuration(kLongestStop)}});
    _exit(wake_up.reason().refused.ok() ? 0 : Fail(wake_up.reason().refused));
  });
  if (!wake_up.reason().refused.ok()) return Fail(wake_up.reason().refused);
  Log(LogLevel::kInfo, "worker has stopped", {{"name", worker.name}});
  return 0;
}

// Gives what 'join' made to the owner of the state folder: systemd has given
// that to the user of the unit.
void GiveToOwnerOf(const std::string& state, const TlsFiles& files) {
  struct stat owner = {};
  if (stat(state.c_str(), &owner) != 0) return;
  for (const std::string& path :
       {files.folder, files.authority, files.certificate, files.key}) {
    // Without root's right there is nothing to give away.
    if (lchown(path.c_str(), owner.st_uid, owner.st_gid) != 0) return;
  }
}

// The unit that reads the file: "paceline-worker@2" reads worker2.toml.
std::string UnitOf(absl::string_view config) {
  if (!absl::ConsumePrefix(&config, "/etc/paceline/worker") ||
      !absl::ConsumeSuffix(&config, ".toml") || config.empty()) {
    return "paceline-worker";
  }
  return absl::StrCat("paceline-worker@", config);
}

// The other workers must reach this one, as it reaches the coordinator.
std::string ListenOf(const WorkerOptions& worker,
                     const std::string& coordinator) {
  const absl::StatusOr<HostPort> listen = ParseHostPort(worker.listen);
  return IsLoopback(ParseHostPort(coordinator)->host) || !listen.ok() ||
                 !IsLoopback(listen->host)
             ? worker.listen
             : JoinHostPort("0.0.0.0", listen->port);
}

absl::Status WriteConfiguration(const WorkerOptions& worker,
                                const std::string& listen) {
  PACELINE_RETURN_IF_ERROR(
      SetConfigValue(worker.config, "coordinator", worker.join));
  // The certificate is of this name, whatever the host is called later.
  PACELINE_RETURN_IF_ERROR(SetConfigValue(worker.config, "name", worker.name));
  if (listen == worker.listen) return absl::OkStatus();
  return SetConfigValue(worker.config, "listen", listen);
}

// 'join': trades the token for a certificate and writes the configuration.
int Join(const WorkerOptions& worker) {
  const TlsFiles files(worker.tls_dir);
  // The token says whose coordinator it must be.
  const auto coordinator = FindCoordinator(worker.join, /*vouched=*/true);
  if (!coordinator.ok()) return Fail(coordinator.status());
  EnrolOptions options;
  options.coordinator = *coordinator;
  options.token = worker.token;
  options.identity = {Role::kWorker, worker.name};
  options.say = [](const std::string& text) {
    std::fprintf(stderr, "paceline-worker: %s\n", text.c_str());
  };
  absl::Status joined = ParseHostPort(*coordinator).status();
  if (joined.ok()) joined = Enrol(options, files);
  if (!joined.ok()) return Fail(joined);
  GiveToOwnerOf(worker.state, files);
  std::printf("worker %s has joined the mesh of %s: its certificate is in %s\n",
              worker.name.c_str(), coordinator->c_str(), files.folder.c_str());
  const std::string listen = ListenOf(worker, *coordinator);
  const absl::Status written = WriteConfiguration(worker, listen);
  if (written.ok()) {
    std::printf("start it with: systemctl enable --now %s\n",
                UnitOf(worker.config).c_str());
    return 0;
  }
  std::printf(
      "%s\nstart it with: paceline-worker --coordinator %s --name %s --listen "
      "%s --state %s --tls-dir %s\n",
      std::string(written.message()).c_str(), worker.join.c_str(),
      worker.name.c_str(), listen.c_str(), worker.state.c_str(),
      files.folder.c_str());
  return 0;
}

// The libraries read their environment once, in constructors that run before
// main() and take most of a worker's start.  So the first thing a worker does
// is to begin again with the right environment.
void BeginAgain(int /*argc*/, char** argv, char** environment) {
  for (char** word = environment; *word != nullptr; ++word) {
    if (absl::StartsWith(*word, absl::StrCat(kCapabilityVariable, "="))) return;
  }
  // main() reports an error.
  ExecuteAnew(FirstCpuCapability(), argv, environment).IgnoreError();
}

// The loader calls this before any library's constructor, when getenv() finds
// nothing yet.  The code of a sanitizer's build cannot run that early.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((section(".preinit_array"),
               used)) void (*const kBeforeConstructors)(int, char**,
                                                        char**) = BeginAgain;
#endif

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  paceline::WorkerOptions options;
  int exit_code = 0;
  if (!paceline::ParseWorkerOptions(argc, argv, &options, &exit_code)) {
    return exit_code;
  }
  if (!options.join.empty()) {
    const absl::Status used = paceline::UseSecretOf("", options.secret_file);
    return used.ok() ? paceline::Join(options) : paceline::Fail(used);
  }
  const char* capability = std::getenv(paceline::kCapabilityVariable);
  if (capability == nullptr) {
    return paceline::Fail(
        paceline::ExecuteAnew(paceline::FirstCpuCapability(), argv, environ));
  }
  const auto coordinator = paceline::FindCoordinator(
      options.coordinator,
      options.insecure || paceline::TlsFiles(options.tls_dir).exist());
  if (!coordinator.ok()) return paceline::Fail(coordinator.status());
  options.coordinator = *coordinator;
  const absl::Status used = paceline::AtOption(
      options.origins, "secret-file",
      paceline::UseSecretOf(options.coordinator, options.secret_file));
  if (!used.ok()) return paceline::Fail(used);
  return paceline::Run(options, capability, argc, argv);
}

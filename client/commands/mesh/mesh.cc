#include "client/commands/mesh/mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/files/whole_file.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/os/files.h"
#include "core/trust/secret.h"

namespace paceline {

namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr int kTailLines = 5;
constexpr int64_t kTailBytes = 4096;
constexpr int64_t kMostPortFileBytes = 1 << 16;
// There are two files of each daemon.
constexpr uintmax_t kMostLogBytes = 8 << 20;

absl::Status MakeFolder(const std::string& path) {
  const absl::Status made = MakeFolders(path);
  if (made.ok()) return made;
  return FailedPrecondition(made.message(),
                            "; choose another with --state DIR");
}

// An advisory lock on `folder`, held until the descriptor is closed.
absl::StatusOr<int> LockFolder(const std::string& folder) {
  const std::string path = folder + "/up.lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return FailedPrecondition("cannot write ", path, ": ", std::strerror(errno),
                              "; choose another folder with --state DIR");
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    close(file);
    return FailedPrecondition(
        "another 'paceline up' runs with the state in ", folder,
        ": stop it or choose another folder with --state DIR");
  }
  return file;
}

bool IsExecutable(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<DaemonPorts> ReadPortFile(const std::string& path) {
  const auto text = ReadWholeFile(path, kMostPortFileBytes);
  if (!text.ok()) return std::nullopt;
  const auto json = ParseJson(path, *text);
  if (!json.ok()) return std::nullopt;
  absl::Status status;
  DaemonPorts ports;
  JsonFields fields(*json, path, status);
  fields.Need("grpc", ports.grpc);
  fields.Need("http", ports.http);
  fields.Need("pid", ports.pid);
  return status.ok() ? std::optional(ports) : std::nullopt;
}

absl::StatusOr<std::string> FindProgram(const std::string& program) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> folders;
  if (!error) folders.push_back(self.parent_path().string());
  const std::string path = Environment("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path, ':', absl::SkipEmpty())) {
    folders.emplace_back(folder);
  }
  for (const std::string& folder : folders) {
    const std::string candidate = absl::StrCat(folder, "/", program);
    if (IsExecutable(candidate)) return candidate;
  }
  return FailedPrecondition(
      "cannot find the program ", program, " in ",
      folders.empty() ? std::string("this program's folder") : folders.front(),
      " or in $PATH: build or install it");
}

absl::Status CheckPortFree(int port, const std::string& flag) {
  if (port == 0) return absl::OkStatus();
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return absl::OkStatus();  // the daemon will find out
  // As gRPC does: connections that are fading away are no hindrance.
  const int yes = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, kHost, &address.sin_addr);
  const int bound =
      bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = errno;
  close(probe);
  if (bound == 0) return absl::OkStatus();
  if (error == EADDRINUSE) {
    return FailedPrecondition(
        "port ", port, " of ", kHost,
        " is in use, perhaps by another mesh: stop that, or choose another "
        "with ",
        flag, " P (0: any)");
  }
  return FailedPrecondition("cannot listen on port ", port, " of ", kHost, ": ",
                            std::strerror(error), "; choose another with ",
                            flag, " P");
}

Mesh::Mesh(MeshOptions options, Connect connect, const Clock& clock)
    : options_(std::move(options)),
      secret_(options_.state + "/secret"),
      connect_(std::move(connect)),
      clock_(clock) {}

Mesh::~Mesh() {
  if (lock_ >= 0) close(lock_);
}

Mesh::Daemon Mesh::MakeDaemon(const std::string& name,
                              const std::string& program,
                              std::vector<std::string> more) const {
  Daemon daemon;
  daemon.name = name;
  const std::string folder = absl::StrCat(options_.state, "/", name);
  daemon.port_file = folder + "/ports.json";
  daemon.log = absl::StrCat(options_.state, "/logs/", name, ".log");
  more.insert(more.begin(),
              {program, "--state", folder, "--port-file", daemon.port_file,
               "--log-level", options_.log_level, "--secret-file", secret_});
  daemon.arguments = std::move(more);
  return daemon;
}

absl::Status Mesh::Start() {
  PACELINE_RETURN_IF_ERROR(CheckPortFree(options_.port, "--port"));
  PACELINE_RETURN_IF_ERROR(CheckPortFree(options_.http_port, "--http-port"));
  PACELINE_RETURN_IF_ERROR(MakeFolder(options_.state + "/logs"));
  if (const absl::Status own = CheckOwnFolder(options_.state); !own.ok()) {
    return FailedPrecondition(own.message(), ", with --state DIR");
  }
  PACELINE_ASSIGN_OR_RETURN(lock_, LockFolder(options_.state));
  PACELINE_RETURN_IF_ERROR(MakeSecret(secret_));
  PACELINE_RETURN_IF_ERROR(UseSecret(secret_));
  coordinator_ = MakeDaemon(
      "coordinator", options_.coordinator_program,
      {"--listen", absl::StrCat(kHost, ":", options_.port), "--http",
       absl::StrCat(kHost, ":", options_.http_port),
       // Workers hear of it from the coordinator.
       "--lease", absl::StrCat(absl::ToDoubleSeconds(options_.lease)),
       // The client of this mesh has no certificate, even where the machine's
       // own configuration asks for TLS.
       "--tls=false"});
  return StartDaemon(coordinator_);
}

absl::Status Mesh::StartDaemon(Daemon& daemon) {
  PACELINE_RETURN_IF_ERROR(MakeFolder(
      std::filesystem::path(daemon.port_file).parent_path().string()));
  // A port file of an earlier life must not pass for this one's.
  unlink(daemon.port_file.c_str());
  struct stat log = {};
  daemon.log_begin = stat(daemon.log.c_str(), &log) == 0 ? log.st_size : 0;
  PACELINE_ASSIGN_OR_RETURN(daemon.process,
                            ChildProcess::Start(daemon.arguments, daemon.log));
  daemon.started = clock_.Now();
  daemon.start_again.reset();
  daemon.registered = false;
  ++generation_;
  return absl::OkStatus();
}

void Mesh::LinkSecret(std::vector<std::string>* news) {
  namespace fs = std::filesystem;
  secret_link_ = SecretLink(ports_.grpc);
  absl::Status made = MakeFolders(fs::path(secret_link_).parent_path());
  unlink(secret_link_.c_str());  // an earlier mesh's
  if (made.ok() &&
      symlink(fs::absolute(secret_).c_str(), secret_link_.c_str()) != 0) {
    made = FileError("make", secret_link_, errno);
  }
  if (made.ok()) return;
  news->push_back(absl::StrCat(
      made.message(), ": give other commands --secret-file ", secret_));
}

absl::Status Mesh::StartWorkers(std::vector<std::string>* news) {
  const auto ports = ReadPortFile(coordinator_.port_file);
  if (!ports.has_value() || ports->pid != coordinator_.process.pid()) {
    return absl::OkStatus();  // not listening yet
  }
  ports_ = *ports;
  client_ = connect_(ports_.grpc);
  LinkSecret(news);
  // A coordinator that is started again keeps its addresses.
  auto& arguments = coordinator_.arguments;
  *(std::find(arguments.begin(), arguments.end(), "--listen") + 1) =
      ports_.grpc;
  *(std::find(arguments.begin(), arguments.end(), "--http") + 1) = ports_.http;
  for (int i = 1; i <= options_.workers; ++i) {
    const std::string name = absl::StrCat("w", i);
    const std::string any_port = absl::StrCat(kHost, ":0");
    // Each counts as a machine of its own, so that states can be kept on other
    // machines.
    workers_.push_back(MakeDaemon(
        name, options_.worker_program,
        {"--coordinator", ports_.grpc, "--name", name, "--machine-id",
         absl::StrCat("up-", name), "--machine-workers",
         absl::StrCat(options_.workers), "--listen", any_port, "--http",
         any_port, "--tls-dir", absl::StrCat(options_.state, "/no-tls"),
         // Its jobs are those of the user whose files these are.
         "--data-dir", "/", "--data-hidden", "--no-scripts=false"}));
    PACELINE_RETURN_IF_ERROR(StartDaemon(workers_.back()));
  }
  return absl::OkStatus();
}

absl::Status Mesh::LookAfter(Daemon& daemon, std::vector<std::string>* news) {
  if (RotateLog(daemon.log, kMostLogBytes)) daemon.log_begin = 0;
  const Instant now = clock_.Now();
  const pid_t pid = daemon.process.pid();
  if (const auto death = daemon.process.TakeDeath(); death.has_value()) {
    if (!ready_) {
      return FailedPrecondition(daemon.name, " ", *death,
                                " before the mesh was ready; ", daemon.log,
                                " ends with:\n", LogTail(daemon));
    }
    const absl::Duration pause = daemon.backoff.OnDeath(now - daemon.started);
    daemon.start_again = now + pause;
    news->push_back(absl::StrCat(
        daemon.name, " (pid ", pid, ") ", *death, "; starting it again in ",
        absl::FormatDuration(pause), ", its log is ", daemon.log));
  }
  if (daemon.start_again.has_value() && now >= *daemon.start_again) {
    const absl::Status started = StartDaemon(daemon);
    if (started.ok()) {
      news->push_back(
          absl::StrCat(daemon.name, " runs again, pid ", daemon.process.pid()));
    } else {
      daemon.start_again = now + daemon.backoff.OnDeath(absl::ZeroDuration());
      news->push_back(std::string(started.message()));
    }
  }
  return absl::OkStatus();
}

void Mesh::FindRegistered() {
  const auto listed = client_->ListWorkers();
  if (!listed.ok()) return;  // asked again at the next tick
  for (Daemon& daemon : workers_) {
    for (const v1::Worker& worker : listed->workers()) {
      if (worker.registration().name() == daemon.name &&
          worker.registration().pid() == daemon.process.pid() &&
          worker.state() != v1::WORKER_STATE_LOST) {
        daemon.registered = true;
      }
    }
  }
  ready_ = Missing().empty();
}

absl::Status Mesh::Tick(std::vector<std::string>* news) {
  PACELINE_RETURN_IF_ERROR(LookAfter(coordinator_, news));
  if (client_ == nullptr) {
    PACELINE_RETURN_IF_ERROR(StartWorkers(news));
  }
  for (Daemon& daemon : workers_) {
    PACELINE_RETURN_IF_ERROR(LookAfter(daemon, news));
  }
  if (!ready_ && client_ != nullptr) FindRegistered();
  return absl::OkStatus();
}

std::string Mesh::Missing() const {
  if (client_ == nullptr) return "coordinator";
  std::vector<std::string> names;
  for (const Daemon& daemon : workers_) {
    if (!daemon.registered) names.push_back(daemon.name);
  }
  return absl::StrJoin(names, ", ");
}

void Mesh::Stop(absl::Duration grace) {
  std::vector<ChildProcess*> running = {&coordinator_.process};
  for (Daemon& daemon : workers_) running.push_back(&daemon.process);
  const auto wait = [&](absl::Duration longest) {
    const Instant begin = clock_.Now();
    for (;;) {
      std::erase_if(running, [](ChildProcess* process) {
        process->TakeDeath();
        return !process->running();
      });
      if (running.empty() || clock_.Now() - begin >= longest) return;
      poll(nullptr, 0, 20);
    }
  };
  unlink(secret_link_.c_str());
  // A coordinator that stops would wait for an open connection of this client.
  client_ = nullptr;
  // No worker waits until its job goes on with others, as after SIGTERM.
  for (ChildProcess* process : running) process->Signal(SIGINT);
  wait(grace);
  for (ChildProcess* process : running) process->Signal(SIGKILL);
  wait(absl::Seconds(1));
}

std::string Mesh::LogTail(const Daemon& daemon) const {
  std::ifstream file(daemon.log, std::ios::binary | std::ios::ate);
  const int64_t size = file.tellg();
  file.seekg(std::max(daemon.log_begin, size - kTailBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back("  " + Printable(line));
  }
  if (lines.empty()) return "  (nothing)";
  const size_t skip = lines.size() > kTailLines ? lines.size() - kTailLines : 0;
  return absl::StrJoin(lines.begin() + skip, lines.end(), "\n");
}

Document Mesh::Describe() const {
  Document workers = ListOf(workers_, [](const Daemon& daemon) {
    return Document{{"name", daemon.name},
                    {"pid", OrNull(daemon.process.pid())}};
  });
  return Document{{"coordinator", ports_.grpc},
                  {"http", ports_.http},
                  {"pid", getpid()},
                  {"coordinator_pid", coordinator_.process.pid()},
                  {"state", options_.state},
                  {"secret_file", secret_},
                  {"workers", std::move(workers)}};
}

absl::Duration RestartBackoff::OnDeath(absl::Duration lived) {
  if (lived >= kHealthy) next_ = kFirst;
  const absl::Duration pause = next_;
  next_ = std::min(2 * next_, kLongest);
  return pause;
}

namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// Loading LibTorch takes seconds on a small machine, and N do it at once.
constexpr absl::Duration kReadyWithin = absl::Seconds(120);
// With the second that Stop may add, less than five.
constexpr absl::Duration kGrace = absl::Seconds(3);

absl::Status WriteReadyFile(const std::string& path, const Document& document) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status written =
      WriteWholeFile(path, ToJson(document, /*pretty=*/true) + "\n");
  if (written.ok()) return written;
  return FailedPrecondition("--ready-file: ", written.message());
}

void Announce(const UpOptions& options, const Mesh& mesh, Console& console) {
  const std::string& address = mesh.coordinator().grpc;
  // A variable or a flag of this terminal is not there in the next one.
  const std::string program =
      address == kDefaultCoordinator && address == options.usual_coordinator
          ? "paceline"
          : absl::StrCat("paceline --coordinator ", address);
  console.Print(
      absl::StrCat(
          "a mesh of ", Counted(options.mesh.workers, "worker"), " is ready\n",
          RenderFacts(
              {{"coordinator", address},
               {"page", absl::StrCat("http://", mesh.coordinator().http)},
               {"state", options.mesh.state},
               {"logs", options.mesh.state + "/logs"},
               {"submit a job", program + " job submit FILE.yaml"},
               {"stop", "Ctrl-C"}})),
      mesh.Describe());
  console.Flush();
}

// Runs the mesh until the user wants it to end.
absl::Status RunMesh(const UpOptions& options, Mesh& mesh, Console& console,
                     const Clock& clock, Pauser& pauser) {
  PACELINE_RETURN_IF_ERROR(mesh.Start());
  const Instant begin = clock.Now();
  bool announced = false;
  int written_generation = 0;
  do {
    std::vector<std::string> news;
    PACELINE_RETURN_IF_ERROR(mesh.Tick(&news));
    for (const std::string& line : news) console.Note(line);
    if (!mesh.ready()) {
      if (clock.Now() - begin < kReadyWithin) continue;
      return FailedPrecondition("after ", absl::FormatDuration(kReadyWithin),
                                " these have not registered: ", mesh.Missing(),
                                "; see ", options.mesh.state, "/logs");
    }
    if (written_generation != mesh.generation()) {
      PACELINE_RETURN_IF_ERROR(
          WriteReadyFile(options.ready_file, mesh.Describe()));
      written_generation = mesh.generation();
    }
    if (!announced) Announce(options, mesh, console);
    announced = true;
  } while (!pauser.Sleep(kTick));
  return absl::OkStatus();
}

}  // namespace

Outcome UpCommand(const UpOptions& options, Console& console,
                  const Clock& clock, Pauser& pauser, Connect connect) {
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());
  Mesh mesh(options.mesh, std::move(connect), clock);
  const absl::Status run = RunMesh(options, mesh, console, clock, pauser);
  if (run.ok()) console.Note("stopping the mesh");
  mesh.Stop(kGrace);
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());
  if (run.ok()) return kExitOk;
  ReportError(console, run);
  return kExitFailed;
}

std::string DefaultUpState() {
  const std::string state = UserStateFolder();
  return state.empty() ? "" : state + "/up";
}

namespace {

// Everything between fork and exec: other threads may have held any lock at
// the fork, so only async-signal-safe calls.  Does not return.
[[noreturn]] void RunChild(char* const* arguments, int log, int null,
                           int error_pipe, pid_t parent) {
  // Between fork and prctl the parent may have died; then nobody would tell.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(127);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal_number : {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGXFSZ}) {
    signal(signal_number, SIG_DFL);
  }
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  // Closes what libraries left open.  Kernels before 5.11 refuse, which does
  // no harm.
  close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  execv(arguments[0], arguments);
  const int error = errno;
  // If that write fails, there is no other way to tell the parent.
  if (write(error_pipe, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

absl::Status Failed(const std::string& what, int error) {
  return FailedPrecondition("cannot ", what, ": ", std::strerror(error));
}

}  // namespace

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const char* name = sigabbrev_np(WTERMSIG(wait_status));
    return name == nullptr
               ? absl::StrCat("was killed by signal ", WTERMSIG(wait_status))
               : absl::StrCat("was killed by SIG", name);
  }
  return absl::StrCat("ended with exit code ", WEXITSTATUS(wait_status));
}

bool RotateLog(const std::string& path, uintmax_t most_bytes) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes <= most_bytes) return false;
  const std::string old = path + ".1";
  std::filesystem::copy_file(
      path, old, std::filesystem::copy_options::overwrite_existing, error);
  // A full disk has room for no second one.
  if (error) unlink(old.c_str());
  return truncate(path.c_str(), 0) == 0;
}

absl::StatusOr<ChildProcess> ChildProcess::Start(
    const std::vector<std::string>& arguments, const std::string& log_path) {
  const int log =
      open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Failed("write " + log_path, errno);
  const absl::Cleanup close_log = [log] { close(log); };
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return Failed("open /dev/null", errno);
  const absl::Cleanup close_null = [null] { close(null); };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("make a pipe", errno);
  const absl::Cleanup close_read_end = [&] { close(ends[0]); };
  absl::Cleanup close_write_end = [&] { close(ends[1]); };

  std::vector<char*> words;
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));
  }
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Failed("start " + arguments[0], errno);
  if (pid == 0) RunChild(words.data(), log, null, ends[1], parent);
  std::move(close_write_end).Invoke();
  ChildProcess child(pid);
  // exec closes the other end; a number in it says why exec failed.
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(ends[0], &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(error)) return Failed("run " + arguments[0], error);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (!running()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<std::string> ChildProcess::TakeDeath() {
  if (!running()) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return DescribeExit(status);
}

void ChildProcess::Signal(int signal) {
  if (running()) kill(pid_, signal);
}

}  // namespace paceline

#include "client/commands/mesh/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {
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
  // Whatever a library left open.  Kernels before 5.11 refuse; no harm done.
  close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  execv(arguments[0], arguments);
  const int error = errno;
  // Nobody is left to be told if that write fails.
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

absl::StatusOr<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  const int log = open(options.log.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Failed("write " + options.log, errno);
  const absl::Cleanup close_log = [log] { close(log); };
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return Failed("open /dev/null", errno);
  const absl::Cleanup close_null = [null] { close(null); };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("make a pipe", errno);
  const absl::Cleanup close_read_end = [&] { close(ends[0]); };
  absl::Cleanup close_write_end = [&] { close(ends[1]); };

  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Failed("start " + options.arguments[0], errno);
  if (pid == 0) {
    RunChild(arguments.data(), log, null, ends[1], parent);
  }
  std::move(close_write_end).Invoke();
  ChildProcess child(pid);
  // exec closes the other end; a number in it says why exec failed.
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(ends[0], &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(error)) return Failed("run " + options.arguments[0], error);
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

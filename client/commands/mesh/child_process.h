// A program that lives no longer than this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline {

struct ChildOptions {
  std::vector<std::string> arguments;  // [0]: the program's path
  std::string log;                     // standard output and error, appended
};

// Thread-compatible; start and use on the main thread only: the kernel ties a
// child's life to the *thread* that forked it.
class ChildProcess {
 public:
  // In a process group of its own, so that a terminal's Ctrl-C reaches only
  // this process, which then ends it in order.  Killed by the kernel when this
  // process ends, however that happens.
  // Errors: FailedPrecondition  the log or the program cannot be opened or run
  static absl::StatusOr<ChildProcess> Start(const ChildOptions& options);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  // Kills and reaps it when it still runs.
  ~ChildProcess();

  pid_t pid() const { return pid_; }  // -1: not running
  bool running() const { return pid_ > 0; }

  // How it ended, once, when it has; never blocks.  "was killed by SIGKILL",
  // "ended with exit code 3".
  std::optional<std::string> TakeDeath();

  void Signal(int signal);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;
};

// Keeps a log of such a process small: beyond `most_bytes` its content moves to
// PATH.1, in the place of what was there, and PATH begins anew.  The process
// has PATH open and writes on; a line that it writes during the copy is lost.
// Returns whether it was so.
bool RotateLog(const std::string& path, uintmax_t most_bytes);

// wait(2)'s status in words.
std::string DescribeExit(int wait_status);

}  // namespace paceline

#include "core/os/daemon_process.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/os/files.h"

namespace paceline {
absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status written = WriteFileAtomically(
      path, absl::StrCat("{\"grpc\": \"", grpc, "\", \"http\": \"", http,
                         "\", \"pid\": ", getpid(), "}\n"));
  if (written.ok()) return written;
  return Unavailable("cannot write --port-file ", path, ": ",
                     written.message());
}

sigset_t BlockSignals(std::initializer_list<int> signals) {
  sigset_t blocked;
  sigemptyset(&blocked);
  if (std::getenv("NOTIFY_SOCKET") != nullptr) sigaddset(&blocked, SIGHUP);
  for (const int signal : signals) sigaddset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return blocked;
}

int AwaitSignal(const sigset_t& signals, const std::function<void()>& reload) {
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGHUP) return signal;
    reload();
  }
}

bool TakeSignal(const sigset_t& signals) {
  const timespec no_time = {};
  return sigtimedwait(&signals, nullptr, &no_time) > 0;
}

int DaemonExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kAborted:
      return kConfigurationExit;
    default:
      return 1;
  }
}

}  // namespace paceline

#include "client/commands/pause.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "absl/time/clock.h"
#include "core/base/check.h"

namespace paceline {
namespace {

// A signal handler has no argument to carry it.
std::atomic<int> g_signal_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int) {
  const int saved_errno = errno;
  const int pipe = g_signal_pipe.load();
  // The pipe is non-blocking; when it is full, the word is already there.
  if (pipe >= 0 && write(pipe, "x", 1) < 0) errno = 0;
  errno = saved_errno;
}

}  // namespace

SignalPauser::SignalPauser() {
  PACELINE_CHECK(pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) == 0, "no pipe");
  PACELINE_CHECK(g_signal_pipe.exchange(pipe_[1]) == -1, "a second pauser");
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
  sigaction(SIGHUP, nullptr, &old_hangup_);
  if (old_hangup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

SignalPauser::~SignalPauser() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGHUP, &old_hangup_, nullptr);
  g_signal_pipe.store(-1);
  close(pipe_[0]);
  close(pipe_[1]);
}

bool SignalPauser::Sleep(absl::Duration duration) {
  const absl::Time until = absl::Now() + duration;
  for (;;) {
    const absl::Duration left = until - absl::Now();
    pollfd waiting = {pipe_[0], POLLIN, 0};
    // Rounded up: a rest below a millisecond must not spin.
    const int64_t left_ms = absl::ToInt64Milliseconds(absl::Ceil(
        std::max(left, absl::ZeroDuration()), absl::Milliseconds(1)));
    const int ready = poll(&waiting, 1, static_cast<int>(left_ms));
    // The byte stays in the pipe, so that later calls see it too.
    if (ready > 0) return true;
    if (ready == 0) return false;
  }
}

}  // namespace paceline

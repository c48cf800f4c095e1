#include "client/commands/command.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "client/values/text.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/thread.h"

namespace paceline {

ExitCode ReportError(Console& console, const absl::Status& status) {
  const absl::string_view message = status.message().empty()
                                        ? absl::string_view("unknown error")
                                        : status.message();
  console.Note("paceline: ", ShortenWords(message));
  return ExitCodeFor(status);
}

ExitCode ReportSubmitError(Console& console, const absl::Status& status) {
  const ExitCode code = ReportError(console, status);
  const bool no_place =
      absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status);
  return no_place ? kExitUnplaceable : code;
}

ExitCode CodeOf(Console& console, const Outcome& outcome) {
  return outcome.ok() ? *outcome : ReportError(console, outcome.status());
}

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotPermitted;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimedOut;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

ExitCode ExitCodeFor(v1::JobState state) {
  return state == v1::JOB_STATE_FAILED    ? kExitFailed
         : state == v1::JOB_STATE_STOPPED ? kExitStopped
                                          : kExitOk;
}

bool StoppedWaiting(const absl::Status& end) {
  return absl::IsDeadlineExceeded(end) || absl::IsCancelled(end);
}

absl::Status WaitUntil(const CommandContext& context,
                       const WaitOptions& options,
                       absl::FunctionRef<absl::Status()> ask,
                       absl::FunctionRef<bool()> take) {
  const Instant begin = context.clock.Now();
  std::optional<Instant> away_since;
  for (;;) {
    const absl::Status asked = ask();
    const Instant now = context.clock.Now();
    if (asked.ok()) {
      if (away_since.has_value()) {
        context.console.Note("the coordinator answers again");
      }
      away_since.reset();
      if (take()) return absl::OkStatus();
    } else if (!absl::IsUnavailable(asked) ||
               now - away_since.value_or(now) >= options.patience) {
      return asked;
    } else if (!away_since.has_value()) {
      away_since = now;
      context.console.Note("the coordinator does not answer; trying again for ",
                           absl::FormatDuration(options.patience), " (",
                           asked.message(), ")");
    }
    absl::Duration pause = options.period;
    if (options.timeout.has_value()) {
      const absl::Duration left = *options.timeout - (now - begin);
      if (left <= absl::ZeroDuration()) return DeadlineExceeded("timed out");
      pause = std::min(pause, left);
    }
    if (context.pauser.Sleep(pause)) return Cancelled("interrupted");
  }
}

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
  for (auto& [signal, old] : caught_) {
    sigaction(signal, nullptr, &old);
    if (signal == SIGHUP && old.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

void SignalPauser::LetGo() {
  for (const auto& [signal, old] : caught_) sigaction(signal, &old, nullptr);
}

SignalPauser::~SignalPauser() {
  LetGo();
  g_signal_pipe.store(-1);
  close(pipe_[0]);
  close(pipe_[1]);
}

bool SignalPauser::Sleep(absl::Duration duration) {
  const Instant until = SteadyNow() + duration;
  for (;;) {
    const absl::Duration left = until - SteadyNow();
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

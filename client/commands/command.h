// The exit codes and the context that all commands share, and waiting that
// Ctrl-C ends and that outlasts a coordinator's restart.
#pragma once

#include <csignal>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/render/console.h"
#include "client/rpc/control_client.h"
#include "core/base/clock.h"
#include "core/cluster/job_state.h"

namespace paceline {

// Scripts rely on these codes.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,  // the job, or anything that has no code of its own
  kExitUsage = 2,   // options, job file, configuration file
  kExitNotFound = 3,
  kExitUnreachable = 4,
  kExitUnplaceable = 5,  // submit: no worker has the room or the cores
  kExitStopped = 6,
  kExitNotPermitted = 7,
  kExitTimedOut = 124,    // as timeout(1)
  kExitInterrupted = 130  // 128 + SIGINT
};

// How a command ended, or why it could not go on: its caller reports that.
using Outcome = absl::StatusOr<ExitCode>;

// For an error of any call but SubmitJob.
ExitCode ExitCodeFor(const absl::Status& status);

// For an ended job; kExitOk for one that has not ended.
ExitCode ExitCodeFor(v1::JobState state);

// Thread-compatible.
class Pauser {
 public:
  virtual ~Pauser() = default;
  // Waits for `duration`.  True, at once, when the user wants to leave; then
  // every later call says so too.
  virtual bool Sleep(absl::Duration duration) = 0;
  // From now on Ctrl-C ends the process.
  virtual void LetGo() {}
};

// Catches SIGINT, SIGTERM and (unless ignored, as under nohup) SIGHUP while it
// lives.  Only the first of each: a second Ctrl-C ends the process as if nobody
// had caught it.  At most one at a time.  Thread-compatible.
class SignalPauser final : public Pauser {
 public:
  SignalPauser();
  ~SignalPauser() override;
  SignalPauser(const SignalPauser&) = delete;

  bool Sleep(absl::Duration duration) override;
  void LetGo() override;

 private:
  struct Caught {
    int signal;
    struct sigaction old;  // what it did before
  };

  int pipe_[2];
  Caught caught_[3] = {{SIGINT, {}}, {SIGTERM, {}}, {SIGHUP, {}}};
};

// Everything outlives the command.
struct CommandContext {
  ControlClient& client;
  Console& console;
  const Clock& clock;
  Pauser& pauser;
  // How this program was called, for "what to do next": "paceline" or
  // "paceline --coordinator HOST:PORT".
  std::string program = "paceline";
};

// How long a command puts up with a coordinator that does not answer.  One that
// restarts is back within seconds; longer is a person's business.
constexpr absl::Duration kPatience = absl::Seconds(30);

struct WaitOptions {
  absl::Duration period = absl::Milliseconds(500);
  std::optional<absl::Duration> timeout = {};
  absl::Duration patience = kPatience;
};

// Calls `ask`, and after each of its answers `take`, every `period` until
// `take` says that nothing more is to come, until `timeout` is over, or until
// the user wants to leave.  Asks again while a coordinator is away, but no
// longer than `patience` from the first of an unbroken row of errors; says so
// once, and once when it answers again.
//
// Errors: DeadlineExceeded  "timed out"
//         Cancelled         "interrupted"
//         those of `ask`; Unavailable only after `patience`
absl::Status WaitUntil(const CommandContext& context,
                       const WaitOptions& options,
                       absl::FunctionRef<absl::Status()> ask,
                       absl::FunctionRef<bool()> take);

// Whether WaitUntil() ended so although all was well.
bool StoppedWaiting(const absl::Status& end);

// Writes "paceline: MESSAGE" and returns ExitCodeFor(status).
ExitCode ReportError(Console& console, const absl::Status& status);
// The same, but ResourceExhausted means: no worker has room, and
// FailedPrecondition: none has the cores for the job's threads.
ExitCode ReportSubmitError(Console& console, const absl::Status& status);
// The code of a command that has ended; writes why it could not go on.
ExitCode CodeOf(Console& console, const Outcome& outcome);

// Points of the loss curve that a document or a plot is made from.
constexpr int kCurvePoints = 1000;

}  // namespace paceline

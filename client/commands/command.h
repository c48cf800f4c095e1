// The exit codes, the context and the patience that all commands share.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/commands/pause.h"
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

// For an error of any call but SubmitJob.
ExitCode ExitCodeFor(const absl::Status& status);

// As ExitCodeFor, but ResourceExhausted means: no worker has room, and
// FailedPrecondition: none has the cores for the job's threads.
ExitCode SubmitExitCodeFor(const absl::Status& status);

// For an ended job; kExitOk for one that has not ended.
ExitCode ExitCodeFor(JobState state);

// How long a command that watches a job puts up with a coordinator that does
// not answer.

// A coordinator that restarts is back within seconds; longer is a person's
// business.
constexpr absl::Duration kPatience = absl::Seconds(30);

// Thread-compatible.
class Patience {
 public:
  struct Verdict {
    bool retry = false;
    std::string say;  // for people, said once; may be empty
  };

  // Only Unavailable is worth another try, and only until kPatience after the
  // first of an unbroken row of errors.
  Verdict OnError(const absl::Status& error, Instant now);

  // Returns the text to print after an answer: empty unless it is the first one
  // again.
  std::string OnAnswer();

 private:
  std::optional<Instant> since_;
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

// Writes "paceline: MESSAGE" and returns ExitCodeFor(status).
ExitCode ReportError(Console& console, const absl::Status& status);

// Points of the loss curve that a document or a plot is made from.
constexpr int kCurvePoints = 1000;

}  // namespace paceline

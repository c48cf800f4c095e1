// The exit codes of DESIGN 9; scripts rely on them.
#pragma once

#include "absl/status/status.h"
#include "client/views.h"

namespace paceline {

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

}  // namespace paceline

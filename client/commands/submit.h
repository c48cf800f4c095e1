// `paceline job submit`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/commands/command.h"
#include "core/model/job_spec.h"

namespace paceline {

struct SubmitOptions {
  JobSpec spec;
  std::vector<std::string> warnings;  // of the job file, for people
  std::string request_id;  // random; repeats of this call carry the same
  bool detach = false;
  bool dry_run = false;
  std::optional<absl::Duration> timeout;  // of the wait; the job goes on
};

// Submits, then waits as `job wait` does unless `detach`.  A coordinator that
// cannot be reached is tried again for a moment, under one request_id, so that
// a repeat never makes a second job.
ExitCode SubmitCommand(const CommandContext& context,
                       const SubmitOptions& options);

}  // namespace paceline

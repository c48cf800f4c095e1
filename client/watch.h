// Watching a job until it ends.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "client/command.h"

namespace paceline {

enum class WatchEnd { kEnded, kTimedOut, kInterrupted };

struct WatchResult {
  WatchEnd end = WatchEnd::kEnded;
  JobView job;  // as last seen; without a full curve
};

// Polls job `id` and shows its progress on the console's error side: one
// redrawn line on a terminal, else a line now and then.  A coordinator that
// goes away is given kPatience to come back.
//
// Errors: those of ControlClient::GetJob.
absl::StatusOr<WatchResult> WatchJob(const CommandContext& context, int64_t id,
                                     std::optional<absl::Duration> timeout);

}  // namespace paceline

// The generators: in which order workers compute, before anything is sent or
// received.  Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/schedule/schedule.h"

namespace paceline {

// One F, B, I or W.
struct Compute {
  int stage = 0;
  int micro_batch = 0;
  Op op = Op::kForward;

  friend bool operator==(const Compute&, const Compute&) = default;
};

using ComputeOrder = std::vector<Compute>;

// The order of each of `workers` workers.  request.worker_of names each of
// them, and the sizes are those that MakeSchedule allows.
// Errors: InvalidArgument  the schedule is not made for this placement or so
//                          many micro-batches.
using Generator = absl::StatusOr<std::vector<ComputeOrder>> (*)(
    const ScheduleRequest& request, int workers);

// Null when there is no such schedule.
Generator FindGenerator(absl::string_view name);

}  // namespace paceline

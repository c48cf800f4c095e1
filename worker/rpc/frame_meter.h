// Measures what the data plane itself costs: two planes of this process
// exchange frames over loopback.
#pragma once

#include "absl/status/statusor.h"
#include "worker/cancel_token.h"
#include "worker/prober.h"

namespace paceline {

// One frame at a time, there and back, in two sizes, as a pipeline's
// boundary does it; then the step gate.  CPU time of the whole process: its
// other threads must have little to do.  Blocks for about a second.
// Errors: those of the data plane; cancel.status()
absl::StatusOr<FrameCost> MeasureFrameCost(const CancelToken& cancel);

}  // namespace paceline

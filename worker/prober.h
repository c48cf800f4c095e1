// What is measured between processes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cluster/measure_order.h"
#include "worker/cancel_token.h"

namespace paceline {

// CPU seconds at each end, whichever thread spends them.
struct FrameCost {
  double seconds = 0;           // a frame, whatever its size
  double seconds_per_byte = 0;  // and for each byte of it
  double gate_seconds = 0;      // a step gate's report and verdict
};

// Called on the compute thread.  One real implementation (worker/rpc), one in
// the tests.
class Prober {
 public:
  virtual ~Prober() = default;

  // Bandwidth and latency from `self` to `target` and back.
  // Errors: Unavailable  cannot be reached; DeadlineExceeded; cancel.status();
  // InvalidArgument  it answers with a number that is none;
  // FailedPrecondition  `target` has the address of this worker
  virtual absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
      const std::string& self, const LinkTarget& target,
      const CancelToken& cancel) = 0;

  // What the data plane costs on this machine.
  virtual absl::StatusOr<FrameCost> MeasureFrames(
      const CancelToken& cancel) = 0;
};

}  // namespace paceline

// Connects a worker's stages to those of other workers: both sides of
// stage.proto.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "worker/pipeline/link.h"
#include "worker/transport/stream/plane.h"

namespace paceline {

// Thread-safe; one a process.  It tells the process's allocator to keep freed
// memory.  Owns one thread ("data-plane"), which starts sends, receives small
// frames, reconnects, and ends operations that waited too long.
class DataPlane : public PlaneOwner {
 public:
  explicit DataPlane(const PlaneOptions& options = {});

  // Opens the fence of a run: from now on the plane takes its frames, and opens
  // streams to its neighbours.  At most one run is open at a time.
  //
  // The run closes when both connections are dropped.  This ends the fence and
  // all lower ones.  Unless the run was cancelled, frames already given to
  // Send() still go out, for at most `linger`.
  //
  // Errors:
  //   Aborted             the fence is not above all that were open before
  //   FailedPrecondition  another run is open
  //   Cancelled           after Shutdown()
  absl::StatusOr<RunConnections> Open(const RunWiring& wiring);

  // Opens the step gate of the open run, on the worker that holds the first
  // stage, once the data set's size is known.  Until then remote stages get
  // FAILED_PRECONDITION and ask again, and Decide() here waits.
  //
  // Errors:
  //   FailedPrecondition  this fence is not open
  //   InvalidArgument     this worker does not hold the first stage
  //   AlreadyExists       the gate is open already; it stays as it is
  absl::Status OpenGate(const Fence& fence, const GateOptions& gate);

 private:
  class State;

  State& state();
};

}  // namespace paceline

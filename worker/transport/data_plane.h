// How a worker's stages reach those of other workers: stage.proto, both sides.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "worker/pipeline/link.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

// Thread-safe; one a process.  It tells the process's allocator to keep freed
// memory.
// Owns one thread ("data-plane"), which starts sends, takes in small frames,
// reconnects, and ends what waited too long.
class DataPlane {
 public:
  explicit DataPlane(const PlaneOptions& options = {});
  ~DataPlane();  // Shutdown()

  // For StartServer(); valid as long as this.
  grpc::Service* service();

  // Opens the fence of a run: its frames are taken from here on, and streams
  // to its neighbours are opened.  At most one run is open at a time.
  //
  // Closing (dropping both connections) ends the fence and all below it.
  // Unless the run was cancelled, frames already handed to Send() still go
  // out, for at most `linger`.
  //
  // Errors:
  //   InvalidArgument     a wiring that does not fit together
  //   Aborted             the fence is not above all that were open before
  //   FailedPrecondition  another run is open
  //   Cancelled           after Shutdown()
  absl::StatusOr<RunConnections> Open(const RunWiring& wiring);

  // Opens the step gate of the open run, on the worker that holds the first
  // stage, once the data set's size is known.  Until then remote stages are
  // answered FAILED_PRECONDITION and ask again, and Decide() here waits.
  //
  // Errors:
  //   FailedPrecondition  this fence is not open
  //   InvalidArgument     this worker does not hold the first stage
  //   AlreadyExists       the gate is open already; it stays as it is
  absl::Status OpenGate(const Fence& fence, const GateOptions& gate);

  PlaneStats stats() const;

  // Ends all streams and all runs with Cancelled.  To be called before the
  // server is stopped, which waits for its streams.  Safe to repeat.
  void Shutdown();

  // Breaks every incoming stream with UNAVAILABLE, as a lost connection does.
  void BreakStreamsForTest();

 private:
  class State;
  class Service;

  // Shared with links, streams and calls, which may end later than this.
  const std::shared_ptr<State> state_;
  const std::unique_ptr<Service> service_;
};

}  // namespace paceline

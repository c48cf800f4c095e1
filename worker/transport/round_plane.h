// Connects the members of a round group over gRPC: both sides of round.proto.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/round/view.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "worker/rounds/round_transport.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

// Thread-safe; one a process.  Owns one thread ("round-plane"), which starts
// sends, reconnects, and ends operations that waited too long.
class RoundPlane {
 public:
  explicit RoundPlane(const PlaneOptions& options = {});
  ~RoundPlane();  // Shutdown()

  // For StartServer(); valid as long as this.
  grpc::Service* service();

  // Opens the fence of a round group; at most one is open at a time.  It has no
  // peers before SetPeers().  Closing or dropping the transport ends the fence.
  // `sink` outlives the fence.
  //
  // Errors:
  //   Aborted             the fence is not above all that were open before
  //   FailedPrecondition  another group is open
  //   Cancelled           after Shutdown()
  absl::StatusOr<std::unique_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink);

  PlaneStats stats() const;

  // Ends all streams; the open transport no longer sends or delivers.  Call it
  // before stopping the server, which waits for its streams.  Safe to repeat.
  void Shutdown();

  // Breaks every incoming stream with UNAVAILABLE, as a lost connection does.
  void BreakStreamsForTest();

 private:
  class State;
  class Service;

  // Shared with transports, streams and calls, which may end later than this.
  const std::shared_ptr<State> state_;
  const std::unique_ptr<Service> service_;
};

}  // namespace paceline

// Connects the members of a round group over gRPC: both sides of round.proto.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/round/view.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/transport/stream/plane.h"

namespace paceline {

// Thread-safe; one a process.  Owns one thread ("round-plane"), which starts
// sends, reconnects, and ends operations that waited too long.
class RoundPlane : public PlaneOwner {
 public:
  explicit RoundPlane(const PlaneOptions& options = {});

  // Opens the fence of a round group; at most one is open at a time.  It has no
  // peers before SetPeers().  Closing or dropping the transport, which the
  // plane shares until then, ends the fence. `sink` outlives the fence.
  //
  // Errors:
  //   Aborted             the fence is not above all that were open before
  //   FailedPrecondition  another group is open
  //   Cancelled           after Shutdown()
  absl::StatusOr<std::shared_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink);

 private:
  class State;
};

}  // namespace paceline

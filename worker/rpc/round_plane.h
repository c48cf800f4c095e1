// How the members of a round group reach one another over gRPC: round.proto,
// both sides.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/round/view.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "worker/rounds/round_transport.h"

namespace paceline {

class RoundPlaneState;

// Since the process started.
struct RoundPlaneStats {
  int64_t frames_sent = 0;  // messages and pieces
  int64_t bytes_sent = 0;   // of payload
  int64_t frames_received = 0;
  int64_t bytes_received = 0;
  int64_t frames_dropped_old = 0;        // of an older attempt, or forgotten
  int64_t frames_dropped_duplicate = 0;  // sent again after a break
  int64_t frames_refused = 0;            // no member of ours would send them
  int64_t checksum_errors = 0;           // the sender starts over
  int64_t reconnects = 0;                // streams opened again after a break
  int64_t bytes_borrowed = 0;            // of bytes_received: borrower.h
};

struct RoundPlaneOptions {
  // Of this process: a frame for another one is refused at once, even when no
  // run is open.  Not set: the run's.
  Incarnation incarnation;
  // How long a stream of a newer attempt, or of one who is no peer yet, waits
  // for this worker's own order.
  absl::Duration hold = absl::Seconds(30);
  // How long a stream may take to say hello to a run that is open or to come.
  absl::Duration hello = absl::Seconds(10);
};

// Thread-safe; one a process.  Owns one thread ("round-plane"), which starts
// sends, reconnects, and ends what waited too long.
class RoundPlane {
 public:
  explicit RoundPlane(const RoundPlaneOptions& options = {});
  ~RoundPlane();  // Shutdown()

  // For StartServer(); valid as long as this.
  grpc::Service* service();

  // Opens the fence of a round group; at most one is open at a time.  Nobody
  // is a peer before SetPeers().  Closing or dropping the transport ends the
  // fence.  `sink` outlives that.
  //
  // Errors:
  //   Aborted             the fence is not above all that were open before
  //   FailedPrecondition  another group is open
  //   Cancelled           after Shutdown()
  absl::StatusOr<std::unique_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink);

  RoundPlaneStats stats() const;

  // Ends all streams; the open transport sends and gives nothing any more.  To
  // be called before the server is stopped, which waits for its streams.  Safe
  // to repeat.
  void Shutdown();

  // Breaks every incoming stream with UNAVAILABLE, as a lost connection does.
  void BreakStreamsForTest();

 private:
  class Service;

  // Shared with transports, streams and calls, which may end later than this.
  const std::shared_ptr<RoundPlaneState> state_;
  const std::unique_ptr<Service> service_;
};

}  // namespace paceline

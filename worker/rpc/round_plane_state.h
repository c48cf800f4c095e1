// What the round plane is between runs: the fence, the streams that came in,
// and the group that is open.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/transfer/round_frame.h"
#include "worker/rpc/inbound_stream.h"
#include "worker/rpc/plane_shared.h"
#include "worker/rpc/round_plane.h"
#include "worker/rpc/round_run.h"

namespace paceline {

// Thread-safe.  Shared as plane_shared.h.
class RoundPlaneState final
    : public FrameSink,
      public std::enable_shared_from_this<RoundPlaneState> {
 public:
  explicit RoundPlaneState(const RoundPlaneOptions& options);

  // As RoundPlane.
  absl::StatusOr<std::unique_ptr<RoundTransport>> Open(const Fence& fence,
                                                       const MemberId& self,
                                                       RoundSink* sink);
  RoundPlaneStats stats() const;
  void Shutdown();

  // A new stream, to be returned to gRPC.
  // peer: as gRPC calls the other side.
  InboundStream* Accept(const std::string& peer);
  void EndStreams(const absl::Status& why);

  // FrameSink.
  absl::StatusOr<int64_t> FrameBytes(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  absl::StatusOr<Reading> OnMessage(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) override;
  void OnBurstEnd() override {}
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) override;

 private:
  class Transport;

  absl::StatusOr<Reading> Take(const std::shared_ptr<InboundStream>& stream,
                               absl::Span<const ByteSpan> message);
  // The run that the frame is for; null: it is to be held.
  // Errors: NotFound  for another process; Aborted  of an older attempt or plan
  absl::StatusOr<std::shared_ptr<RoundRun>> Decide(
      const RoundFrameHeader& header);
  void Close(const std::shared_ptr<RoundRun>& run);

  const RoundPlaneOptions options_;
  const std::shared_ptr<PlaneShared> shared_;

  absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Fence> closed_ ABSL_GUARDED_BY(mutex_);  // the highest
  std::shared_ptr<RoundRun> run_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<InboundStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

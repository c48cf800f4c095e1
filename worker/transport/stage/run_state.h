// RunState is one run in its worker's data plane: its incoming and outgoing
// frames, and its step gate.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/transfer/credit.h"
#include "core/transfer/frame.h"
#include "core/transfer/frame_codec.h"
#include "worker/pipeline/link.h"
#include "worker/transport/stage/run_gate.h"
#include "worker/transport/stage/stage_outbound.h"
#include "worker/transport/stream/frame_buffer.h"
#include "worker/transport/stream/inbound_stream.h"
#include "worker/transport/stream/plane.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Thread-safe.  Shared by the link and, while it is open, the plane: streams
// may be inside when the run is dropped.
class RunState final : public Link,
                       public PlaneRun,
                       public std::enable_shared_from_this<RunState> {
 public:
  RunState(RunWiring wiring, std::shared_ptr<PlaneShared> shared);

  RunGate& gate() { return gate_; }

  // Makes boundaries and streams; once, before any other thread has this
  // object.
  void Wire();
  // Connects to the neighbours; once, after Wire().
  void Connect() {
    for (const auto& [key, stream] : outbound_) stream->Start();
  }

  // Link.
  absl::Status Send(Frame frame) override;
  absl::StatusOr<Frame> Receive(const FrameKey& key) override;
  absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                       int64_t ordinal) override {
    return mailbox_.AwaitBatch(boundary, ordinal);
  }
  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary, int64_t ordinal,
                                           int frames,
                                           int micro_batch) override;
  void Cancel(absl::Status why) override { End(why, /*linger=*/false); }
  std::vector<BrokenLink> BrokenLinks() const override;
  std::map<WorkerId, int64_t> SentBytes() const override;

  // Called when link and gate are dropped: as Cancel(), but sent frames still
  // go out unless Cancel() came before.  Returns the streams that send them.
  std::vector<std::weak_ptr<StageOutbound>> Close();

  // PlaneRun.  Receive() sees a frame after OnBurstEnd() at the latest.
  absl::StatusOr<InboundStream::Reading> OnFrame(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message, FrameLayout layout) override;
  void OnBurstEnd() override;
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) override;

  // Returns whether a frame with this header may come now, on this stream.
  absl::StatusOr<SequenceVerdict> CheckIncoming(
      const std::shared_ptr<InboundStream>& stream, const FrameHeader& header);
  // Returns whether a frame waits to be sent, or is being sent.
  bool IsSending() const;

 private:
  // An incoming boundary, and the number of the replica that sends over it from
  // another worker.
  using Entrance = std::pair<int32_t, int32_t>;
  struct Inbound {
    FrameKind kind;
    BoundaryExpectation expected;
    CreditLedger ledger;
    std::shared_ptr<InboundStream> stream;  // the last one with a hello
    std::vector<Frame> staged;  // received, but not in the mailbox yet
    int64_t staged_bytes = 0;
  };

  bool IsMine(int stage) const { return OwnReplica(stage) >= 0; }
  // Returns -1 when this worker does not hold the stage.
  int OwnReplica(int stage) const {
    return wiring_.stages[stage].IndexOf(wiring_.self);
  }
  // Returns whether the replicas of the stage send frames to one another.
  bool ReplicasTrain(int stage) const {
    return wiring_.stages[stage].replica_frame_bytes > 0;
  }
  // The boundary must exist for this kind.
  FrameEnds Ends(FrameKind kind, int32_t boundary) const;
  BoundaryExpectation Expectation(int32_t boundary) const;
  void AddIncoming(FrameKind kind, int32_t boundary);
  bool Sends(FrameKind kind, int32_t boundary) const;
  // Returns the stream to the receiver of the frame; null when that is this
  // worker.
  StageOutbound* FindOutbound(const FrameKey& key) const;
  // Errors: InvalidArgument: the routes name another sender or receiver for the
  // frame.
  absl::Status CheckRoute(const FrameHeader& header) const;
  absl::Status OnHello(const std::shared_ptr<InboundStream>& stream,
                       const Entrance& entrance);
  void OnIntact(const std::shared_ptr<InboundStream>& stream, Frame frame,
                int64_t bytes);
  void FlushLocked(Inbound* inbound) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnLink();
  void End(const absl::Status& why, bool linger);

  // Constant after Wire(), but for the gate.
  const RunWiring wiring_;
  const std::shared_ptr<PlaneShared> shared_;
  RunGate gate_;
  std::map<std::pair<WorkerId, FrameKind>, std::shared_ptr<StageOutbound>>
      outbound_;

  TensorPool pool_;
  Mailbox mailbox_;

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Entrance, Inbound> inbound_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

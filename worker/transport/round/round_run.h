// RoundRun is the open round group: its peers, and the frames to and from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/cluster/run_order.h"
#include "core/round/view.h"
#include "core/transfer/frame_codec.h"
#include "worker/rounds/parts/round_transport.h"
#include "worker/transport/round/round_inbox.h"
#include "worker/transport/round/round_outbound.h"
#include "worker/transport/stream/inbound_stream.h"
#include "worker/transport/stream/plane.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Errors: NotFound  another process than `self` is meant
absl::Status CheckIsMeant(const MemberId& meant, const MemberId& self);

// Thread-safe.  The sink is called on gRPC's threads or the plane's, never on a
// caller's, and without a lock.
class RoundRun final : public PlaneRun,
                       public std::enable_shared_from_this<RoundRun> {
 public:
  // `sink` outlives Close().
  RoundRun(const Fence& fence, const MemberId& self, RoundSink& sink,
           std::shared_ptr<PlaneShared> shared);

  // As RoundTransport.
  void SetPeers(const std::vector<GroupWorker>& peers);
  void SendAhead(const MemberId& to, const PayloadKey& key,
                 std::shared_ptr<RoundPayload> payload);
  void Send(const MemberId& to, const RoundMessage& message,
            const PayloadKey& key, std::shared_ptr<RoundPayload> payload);
  void Forget(int64_t step);
  std::map<WorkerId, int64_t> SentBytes() const;
  // Do not call it on a thread that is inside the sink.
  void Close();

  // PlaneRun.
  // Errors: as RoundInbox::Take
  //         Aborted   another stream has replaced this one
  //         NotFound  for another process
  absl::StatusOr<FrameSink::Reading> OnFrame(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> slices, FrameLayout layout) override;
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) override;

 private:
  // Frames of one sender are taken one after the other over all its streams, so
  // that a chunk has one writer.
  struct Sender {
    explicit Sender(RoundInbox i) : inbox(std::move(i)) {}

    RoundInbox inbox;  // used by the thread that set busy; else under the lock
    bool busy = false;
    std::shared_ptr<InboundStream> stream;   // the current one; null: none
    std::shared_ptr<InboundStream> waiting;  // waits for the end of busy
    int64_t forget_before = 0;
  };
  struct Taking {
    FrameSink::Reading reading = FrameSink::Reading::kHold;
    std::shared_ptr<Sender> sender;  // now busy; null: hold
    bool first = false;              // the first frame of this stream
  };

  absl::StatusOr<Taking> BeginTake(const std::shared_ptr<InboundStream>& stream,
                                   const MemberId& from);
  void EndTake(const std::shared_ptr<InboundStream>& stream, Sender& sender);
  std::shared_ptr<RoundOutbound> Find(const MemberId& to);
  void OnLink(const MemberId& peer, bool up, bool refused);
  // False when closed; otherwise EndSinkCall() must follow.
  bool BeginSinkCall();
  void EndSinkCall();
  // Resumes the stream on the plane's thread.
  void ResumeSoon(std::shared_ptr<InboundStream> stream);

  // Constant after construction.
  const Fence fence_;
  const MemberId self_;
  RoundSink& sink_;
  const std::shared_ptr<PlaneShared> shared_;

  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int sink_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<MemberId, std::shared_ptr<RoundOutbound>> peers_
      ABSL_GUARDED_BY(mutex_);
  // Bytes sent to each worker; their streams add to these.
  std::map<WorkerId, std::shared_ptr<std::atomic<int64_t>>> sent_
      ABSL_GUARDED_BY(mutex_);
  // Shared with the thread that takes a frame, which may outlive the peer.
  std::map<MemberId, std::shared_ptr<Sender>> senders_ ABSL_GUARDED_BY(mutex_);
  // By stream, the member that has sent on it.  The shared pointer keeps the
  // stream, so that no other stream gets its address.
  std::map<std::shared_ptr<InboundStream>, MemberId> streams_
      ABSL_GUARDED_BY(mutex_);
  // Streams of senders that are no peers yet.
  std::set<std::shared_ptr<InboundStream>> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

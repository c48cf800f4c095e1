// StageOutbound sends the frames of all boundaries of one direction to one
// neighbour.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/transfer/credit.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/pipeline/link.h"
#include "worker/transport/stream/outbound_stream.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

struct OutboundOptions {
  Fence fence;
  FrameKind kind = FrameKind::kActivation;
  WorkerId neighbour;
  std::string address;
  int32_t route = 0;              // number of the sending replica of its stage
  std::map<int32_t, int> bounds;  // by boundary
  Codec codec = Codec::kRaw;
  // Called at most once, on any thread: the neighbour refuses our frames for
  // good, or could never be reached since the run's start.
  std::function<void(absl::Status)> on_refused;
  // Called on any thread when the result of broken() has changed.
  std::function<void()> on_link = [] {};
};

// Thread-safe.  The thread that calls Send() begins the write of the first of a
// few small frames; the plane's thread or gRPC's begin all others.
class StageOutbound final : public OutboundStream {
 public:
  StageOutbound(OutboundOptions options, std::shared_ptr<PlaneShared> shared);

  // As Link::Send, for a boundary of this stream.
  absl::Status Send(Frame frame);
  // As Link::AwaitRoom.
  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary, int frames);

  // Returns whether an unsent frame may be sent now, or a frame is being sent.
  bool IsSending() const;

  // Returns nothing when the neighbour is in reach, was not called yet, or the
  // run is over.
  std::optional<BrokenLink> broken() const;

  // Returns the neighbour and the bytes of payload sent to it so far.
  std::pair<WorkerId, int64_t> sent() const {
    return {options_.neighbour, sent_bytes_};
  }

  // Ends every present and future wait with `why` of the first call.  linger:
  // frames given to Send() still go out, for a while.
  void Close(const absl::Status& why, bool linger);

 private:
  // OutboundStream.
  void OnConnectLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Next> TakeNextLocked() override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRestLocked() const override ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void OnMessage(grpc::ByteBuffer& message) override;  // a credit
  Ended OnEndedLocked(const absl::Status& status, bool answered) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Returns the tensor of `frame` whose codec error is measured, if any.
  std::optional<Tensor> SampleOf(const Frame& frame, int64_t sequence) const;
  void MeasureError(const Tensor& sample, const Tensor& wire);
  Next TakeChunkLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FrameReadyLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool EverythingSentLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Refuse(const absl::Status& why, absl::string_view what) const;
  // The call has ended.  Returns whether the result of broken() has changed.
  bool NoteBreakLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the neighbour was never reached, for longer than `reach`.
  bool IsOutOfReachLocked(const absl::Status& status, bool answered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const OutboundOptions options_;

  std::atomic<int64_t> sent_bytes_{0};

  std::map<int32_t, ResendWindow> windows_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // not OK: closed
  // Boundaries that still need a hello in this call.
  std::vector<int32_t> hellos_ ABSL_GUARDED_BY(mutex_);
  // The rest of the frame that is being sent.
  std::deque<grpc::ByteBuffer> chunks_ ABSL_GUARDED_BY(mutex_);
  int32_t last_boundary_ ABSL_GUARDED_BY(mutex_) = -1;  // boundaries take turns
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool break_logged_ ABSL_GUARDED_BY(mutex_) = false;
  // When the call ended; not set once the neighbour answers the next one.
  std::optional<Instant> broken_since_ ABSL_GUARDED_BY(mutex_);
  bool dial_refused_ ABSL_GUARDED_BY(mutex_) = false;
  // When the neighbour was first out of reach; not set once it answered.
  std::optional<Instant> out_of_reach_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

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
#include "worker/transport/outbound_stream.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

struct OutboundOptions {
  Fence fence;
  FrameKind kind = FrameKind::kActivation;
  WorkerId neighbour;
  std::string address;
  int32_t route = 0;              // which replica of its stage sends
  std::map<int32_t, int> bounds;  // by boundary
  Codec codec = Codec::kRaw;
  // Called at most once, on any thread: the neighbour said that what we send
  // can never be right, or it could not be reached from the run's start on.
  std::function<void(absl::Status)> on_refused;
  // Called on any thread: broken() is another answer now.
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

  // Whether a frame may be sent that is not, or is being sent.
  bool IsSending() const;

  // Nothing: the neighbour is in reach, was not asked yet, or the run is over.
  std::optional<BrokenLink> broken() const;

  // To whom, and so many bytes of payload so far.
  std::pair<WorkerId, int64_t> sent() const {
    return {options_.neighbour, sent_bytes_};
  }

  // Ends every present and future wait with `why`; the first wins.  linger:
  // what was handed to Send() still goes out, for a while.
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

  // The tensor of `frame` to compare with what the codec makes of it.
  std::optional<Tensor> SampleOf(const Frame& frame, int64_t sequence) const;
  void MeasureError(const Tensor& sample, const Tensor& wire);
  Next TakePieceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FrameReadyLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool EverythingSentLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Refuse(const absl::Status& why, absl::string_view what) const;
  // The call has ended.  Whether broken() is another answer now.
  bool NoteBreakLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the neighbour was never reached, and has not been for `reach`.
  bool IsOutOfReachLocked(const absl::Status& status, bool answered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const OutboundOptions options_;

  std::atomic<int64_t> sent_bytes_{0};

  std::map<int32_t, ResendWindow> windows_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // not OK: not kOpen
  // Boundaries that this call has not said hello for.
  std::vector<int32_t> hellos_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::ByteBuffer> pieces_ ABSL_GUARDED_BY(mutex_);  // of a frame
  int32_t last_boundary_ ABSL_GUARDED_BY(mutex_) = -1;  // they take turns
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool break_logged_ ABSL_GUARDED_BY(mutex_) = false;
  // Since the call ended and the neighbour has not answered the next one.
  std::optional<Instant> broken_since_ ABSL_GUARDED_BY(mutex_);
  bool dial_refused_ ABSL_GUARDED_BY(mutex_) = false;
  // When the neighbour was first out of reach; not set once it answered.
  std::optional<Instant> out_of_reach_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

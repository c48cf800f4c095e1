// The sending end of Stage.Exchange: all boundaries of one direction to one
// neighbour.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/transfer/credit.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "worker/link.h"
#include "worker/rpc/outbound_call.h"
#include "worker/rpc/plane_shared.h"

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
};

// Thread-safe.  Keeps one call open, and opens it again with backoff until
// Close().  Writes are started on the plane's thread or on gRPC's; only the
// first of a few small frames on the one that calls Send().
class OutboundStream final
    : public CallOwner,
      public std::enable_shared_from_this<OutboundStream> {
 public:
  OutboundStream(OutboundOptions options, std::shared_ptr<PlaneShared> shared);
  ~OutboundStream() override;

  void Start();

  // As Link::Send, for a boundary of this stream.
  absl::Status Send(Frame frame);
  // As Link::AwaitRoom.
  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary, int frames);

  // Ends every present and future wait with `why`; the first wins.  linger:
  // what was handed to Send() still goes out, for a while.
  void Close(const absl::Status& why, bool linger);

 private:
  enum class Action { kNothing, kWrite, kHalfClose };
  struct Next {
    Action action = Action::kNothing;
    grpc::ByteBuffer bytes = {};
    grpc::WriteOptions options = {};
  };

  // What of `frame` is to be compared with what the codec makes of it.
  std::optional<Tensor> SampleOf(const Frame& frame, int64_t sequence) const;
  void MeasureError(const Tensor& sample, const Tensor& wire);
  void Connect();
  void Pump();
  Next DecideLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Next TakePieceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FrameReadyLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool EverythingSentLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool NothingKeptLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void PostPumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // CallOwner.
  void OnRead(grpc::ByteBuffer& message) override;  // a credit
  void OnWritten(bool ok) override;
  void OnReadEnded() override;
  void OnCallDone(const grpc::Status& status) override;
  // True when the neighbour was never reached, and has not been for `reach`.
  bool DecideOutOfReachLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether, after the call ended so, another one is to be made.
  bool DecideRetryLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp();

  // Constant after construction.
  const OutboundOptions options_;
  const std::shared_ptr<PlaneShared> shared_;
  const std::shared_ptr<grpc::Channel> channel_;

  absl::Mutex mutex_;
  std::map<int32_t, ResendWindow> windows_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  // Ended, but what is kept is still to be sent.
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;

  OutboundCall* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool pump_posted_ ABSL_GUARDED_BY(mutex_) = false;
  // Boundaries that this call has not said hello for.
  std::vector<int32_t> hellos_ ABSL_GUARDED_BY(mutex_);
  std::deque<grpc::ByteBuffer> pieces_ ABSL_GUARDED_BY(mutex_);  // of a frame
  int32_t last_boundary_ ABSL_GUARDED_BY(mutex_) = -1;  // they take turns
  WriteTurn turn_ ABSL_GUARDED_BY(mutex_);
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool established_ ABSL_GUARDED_BY(mutex_) = false;  // a credit came

  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_);
  // When it was first out of reach; the future once it answered.
  absl::Time out_of_reach_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool break_logged_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline

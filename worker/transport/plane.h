// Plane is the common part of the data plane and the round plane: it takes
// streams, keeps the fence of the run that is open, and ends all of them.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/transfer/frame.h"
#include "worker/transport/inbound_stream.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

// Thread-safe.  Shared by the front, by runs, streams and calls, which may end
// later than the front.
class Plane : public FrameSink, public std::enable_shared_from_this<Plane> {
 public:
  PlaneStats stats() const { return shared_->counters.Read(); }
  // Where streams that are no exchange of frames take their places.
  StreamLimit& strangers() { return shared_->strangers; }

  // A new stream, to be returned to gRPC.
  // peer: as gRPC calls the other side.
  InboundStream* Accept(const std::string& peer);
  void EndStreams(const absl::Status& why);
  // Ends the open run, all streams and the thread.  Safe to repeat.
  void Shutdown();

  // FrameSink.
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) final;

 protected:
  // Messages up to small_bytes are taken on the plane's thread.
  Plane(const PlaneOptions& options, const char* thread_name,
        size_t small_bytes);

  // Errors:
  //   Cancelled           after Shutdown()
  //   FailedPrecondition  another fence is open
  //   Aborted             the fence is not above all that were open before
  absl::Status OpenFenceLocked(const Fence& fence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The open fence is over, if one is open.
  void CloseFenceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::set<std::shared_ptr<InboundStream>> streams();

  // Shutdown() has begun: ends the run.
  virtual void EndRun(const absl::Status& why) = 0;
  // A stream is no more.
  virtual void OnStreamGone(const std::shared_ptr<InboundStream>& stream) = 0;

  const std::shared_ptr<PlaneShared> shared_;

  absl::Mutex mutex_;
  FenceState fence_ ABSL_GUARDED_BY(mutex_);

 private:
  const size_t small_bytes_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<InboundStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

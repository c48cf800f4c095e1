// Plane is the common part of the data plane and the round plane: it accepts
// streams, keeps the fence of the open run, and ends all streams.
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

// Thread-safe.  Shared by the plane's owner and by runs, streams and calls,
// which may end later than the owner.
class Plane : public FrameSink, public std::enable_shared_from_this<Plane> {
 public:
  PlaneStats stats() const { return shared_->counters.Read(); }
  // Places for streams other than exchanges of frames.
  StreamLimit& strangers() { return shared_->strangers; }

  // Returns a new stream for gRPC.
  // peer: gRPC's name of the other side.
  InboundStream* Accept(const std::string& peer);
  void EndStreams(const absl::Status& why);
  // Ends the open run, all streams and the thread.  Safe to repeat.
  void Shutdown();

  // FrameSink.
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream) final;

 protected:
  // The plane's thread takes messages up to small_bytes.
  Plane(const PlaneOptions& options, const char* thread_name,
        size_t small_bytes);

  // Errors:
  //   Cancelled           after Shutdown()
  //   FailedPrecondition  another fence is open
  //   Aborted             the fence is not above all that were open before
  absl::Status OpenFenceLocked(const Fence& fence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the open fence, if there is one.
  void CloseFenceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::set<std::shared_ptr<InboundStream>> streams();

  // Called by Shutdown(): ends the run.
  virtual void EndRun(const absl::Status& why) = 0;
  // The stream has ended.
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

// Plane is the mechanism of the data plane and the round plane: it accepts
// streams, gives their frames to the open run that the fence names, counts what
// it refuses or drops, and ends all streams.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/transfer/frame_codec.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "worker/transport/stream/inbound_stream.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// The run that is open on a plane.  Thread-safe.
class PlaneRun {
 public:
  virtual ~PlaneRun() = default;

  // Takes a frame of this run, as Plane::OnMessage.
  virtual absl::StatusOr<InboundStream::Reading> OnFrame(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message, FrameLayout layout) = 0;
  // As Plane.
  virtual void OnBurstEnd() {}
  virtual void OnStreamDone(const std::shared_ptr<InboundStream>& stream) = 0;
};

// Thread-safe.  Shared by the plane's owner and by runs, streams and calls,
// which may end later than the owner.
class Plane : public std::enable_shared_from_this<Plane> {
 public:
  using Reading = InboundStream::Reading;

  virtual ~Plane() = default;

  PlaneStats stats() const { return shared_->counters.Read(); }
  // Places for streams other than exchanges of frames.
  StreamLimit& strangers() { return shared_->strangers; }

  // Returns a new stream for gRPC.
  // peer: gRPC's name of the other side.
  InboundStream* Accept(const std::string& peer);
  void EndStreams(const absl::Status& why) {
    for (const auto& stream : streams()) stream->End(why);
  }
  // Ends the fence of the run, if it is the open one.
  void CloseRun(const PlaneRun& run);
  // The gRPC service that brings the streams.
  virtual grpc::Service& service() = 0;
  // Ends the open run, all streams and the thread.  Safe to repeat.
  void Shutdown();

  // Takes one message that a stream has read.  An error ends the stream.
  absl::StatusOr<Reading> OnMessage(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message);
  // Reads a message of kMaxChunkBytes, which may be the first of several, and
  // returns the bytes of the whole frame.  An error ends the stream.
  absl::StatusOr<int64_t> FrameBytes(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message);
  // No further message is here yet: the run may hand on together all that it
  // took since the last call.
  void OnBurstEnd();
  // The stream has ended.
  void OnStreamDone(const std::shared_ptr<InboundStream>& stream);

 protected:
  struct Traits {
    const char* thread_name;
    size_t small_bytes;  // the plane's thread takes messages up to this size
    bool ends_older;     // frames of an older fence end their stream
  };
  Plane(const PlaneOptions& options, const Traits& traits);

  // Opens the fence of a run, which gets its frames from now on.
  // Errors:
  //   Cancelled           after Shutdown()
  //   FailedPrecondition  another fence is open
  //   Aborted             the fence is not above all that were open before
  absl::Status OpenRun(const Fence& fence, std::shared_ptr<PlaneRun> run);
  std::shared_ptr<PlaneRun> open_run() {
    absl::MutexLock lock(&mutex_);
    return run_;
  }
  // Decides about a message of `fence`; returns the run that takes it.
  std::pair<FenceVerdict, std::shared_ptr<PlaneRun>> Decide(const Fence& fence);
  std::set<std::shared_ptr<InboundStream>> streams() {
    absl::MutexLock lock(&mutex_);
    return streams_;
  }

  // Reads the header of a frame that this process may take.
  virtual absl::StatusOr<FrameLayout> Parse(
      absl::Span<const ByteSpan> message) = 0;
  // As FrameBytes().  The default: a frame is one message.
  virtual absl::StatusOr<int64_t> FrameBytesOf(
      const std::shared_ptr<InboundStream>& /*stream*/,
      absl::Span<const ByteSpan> /*message*/) {
    return kMaxChunkBytes;
  }
  // Called by Shutdown(): ends the run, if one is open.
  virtual void EndRun(std::shared_ptr<PlaneRun> run,
                      const absl::Status& why) = 0;

  const std::shared_ptr<PlaneShared> shared_;

 private:
  absl::StatusOr<Reading> Take(const std::shared_ptr<InboundStream>& stream,
                               absl::Span<const ByteSpan> message);
  // Counts the frame that a stream ends with.
  void Count(const absl::Status& error);

  const Traits traits_;

  absl::Mutex mutex_;
  FenceState fence_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<PlaneRun> run_ ABSL_GUARDED_BY(mutex_);  // null: none
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<InboundStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

// The owner of a plane, which is its own gRPC service.  Thread-safe.
class PlaneOwner {
 public:
  ~PlaneOwner() { Shutdown(); }

  // For StartServer(); valid as long as this.
  grpc::Service* service() { return &plane_->service(); }

  PlaneStats stats() const { return plane_->stats(); }

  // Ends all streams and the open run.  Call it before stopping the server,
  // which waits for its streams.  Safe to repeat.
  void Shutdown() { plane_->Shutdown(); }

  // Breaks every incoming stream with UNAVAILABLE, as a lost connection does.
  void BreakStreamsForTest() {
    plane_->EndStreams(Unavailable("broken by a test"));
  }

 protected:
  explicit PlaneOwner(std::shared_ptr<Plane> plane)
      : plane_(std::move(plane)) {}

  // Shared with runs, streams and calls, which may end later than this.
  const std::shared_ptr<Plane> plane_;
};

}  // namespace paceline

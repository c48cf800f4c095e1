// InboundStream is the receiving end of an Exchange, of stages or of rounds.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/rpc/stream_limit.h"
#include "core/transfer/credit.h"
#include "core/transfer/frame_codec.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "worker/pipeline/link.h"
#include "worker/transport/frame_buffer.h"
#include "worker/transport/plane_shared.h"

namespace paceline {

class InboundStream;

// Takes what a stream has read.  Thread-safe.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  enum class Reading { kGoOn, kHold };

  // Takes one message.  kHold: it was not taken, and is to be offered again
  // after InboundStream::Resume().  An error ends the stream.
  virtual absl::StatusOr<Reading> OnMessage(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) = 0;

  // Looks at a message of kMaxPieceBytes, which may be the first of several,
  // and gives the bytes of all together.  An error ends the stream.
  virtual absl::StatusOr<int64_t> FrameBytes(
      const std::shared_ptr<InboundStream>& stream,
      absl::Span<const ByteSpan> message) = 0;

  // No further message is here yet: what was taken since the last call may be
  // handed on, together.
  virtual void OnBurstEnd() = 0;

  // The stream is no more.
  virtual void OnStreamDone(const std::shared_ptr<InboundStream>& stream) = 0;
};

// Thread-safe.  Lives until gRPC is done with it.  Its sender is a stranger
// until the sink has answered: it is read one small message at a time, and
// ended when no answer comes in time (PlaneShared's options).  Large messages
// are worked on by gRPC's thread that read them, one ahead of the next; small
// ones on the plane's thread, as many at a time as have come, so that a frame
// costs no thread switch of its own.  What is small is up to the owner.
class InboundStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<InboundStream> {
 public:
  // A larger message is worth a thread of its own.
  static constexpr size_t kSmallBytes = 64 << 10;
  // A stranger has nothing larger to say than a message or a chunk of a round.
  static constexpr size_t kMostOfAStranger = 512 << 10;

  // `sink` lives as long as the service; `shared` as in plane_shared.h.
  // near: the sender is on this machine.
  InboundStream(FrameSink& sink, std::shared_ptr<PlaneShared> shared,
                size_t small_bytes = kSmallBytes, bool near = false);

  bool near() const { return near_; }

  // peer: as gRPC calls the other side.
  void Start(const std::string& peer);
  // The sink may now take what it wanted to be held.
  void Resume();
  // Tells the sender.  Only the last of several for one boundary counts.
  void SendCredit(FrameKind kind, int32_t boundary, const Credit& credit);
  // Sends these bytes.  Only the last of several counts.
  void SendReceipt(std::string bytes);
  // Ends the stream; the first wins.
  void End(const absl::Status& status);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // How far the sender is known:
  //
  //   state      event                            next
  //   kStranger  the sink answers                 kKnown
  //   kStranger, kKnown  an error, or the end     kEnding
  enum class Sender : uint8_t { kStranger, kKnown, kEnding };

  // How messages are worked on:
  //
  //   state      event                            next
  //   kIdle      a message comes                  kWorking
  //   kWorking   there is no message any more     kIdle
  //   kWorking   the sink holds the stream        kHolding
  //   kWorking   Resume()                         kResumed: no hold counts
  //   kResumed   the next burst begins            kWorking
  //   kHolding   Resume()                         kWorking
  //   kHolding   the thread that worked leaves    kHeld
  //   kHeld      Resume()                         kWorking, on that thread
  enum class Work : uint8_t { kIdle, kWorking, kResumed, kHolding, kHeld };

  enum class Reads : uint8_t { kIdle, kRunning, kEnded };

  struct Told {
    FrameKind kind = FrameKind::kActivation;
    Credit credit;
    bool written = false;
  };

  void TakeBursts();
  // Fills burst_ with what has come; false when TakeBursts() is to end.
  bool NextBurst();
  // False when the stream is to end, or to be held at this message.
  bool Take(const std::shared_ptr<InboundStream>& self,
            const grpc::ByteBuffer& message);
  void AwaitAnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sink answers: the sender is no stranger any more.
  void AnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HoldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsHeldLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return work_ == Work::kHolding || work_ == Work::kHeld;
  }
  // Whether to start a read, where none is running; then it counts as started.
  bool DecideReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteBytesLocked(const std::string& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  FrameSink& sink_;
  const std::shared_ptr<PlaneShared> shared_;
  const size_t small_bytes_;
  const bool near_;

  // The sink's word on a message or, with its last piece, on a frame.
  absl::StatusOr<FrameSink::Reading> Offer(
      const std::shared_ptr<InboundStream>& self,
      const grpc::ByteBuffer& message);

  // The one thread inside TakeBursts() uses it.
  MessageView view_;
  int64_t missing_bytes_ = 0;  // of a frame whose first pieces are in view_
  std::deque<grpc::ByteBuffer> burst_;

  // Outside of reactions, operations are started under the lock, so that none
  // is after Finish(): gRPC does not react on the stack of the one who starts
  // them.
  absl::Mutex mutex_;
  std::shared_ptr<InboundStream> self_ ABSL_GUARDED_BY(mutex_);
  std::string peer_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer read_;   // gRPC's while kRunning
  grpc::ByteBuffer write_;  // gRPC's while writing_
  std::deque<grpc::ByteBuffer> messages_ ABSL_GUARDED_BY(mutex_);
  size_t message_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of messages_
  Sender sender_ ABSL_GUARDED_BY(mutex_) = Sender::kStranger;
  Work work_ ABSL_GUARDED_BY(mutex_) = Work::kIdle;
  Reads reads_ ABSL_GUARDED_BY(mutex_) = Reads::kIdle;
  // A stranger's place while its next message may be on its way; else null.
  std::unique_ptr<StreamLimit::Place> place_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t holds_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, Told> credits_ ABSL_GUARDED_BY(mutex_);     // by boundary
  std::optional<std::string> receipt_ ABSL_GUARDED_BY(mutex_);  // due
};

}  // namespace paceline

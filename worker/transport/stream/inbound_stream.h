// InboundStream is the receiving end of an Exchange, of stages or of rounds.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/rpc/listener.h"
#include "core/transfer/credit.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "worker/pipeline/link.h"
#include "worker/transport/stream/frame_buffer.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

class Plane;

// Thread-safe.  Lives until gRPC has finished with it.  Its sender is a
// stranger until the plane has answered.  A stranger's stream is read one small
// message at a time, and ends when no answer comes in time (PlaneShared's
// options).  gRPC's reading thread processes large messages, one ahead of the
// next.  The plane's thread processes small ones in bursts, so that a frame
// costs no thread switch of its own.  The owner sets the limit of small
// messages.
class InboundStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<InboundStream> {
 public:
  // Larger messages are processed on gRPC's thread.
  static constexpr size_t kSmallBytes = 64 << 10;
  // A stranger sends nothing larger than a message or a chunk of a round.
  static constexpr size_t kMostOfAStranger = 512 << 10;

  // How the stream goes on after a message.  kHold: the plane did not take it,
  // and is offered it again after Resume().
  enum class Reading { kGoOn, kHold };

  // `plane` lives as long as the service; `shared` as in plane_shared.h.
  InboundStream(Plane& plane, std::shared_ptr<PlaneShared> shared,
                size_t small_bytes);

  // peer: gRPC's name of the other side.
  void Start(const std::string& peer);
  // Offers the held message to the plane again.
  void Resume();
  // Tells the sender.  Of several credits for one boundary only the last
  // counts.
  void SendCredit(FrameKind kind, int32_t boundary, const Credit& credit);
  // Sends a receipt: an empty message.
  void SendReceipt();
  // Ends the stream; the first call decides the status.
  void End(const absl::Status& status);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // How well the sender is known:
  //
  //   state      event                            next
  //   kStranger  the plane answers                kKnown
  //   kStranger, kKnown  an error, or the end     kEnding
  enum class Sender : uint8_t { kStranger, kKnown, kEnding };

  // How messages are processed:
  //
  //   state      event                            next
  //   kIdle      a message comes                  kWorking
  //   kWorking   no message is left               kIdle
  //   kWorking   the plane holds the stream       kHolding
  //   kWorking   Resume()                         kResumed: holds do not count
  //   kResumed   the next burst begins            kWorking
  //   kHolding   Resume()                         kWorking
  //   kHolding   the working thread leaves        kHeld
  //   kHeld      Resume()                         kWorking, on that thread
  enum class Work : uint8_t { kIdle, kWorking, kResumed, kHolding, kHeld };

  enum class Reads : uint8_t { kIdle, kRunning, kEnded };

  struct Told {
    FrameKind kind = FrameKind::kActivation;
    Credit credit;
    bool written = false;
  };

  void TakeBursts();
  // Fills burst_ with the messages that have come; false when TakeBursts() must
  // end.
  bool NextBurst();
  // False when the stream must end, or hold at this message.
  bool Take(const std::shared_ptr<InboundStream>& self,
            const grpc::ByteBuffer& message);
  void AwaitAnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The plane has answered: the sender is no longer a stranger.
  void AnswerLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HoldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsHeldLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return work_ == Work::kHolding || work_ == Work::kHeld;
  }
  // Returns whether to start a read; a read that is started counts as running.
  bool DecideReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reads_ != Reads::kRunning && DecideReadLocked()) StartRead(&read_);
  }
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteBytesLocked(const std::string& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  Plane& plane_;
  const std::shared_ptr<PlaneShared> shared_;
  const size_t small_bytes_;

  // Returns the plane's answer to a message or, with its last chunk, to a
  // frame.
  absl::StatusOr<Reading> Offer(const std::shared_ptr<InboundStream>& self,
                                const grpc::ByteBuffer& message);

  // Used by the one thread inside TakeBursts().
  MessageView view_;
  int64_t missing_bytes_ = 0;  // of a frame whose first chunks are in view_
  std::deque<grpc::ByteBuffer> burst_;

  // Outside of reactions, operations are started under the lock, so that none
  // starts after Finish().  This is safe because gRPC does not react on the
  // caller's stack.
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
  // A stranger's place while its next message may come; else null.
  std::unique_ptr<StreamLimit::Place> place_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t holds_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, Told> credits_ ABSL_GUARDED_BY(mutex_);  // by boundary
  bool receipt_due_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline

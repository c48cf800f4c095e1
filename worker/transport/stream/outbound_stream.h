// OutboundStream is the sending end of an Exchange, of stages or of rounds: it
// keeps one call to a peer open, and opens it again with backoff.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"
#include "worker/transport/stream/plane_shared.h"

namespace paceline {

// Returns whether no process listens at the address.  gRPC says so only in the
// text of its error.
bool IsRefusedDial(const absl::Status& status);

// Thread-safe.  One write at a time, begun on the plane's thread, on gRPC's, or
// on a caller's of Pump().  gRPC reacts on its own threads, never on a caller's
// stack.
class OutboundStream : public std::enable_shared_from_this<OutboundStream> {
 public:
  virtual ~OutboundStream();
  OutboundStream(const OutboundStream&) = delete;
  OutboundStream& operator=(const OutboundStream&) = delete;

  void Start() { Connect(); }

 protected:
  struct StreamOptions {
    const char* method;  // "/service/Method", of raw bytes
    std::string address;
    absl::Duration first_backoff;
    absl::Duration max_backoff;
  };
  OutboundStream(StreamOptions options, std::shared_ptr<PlaneShared> shared);

  // Progress of the call:
  //
  //   state     event                     next
  //   kWaiting  Connect(), if needed      kOpening
  //   kOpening  the peer has answered     kUp
  //   kOpening  the call ended            kWaiting
  //   kUp       the call ended            kWaiting
  enum class State : uint8_t { kWaiting, kOpening, kUp };

  // Whether the stream is still needed:
  //
  //   need       event                    next
  //   kOpen      CloseLocked(linger)      kDraining
  //   kOpen      CloseLocked(no linger)   kClosed
  //   kDraining  CloseLocked(no linger)   kClosed
  //   kDraining  PlaneOptions::linger     kClosed
  enum class Need : uint8_t { kOpen, kDraining, kClosed };

  struct Next {
    grpc::ByteBuffer bytes = {};
    grpc::WriteOptions options = {};
    bool half_close = false;  // instead of the bytes
  };
  // The next action after the end of a call.
  struct Ended {
    bool retry = false;
    std::function<void()> tell;  // called without the lock, before the retry
  };

  // A call is about to begin.
  virtual void OnConnectLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual std::optional<Next> TakeNextLocked()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Returns whether a draining stream still has something to send.
  virtual bool HasRestLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return false;
  }
  // The peer has sent a message.  Called without the lock.
  virtual void OnMessage(grpc::ByteBuffer& message) = 0;
  // The running write has ended.
  virtual void OnWrittenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}
  // The call has ended.  answered: the peer had answered it.
  virtual Ended OnEndedLocked(const absl::Status& status, bool answered)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  // Begins the next write, if one may begin.
  void Pump();
  // Calls Pump() on the plane's thread.
  void PumpSoonLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWritingLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return writes_ == Writes::kBusy || writes_ == Writes::kLast;
  }
  // The peer has answered.  Returns true for its first answer in this call.
  bool AnsweredLocked(bool reset_backoff) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // linger: waiting data still goes out, for a while.
  void CloseLocked(bool linger) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelCallLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the next call dial anew: gRPC itself would wait longer before it
  // dials again.
  void DropChannelLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    channel_ = nullptr;
  }
  Need need() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return need_; }

  // Constant after construction.
  const std::shared_ptr<PlaneShared> shared_;

  mutable absl::Mutex mutex_;

 private:
  class Call;

  // The writes of a call.  gRPC's hold keeps the call alive until no further
  // write can begin; kOver drops it.
  //
  //   state     begin   written  failed    reads end
  //   kFree     kBusy                      kOver
  //   kBusy             kFree    kFailed   kLast
  //   kFailed                              kOver
  //   kLast             kOver    kOver
  enum class Writes : uint8_t { kFree, kBusy, kFailed, kLast, kOver };

  void Connect();
  void OnWritten(bool ok);
  void OnReadEnded();
  void OnCallDone(const absl::Status& status);

  const StreamOptions stream_;

  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  Call* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: kWaiting
  State state_ ABSL_GUARDED_BY(mutex_) = State::kWaiting;
  Need need_ ABSL_GUARDED_BY(mutex_) = Need::kOpen;
  Writes writes_ ABSL_GUARDED_BY(mutex_) = Writes::kOver;
  bool pump_posted_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

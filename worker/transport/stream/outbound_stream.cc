#include "worker/transport/stream/outbound_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "core/rpc/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"

namespace paceline {

bool IsRefusedDial(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         absl::StrContains(status.message(), "Connection refused");
}

// One attempt of a stream.  Deletes itself when gRPC has finished with it.
class OutboundStream::Call final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // The stream is shared with closures that wait for their time.
  Call(std::shared_ptr<OutboundStream> stream,
       const std::shared_ptr<grpc::Channel>& channel)
      : stream_(std::move(stream)) {
    stream_->shared_->channels.OnCallStarted();
    grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(
        channel);
    stub.PrepareBidiStreamingCall(&context_, stream_->stream_.method, {}, this);
  }

  void Start() {
    AddHold();
    StartRead(&read_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  void Write(Next next) {
    if (next.half_close) return StartWritesDone();
    out_.Swap(&next.bytes);
    StartWrite(&out_, next.options);
  }
  void ReleaseWritten() { out_.Clear(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return stream_->OnReadEnded();
    stream_->OnMessage(read_);
    StartRead(&read_);
  }
  void OnWriteDone(bool ok) override { stream_->OnWritten(ok); }
  void OnWritesDoneDone(bool ok) override { stream_->OnWritten(ok); }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<PlaneShared> shared = stream_->shared_;
    stream_->OnCallDone(FromGrpc(status));
    delete this;
    shared->timers.Run([shared] { shared->channels.DropUnused(); });
    shared->channels.OnCallEnded();
  }

  const std::shared_ptr<OutboundStream> stream_;
  grpc::ClientContext context_;
  grpc::ByteBuffer read_;
  grpc::ByteBuffer out_;
};

OutboundStream::OutboundStream(StreamOptions options,
                               std::shared_ptr<PlaneShared> shared)
    : shared_(std::move(shared)),
      stream_(std::move(options)),
      backoff_(stream_.first_backoff) {}

OutboundStream::~OutboundStream() = default;

// --- Life -------------------------------------------------------------------

void OutboundStream::Connect() {
  {
    absl::MutexLock lock(&mutex_);
    const bool needed =
        need_ == Need::kOpen || (need_ == Need::kDraining && HasRestLocked());
    if (!needed || state_ != State::kWaiting) return;
    if (channel_ == nullptr) channel_ = shared_->channels.Make(stream_.address);
    call_ = new Call(shared_from_this(), channel_);
    state_ = State::kOpening;
    writes_ = Writes::kFree;
    OnConnectLocked();
    // Under the lock, so that CloseLocked() finds a call that it can cancel.
    call_->Start();
  }
  Pump();
}

bool OutboundStream::AnsweredLocked(bool reset_backoff) {
  if (state_ != State::kOpening) return false;
  state_ = State::kUp;
  if (reset_backoff) backoff_ = stream_.first_backoff;
  return true;
}

void OutboundStream::CancelCallLocked() {
  if (call_ != nullptr) call_->Cancel();
}

void OutboundStream::CloseLocked(bool linger) {
  need_ = linger && need_ != Need::kClosed ? Need::kDraining : Need::kClosed;
  if (need_ == Need::kClosed) return CancelCallLocked();
  shared_->timers.RunAfter(shared_->options.linger,
                           [self = shared_from_this()] {
                             absl::MutexLock lock(&self->mutex_);
                             if (self->need_ != Need::kDraining) return;
                             self->need_ = Need::kClosed;
                             self->CancelCallLocked();
                           });
  PumpSoonLocked();
}

void OutboundStream::OnCallDone(const absl::Status& status) {
  Ended ended;
  absl::Duration wait;
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
    const State was = std::exchange(state_, State::kWaiting);
    writes_ = Writes::kOver;
    ended = OnEndedLocked(status, was == State::kUp);
    if (ended.retry) {
      wait =
          std::exchange(backoff_, std::min(2 * backoff_, stream_.max_backoff));
    }
  }
  if (ended.tell) ended.tell();
  if (!ended.retry) return;
  shared_->timers.RunAfter(wait,
                           [self = shared_from_this()] { self->Connect(); });
}

// --- Writes -----------------------------------------------------------------

void OutboundStream::PumpSoonLocked() {
  if (pump_posted_ || writes_ != Writes::kFree) return;
  pump_posted_ = true;
  shared_->timers.Run([self = shared_from_this()] {
    {
      absl::MutexLock lock(&self->mutex_);
      self->pump_posted_ = false;
    }
    self->Pump();
  });
}

void OutboundStream::Pump() {
  Call* call = nullptr;
  std::optional<Next> next;
  {
    absl::MutexLock lock(&mutex_);
    if (writes_ != Writes::kFree) return;
    next = TakeNextLocked();
    if (!next.has_value()) return;
    writes_ = Writes::kBusy;
    call = call_;
  }
  // Without the lock, because Write() may copy a frame into the kernel.  The
  // call stays until OnWritten().
  call->Write(*std::move(next));
}

void OutboundStream::OnWritten(bool ok) {
  Call* unused = nullptr;  // its hold is dropped without the lock
  {
    absl::MutexLock lock(&mutex_);
    call_->ReleaseWritten();
    OnWrittenLocked();
    if (writes_ == Writes::kLast) {
      unused = call_;
      writes_ = Writes::kOver;
    } else {
      writes_ = ok ? Writes::kFree : Writes::kFailed;
    }
  }
  if (unused != nullptr) return unused->RemoveHold();
  Pump();
}

void OutboundStream::OnReadEnded() {
  Call* unused = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (writes_ == Writes::kBusy) {
      writes_ = Writes::kLast;
    } else {
      writes_ = Writes::kOver;
      unused = call_;
    }
  }
  if (unused != nullptr) unused->RemoveHold();
}

}  // namespace paceline

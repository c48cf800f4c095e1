#include "worker/transport/stream/inbound_stream.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/rpc/channel.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.pb.h"
#include "worker/transport/stream/plane.h"

namespace paceline {
namespace {

// Limits of reading while the plane works: at least one message, at most this.
constexpr size_t kBurstBytes = 4 << 20;
constexpr size_t kBurstMessages = 256;

static_assert(kMaxChunkBytes <= kMaxRequestBytes);

}  // namespace

InboundStream::InboundStream(Plane& plane, std::shared_ptr<PlaneShared> shared,
                             size_t small_bytes)
    : plane_(plane), shared_(std::move(shared)), small_bytes_(small_bytes) {}

void InboundStream::Start(const std::string& peer) {
  auto place = shared_->strangers.Enter(peer);
  absl::MutexLock lock(&mutex_);
  self_ = shared_from_this();
  peer_ = peer;
  if (!place.ok()) return EndLocked(place.status());
  place_ = *std::move(place);
  AwaitAnswerLocked();
  ReadLocked();
}

void InboundStream::AwaitAnswerLocked() {
  const absl::Duration hello = shared_->options.hello;
  shared_->timers.RunAfter(hello, [weak = weak_from_this(), hello] {
    const std::shared_ptr<InboundStream> self = weak.lock();
    if (self == nullptr) return;
    absl::MutexLock lock(&self->mutex_);
    if (self->sender_ != Sender::kStranger) return;
    // A held stream has a time limit of its own.
    if (self->IsHeldLocked()) return self->AwaitAnswerLocked();
    self->EndLocked(
        DeadlineExceeded("no hello to a run that is open here came within ",
                         absl::FormatDuration(hello)));
  });
}

void InboundStream::AnswerLocked() {
  if (sender_ == Sender::kStranger) {
    sender_ = Sender::kKnown;
    Listener::OnKnown(peer_);
  }
  place_ = nullptr;
}

void InboundStream::Resume() {
  {
    absl::MutexLock lock(&mutex_);
    switch (work_) {
      case Work::kIdle:
      case Work::kResumed:
        return;
      case Work::kWorking:
        work_ = Work::kResumed;
        return;
      case Work::kHolding:
        work_ = Work::kWorking;
        return;
      case Work::kHeld:
        work_ = Work::kWorking;
    }
  }
  TakeBursts();
}

void InboundStream::SendCredit(FrameKind kind, int32_t boundary,
                               const Credit& credit) {
  absl::MutexLock lock(&mutex_);
  AnswerLocked();
  Told& told = credits_[boundary];
  told.kind = kind;
  // Two threads may bring their credits in the wrong order.
  told.credit.granted = std::max(told.credit.granted, credit.granted);
  told.credit.received = std::max(told.credit.received, credit.received);
  told.written = false;
  WriteLocked();
}

void InboundStream::SendReceipt() {
  absl::MutexLock lock(&mutex_);
  AnswerLocked();
  receipt_due_ = true;
  WriteLocked();
}

void InboundStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  EndLocked(status);
}

void InboundStream::OnReadDone(bool ok) {
  bool small = false;
  bool read = false;
  bool work = false;
  {
    absl::MutexLock lock(&mutex_);
    reads_ = ok ? Reads::kIdle : Reads::kEnded;
    if (ok && sender_ == Sender::kStranger &&
        read_.Length() > kMostOfAStranger) {
      ++shared_->counters.frames_refused;
      EndLocked(InvalidArgument("a message of ", read_.Length(),
                                " bytes before a hello"));
    }
    if (ok) {
      const size_t bytes = read_.Length();
      small = bytes <= small_bytes_;
      message_bytes_ += bytes;
      messages_.emplace_back().Swap(&read_);
    }
    const bool working = work_ != Work::kIdle && work_ != Work::kHeld;
    read = (small || working) && DecideReadLocked();
    work = work_ == Work::kIdle;
    if (work) work_ = Work::kWorking;
  }
  // Inside a reaction gRPC keeps this object alive, whichever thread ends the
  // stream.
  if (read) StartRead(&read_);
  if (!work) return;
  if (small) {
    shared_->timers.Run([self = shared_from_this()] { self->TakeBursts(); });
  } else {
    TakeBursts();
  }
}

void InboundStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (sender_ == Sender::kEnding) {
    Finish(ToGrpc(end_status_));
  } else if (ok) {
    WriteLocked();
  }
}

void InboundStream::OnCancel() { End(Cancelled("the sender has left")); }

void InboundStream::OnDone() {
  std::shared_ptr<InboundStream> self;
  {
    absl::MutexLock lock(&mutex_);
    self.swap(self_);
  }
  plane_.OnStreamDone(self);
}

void InboundStream::TakeBursts() {
  const std::shared_ptr<InboundStream> self = shared_from_this();
  while (NextBurst()) {
    while (!burst_.empty() && Take(self, burst_.front())) burst_.pop_front();
    plane_.OnBurstEnd();
  }
}

bool InboundStream::NextBurst() {
  absl::MutexLock lock(&mutex_);
  if (work_ == Work::kHolding) {
    work_ = Work::kHeld;
    return false;
  }
  work_ = Work::kWorking;
  if (sender_ != Sender::kEnding) {
    if (burst_.empty()) {
      burst_.swap(messages_);
      message_bytes_ = 0;
    }
    if (sender_ == Sender::kKnown || burst_.empty()) ReadLocked();
    if (!burst_.empty()) return true;
    if (reads_ == Reads::kEnded) EndLocked(absl::OkStatus());
  }
  work_ = Work::kIdle;
  return false;
}

bool InboundStream::Take(const std::shared_ptr<InboundStream>& self,
                         const grpc::ByteBuffer& message) {
  const absl::StatusOr<Reading> taken = Offer(self, message);
  if (missing_bytes_ == 0) view_.Clear();
  if (taken.ok() && *taken == Reading::kGoOn) return true;

  absl::MutexLock lock(&mutex_);
  if (!taken.ok()) {
    EndLocked(taken.status());
  } else if (work_ == Work::kWorking) {
    HoldLocked();
  }
  return false;
}

absl::StatusOr<InboundStream::Reading> InboundStream::Offer(
    const std::shared_ptr<InboundStream>& self,
    const grpc::ByteBuffer& message) {
  const auto bytes = static_cast<int64_t>(message.Length());
  const bool first = missing_bytes_ == 0;
  if (!(first ? view_.Open(message) : view_.Append(message))) {
    return InvalidArgument("an empty message");
  }
  if (first && bytes == kMaxChunkBytes) {
    PACELINE_ASSIGN_OR_RETURN(missing_bytes_,
                              plane_.FrameBytes(self, view_.spans()));
  }
  if (missing_bytes_ > 0) {
    if (bytes == 0 || bytes > missing_bytes_) {
      return InvalidArgument("a chunk of ", bytes,
                             " bytes of a frame of which ", missing_bytes_,
                             " are missing");
    }
    missing_bytes_ -= bytes;
    if (missing_bytes_ > 0) return Reading::kGoOn;
  }
  return plane_.OnMessage(self, view_.spans());
}

void InboundStream::HoldLocked() {
  work_ = Work::kHolding;
  place_ = nullptr;  // nothing is read while the stream is held
  shared_->timers.RunAfter(
      shared_->options.hold, [weak = weak_from_this(), hold = ++holds_] {
        const std::shared_ptr<InboundStream> self = weak.lock();
        if (self == nullptr) return;
        absl::MutexLock lock(&self->mutex_);
        if (!self->IsHeldLocked() || self->holds_ != hold) return;
        self->EndLocked(FailedPrecondition(
            "no order for this job and plan came within ",
            absl::FormatDuration(self->shared_->options.hold)));
      });
}

bool InboundStream::DecideReadLocked() {
  const bool room = messages_.empty() || (sender_ == Sender::kKnown &&
                                          messages_.size() < kBurstMessages &&
                                          message_bytes_ < kBurstBytes);
  if (reads_ == Reads::kIdle && sender_ != Sender::kEnding && room) {
    reads_ = Reads::kRunning;
  }
  return reads_ == Reads::kRunning;
}

void InboundStream::WriteLocked() {
  if (writing_ || sender_ == Sender::kEnding) return;
  if (std::exchange(receipt_due_, false)) return WriteBytesLocked("");
  const auto next =
      std::find_if(credits_.begin(), credits_.end(),
                   [](const auto& entry) { return !entry.second.written; });
  if (next == credits_.end()) return;
  Told& told = next->second;
  told.written = true;
  v1::StageCredit credit;
  credit.set_boundary(next->first);
  credit.set_kind(static_cast<v1::FrameKind>(told.kind));
  credit.set_granted(told.credit.granted);
  credit.set_received(told.credit.received);
  WriteBytesLocked(credit.SerializeAsString());
}

void InboundStream::WriteBytesLocked(const std::string& bytes) {
  ToByteBuffer(bytes).Swap(&write_);
  writing_ = true;
  StartWrite(&write_);
}

void InboundStream::EndLocked(const absl::Status& status) {
  if (sender_ == Sender::kEnding) return;
  sender_ = Sender::kEnding;
  end_status_ = status;
  place_ = nullptr;
  if (!writing_) Finish(ToGrpc(end_status_));
}

}  // namespace paceline

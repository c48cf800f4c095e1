#include "worker/rpc/inbound_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.pb.h"

namespace paceline {
namespace {

// The one that the sink works on, and the next.
constexpr size_t kMessagesAhead = 2;
// A smaller message is worked on sooner than another thread could be woken to
// take the next one.
constexpr size_t kReadAheadBytes = 128 << 10;

}  // namespace

InboundStream::InboundStream(FrameSink& sink,
                             std::shared_ptr<PlaneShared> shared)
    : sink_(sink), shared_(std::move(shared)) {}

void InboundStream::Start() {
  absl::MutexLock lock(&mutex_);
  self_ = shared_from_this();
  ReadLocked();
}

void InboundStream::Resume() {
  {
    absl::MutexLock lock(&mutex_);
    resumed_ = true;
    if (working_ || !held_) return;
    held_ = false;
    working_ = true;
  }
  Work();
}

void InboundStream::SendCredit(FrameKind kind, int32_t boundary,
                               const Credit& credit) {
  absl::MutexLock lock(&mutex_);
  Told& told = credits_[boundary];
  told.kind = kind;
  // Two threads may bring theirs in the wrong order.
  told.credit.granted = std::max(told.credit.granted, credit.granted);
  told.credit.received = std::max(told.credit.received, credit.received);
  told.written = false;
  WriteLocked();
}

void InboundStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  EndLocked(status);
}

void InboundStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    reading_ = false;
    if (ok) {
      messages_.emplace_back().Swap(&read_);
    } else {
      read_ended_ = true;
    }
    if (working_ || held_) return;
    working_ = true;
  }
  Work();
}

void InboundStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (ending_) {
    Finish(ToGrpc(end_status_));
  } else if (ok) {
    WriteLocked();
  }
}

void InboundStream::OnCancel() {
  End(absl::CancelledError("the sender has left"));
}

void InboundStream::OnDone() {
  std::shared_ptr<InboundStream> self;
  {
    absl::MutexLock lock(&mutex_);
    self.swap(self_);
  }
  sink_.OnStreamDone(self);
}

void InboundStream::Work() {
  const std::shared_ptr<InboundStream> self = shared_from_this();
  for (;;) {
    const grpc::ByteBuffer* message = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      message = NextLocked();
      if (message == nullptr) return;
    }
    // References into a deque stay good while others append.
    absl::StatusOr<FrameSink::Reading> taken =
        absl::InvalidArgumentError("an empty message");
    if (view_.Open(*message)) taken = sink_.OnMessage(self, view_.spans());
    view_.Clear();

    absl::MutexLock lock(&mutex_);
    if (!taken.ok()) {
      EndLocked(taken.status());
    } else if (*taken == FrameSink::Reading::kGoOn) {
      messages_.pop_front();
    } else if (!resumed_) {
      HoldLocked();
    }
    if (held_) {
      working_ = false;
      return;
    }
  }
}

const grpc::ByteBuffer* InboundStream::NextLocked() {
  resumed_ = false;
  if (!ending_ && !messages_.empty()) {
    if (messages_.front().Length() >= kReadAheadBytes) ReadLocked();
    return &messages_.front();
  }
  ReadLocked();
  working_ = false;
  if (read_ended_) EndLocked(absl::OkStatus());
  return nullptr;
}

void InboundStream::HoldLocked() {
  held_ = true;
  shared_->timers.RunAt(
      absl::Now() + shared_->options.hold,
      [weak = weak_from_this(), hold = ++holds_] {
        const std::shared_ptr<InboundStream> self = weak.lock();
        if (self == nullptr) return;
        absl::MutexLock lock(&self->mutex_);
        if (!self->held_ || self->holds_ != hold) return;
        self->EndLocked(absl::FailedPreconditionError(
            absl::StrCat("no order for this job and plan came within ",
                         absl::FormatDuration(self->shared_->options.hold))));
      });
}

void InboundStream::ReadLocked() {
  if (reading_ || read_ended_ || ending_ ||
      messages_.size() >= kMessagesAhead) {
    return;
  }
  reading_ = true;
  StartRead(&read_);
}

void InboundStream::WriteLocked() {
  if (writing_ || ending_) return;
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

  const std::string bytes = credit.SerializeAsString();
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer(&slice, 1).Swap(&write_);
  writing_ = true;
  StartWrite(&write_);
}

void InboundStream::EndLocked(const absl::Status& status) {
  if (ending_) return;
  ending_ = true;
  end_status_ = status;
  if (!writing_) Finish(ToGrpc(end_status_));
}

}  // namespace paceline

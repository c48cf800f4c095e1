#include "worker/rpc/inbound_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.pb.h"

namespace paceline {
namespace {

// Read while the sink works: at least one message, and at most so much.
constexpr size_t kBurstBytes = 4 << 20;
constexpr size_t kBurstMessages = 256;

}  // namespace

InboundStream::InboundStream(FrameSink& sink,
                             std::shared_ptr<PlaneShared> shared,
                             size_t small_bytes, bool near)
    : sink_(sink),
      shared_(std::move(shared)),
      small_bytes_(small_bytes),
      near_(near) {}

void InboundStream::Start() {
  absl::MutexLock lock(&mutex_);
  self_ = shared_from_this();
  ReadLocked();
}

void InboundStream::Resume() {
  {
    absl::MutexLock lock(&mutex_);
    resumed_ = true;
    if (!held_) return;
    held_ = false;
    if (working_) return;
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

void InboundStream::SendReceipt(std::string bytes) {
  absl::MutexLock lock(&mutex_);
  receipt_ = std::move(bytes);
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
    reading_ = false;
    if (ok) {
      const size_t bytes = read_.Length();
      small = bytes <= small_bytes_;
      message_bytes_ += bytes;
      messages_.emplace_back().Swap(&read_);
    } else {
      read_ended_ = true;
    }
    read = (small || working_) && DecideReadLocked();
    work = !working_ && !held_;
    working_ = working_ || work;
  }
  // Inside a reaction gRPC keeps this alive, whoever ends the stream.
  if (read) StartRead(&read_);
  if (!work) return;
  if (small) {
    shared_->timers.Run([self = shared_from_this()] { self->Work(); });
  } else {
    Work();
  }
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
  while (NextBurst()) {
    while (!burst_.empty() && Take(self, burst_.front())) burst_.pop_front();
    sink_.OnBurstEnd();
  }
}

bool InboundStream::NextBurst() {
  absl::MutexLock lock(&mutex_);
  resumed_ = false;
  if (!held_ && !ending_) {
    if (burst_.empty()) {
      burst_.swap(messages_);
      message_bytes_ = 0;
    }
    ReadLocked();
    if (!burst_.empty()) return true;
    if (read_ended_) EndLocked(absl::OkStatus());
  }
  working_ = false;
  return false;
}

bool InboundStream::Take(const std::shared_ptr<InboundStream>& self,
                         const grpc::ByteBuffer& message) {
  absl::StatusOr<FrameSink::Reading> taken =
      absl::InvalidArgumentError("an empty message");
  if (view_.Open(message)) taken = sink_.OnMessage(self, view_.spans());
  view_.Clear();
  if (taken.ok() && *taken == FrameSink::Reading::kGoOn) return true;

  absl::MutexLock lock(&mutex_);
  if (!taken.ok()) {
    EndLocked(taken.status());
  } else if (!resumed_) {
    HoldLocked();
  }
  return false;
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

bool InboundStream::DecideReadLocked() {
  const bool room = messages_.empty() || (messages_.size() < kBurstMessages &&
                                          message_bytes_ < kBurstBytes);
  reading_ = reading_ || (!read_ended_ && !ending_ && room);
  return reading_;
}

void InboundStream::ReadLocked() {
  if (!reading_ && DecideReadLocked()) StartRead(&read_);
}

void InboundStream::WriteLocked() {
  if (writing_ || ending_) return;
  if (receipt_.has_value()) {
    WriteBytesLocked(*std::exchange(receipt_, std::nullopt));
    return;
  }
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

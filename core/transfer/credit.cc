#include "core/transfer/credit.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"

namespace paceline {

CreditLedger::CreditLedger(int bound, int64_t kept_bytes)
    : most_kept_bytes_(kept_bytes),
      window_(2 * bound),
      due_after_((bound + 1) / 2) {
  PACELINE_CHECK(bound > 0 && bound < (1 << 24), "bound=", bound);
}

SequenceVerdict CreditLedger::Check(int64_t sequence) const {
  if (sequence < received_) return SequenceVerdict::kDuplicate;
  if (sequence > received_) return SequenceVerdict::kGap;
  return sequence < consumed_ + window_ ? SequenceVerdict::kNext
                                        : SequenceVerdict::kAboveCredit;
}

void CreditLedger::OnReceived(int64_t bytes) {
  ++received_;
  bytes_since_told_ += bytes;
}

void CreditLedger::OnConsumed() {
  ++consumed_;
  PACELINE_CHECK(consumed_ <= received_, "consumed=", consumed_,
                 " received=", received_);
}

std::optional<Credit> CreditLedger::TakeDue() {
  const bool room = Now().granted - told_.granted >= due_after_;
  if (!room && bytes_since_told_ < most_kept_bytes_) return std::nullopt;
  return TakeNow();
}

Credit CreditLedger::TakeNow() {
  told_ = Now();
  bytes_since_told_ = 0;
  return told_;
}

int64_t ResendWindow::Reserve() {
  kept_.emplace_back();
  return end() - 1;
}

void ResendWindow::Fill(int64_t sequence, EncodedFrame frame) {
  PACELINE_CHECK(sequence >= first_ && sequence < end(), "sequence=", sequence,
                 " first=", first_, " end=", end());
  kept_[sequence - first_] = std::move(frame);
}

void ResendWindow::OnBroken() {
  connected_ = false;
  granted_ = 0;
}

absl::Status ResendWindow::OnCredit(const Credit& credit) {
  // When a new stream begins, frames of an earlier stream may have arrived.
  // From then on the receiver takes frames from the new stream only.
  const int64_t most = connected_ ? next_ : sent_;
  if (credit.received > most) {
    return InvalidArgument("the receiver says that it has ", credit.received,
                           " frames, but ", most, " were sent");
  }
  if (credit.received < first_) {
    return Aborted("the receiver wants frame ", credit.received,
                   " again, which it had acknowledged; kept from ", first_);
  }
  while (first_ < credit.received) {
    kept_.pop_front();
    ++first_;
  }
  granted_ = std::max(granted_, credit.granted);
  if (!connected_) next_ = first_;
  connected_ = true;
  return absl::OkStatus();
}

const EncodedFrame* ResendWindow::TakeNext() {
  if (!ready()) return nullptr;
  const EncodedFrame& frame = *kept_[next_ - first_];
  ++next_;
  sent_ = std::max(sent_, next_);
  return &frame;
}

}  // namespace paceline

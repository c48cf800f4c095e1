#include "core/transfer/credit.h"

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {

CreditLedger::CreditLedger(int bound, int64_t kept_bytes)
    : most_kept_bytes_(kept_bytes),
      window_(2 * bound),
      due_after_((bound + 1) / 2) {
  PACELINE_CHECK(bound > 0 && bound < (1 << 24), absl::StrCat("bound=", bound));
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
  PACELINE_CHECK(consumed_ <= received_,
                 absl::StrCat("consumed=", consumed_, " received=", received_));
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

}  // namespace paceline

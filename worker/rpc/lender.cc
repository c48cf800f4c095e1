#include "worker/rpc/lender.h"

#include <unistd.h>

#include <algorithm>

namespace paceline {

std::optional<RoundMemory> Lender::TakeIntroduction() {
  if (!std::exchange(introduction_due_, false)) return std::nullopt;
  return RoundMemory{getpid(), reinterpret_cast<uint64_t>(&word_)};
}

void Lender::Lend(const PayloadKey& key,
                  std::shared_ptr<RoundPayload> payload) {
  lent_.emplace_back(key, std::move(payload));
  ++lent_count_;
}

bool Lender::HasLentBefore(int64_t step) const {
  return std::any_of(lent_.begin(), lent_.end(), [step](const auto& loan) {
    return loan.first.kind != PayloadKey::Kind::kState &&
           loan.first.step < step;
  });
}

Lender::Returned Lender::OnReceipt(const LoanReceipt& receipt) {
  if (!willing_) return {};
  if (receipt.word != 0 && receipt.word != word_) {
    word_ = receipt.word;
    introduction_due_ = true;
  }
  readable_ = readable_ || receipt.readable;
  Returned returned;
  const int64_t waiting = lent_count_ - receipt.taken;
  while (static_cast<int64_t>(lent_.size()) > std::max<int64_t>(waiting, 0)) {
    returned.push_back(std::move(lent_.front().second));
    lent_.pop_front();
  }
  return returned;
}

Lender::Returned Lender::OnCallDone(bool data_lost) {
  if (data_lost && lent_count_ > 0) willing_ = false;
  introduction_due_ = false;
  readable_ = false;
  lent_count_ = 0;
  Returned returned;
  for (auto& [key, payload] : lent_) returned.push_back(std::move(payload));
  lent_.clear();
  return returned;
}

}  // namespace paceline

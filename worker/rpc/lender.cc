#include "worker/rpc/lender.h"

#include <unistd.h>

#include "worker/rpc/near_memory.h"

namespace paceline {

std::optional<RoundMemory> Lender::TakeIntroduction() {
  if (!std::exchange(introduction_due_, false)) return std::nullopt;
  return RoundMemory{getpid(), reinterpret_cast<uint64_t>(&proof_)};
}

void Lender::Lend(const PayloadKey& key,
                  std::shared_ptr<RoundPayload> payload) {
  lent_.emplace_back(key, std::move(payload));
  ++lent_count_;
}

int64_t Lender::LastLoanBefore(int64_t step) const {
  int64_t last = 0;
  int64_t loan = returned_count();
  for (const auto& [key, payload] : lent_) {
    ++loan;
    if (key.kind != PayloadKey::Kind::kState && key.step < step) last = loan;
  }
  return last;
}

bool Lender::IsOut(int64_t loan) const { return loan > returned_count(); }

Lender::Returned Lender::OnReceipt(const LoanReceipt& receipt) {
  if (!willing_) return {};
  if (receipt.word != 0 && receipt.word != word_) {
    word_ = receipt.word;
    proof_ = MemoryProof(word_, from_, to_);
    introduction_due_ = true;
  }
  readable_ = readable_ || receipt.readable;
  Returned returned;
  while (!lent_.empty() && returned_count() < receipt.taken) {
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

// The sending side of pieces that are lent to a receiver on the same machine:
// borrower.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/transfer/round_frame.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"

namespace paceline {

// What a paceline.v1.RoundReceipt says.
struct LoanReceipt {
  uint64_t word = 0;
  bool readable = false;
  int64_t taken = 0;
};

// Of the calls to one peer, one after the other.  Thread-compatible; stays
// where it is, since another process looks there.
class Lender {
 public:
  // near: the peer is reached over loopback.  from, to: this process, the peer.
  Lender(bool near, const RoundProcess& from, const RoundProcess& to)
      : from_(from), to_(to), willing_(near) {}
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // What is to be said to the peer next, once; nothing.
  std::optional<RoundMemory> TakeIntroduction();

  bool lends() const { return readable_; }
  // Whether a further chunk may be under way.
  bool has_room() const { return lent_.size() < kMostLent; }
  // Keeps the payload until the peer is done with one chunk of it.
  void Lend(const PayloadKey& key, std::shared_ptr<RoundPayload> payload);
  // The youngest loan of those of steps before `step` that are out; 0: none.
  // Copies of the state are wanted whatever their step.
  int64_t LastLoanBefore(int64_t step) const;
  // Whether that one, of this call, still is.
  bool IsOut(int64_t loan) const;

  // Both give back what is to be let go of without a lock.
  using Returned = std::vector<std::shared_ptr<RoundPayload>>;
  Returned OnReceipt(const LoanReceipt& receipt);
  // data_lost: the peer could not use what it got.  If that was lent, nothing
  // is lent to it any more.
  Returned OnCallDone(bool data_lost);

  // Enough for the peer to go on while a receipt is under way.
  static constexpr size_t kMostLent = 16;

 private:
  int64_t returned_count() const {
    return lent_count_ - static_cast<int64_t>(lent_.size());
  }

  const RoundProcess from_;
  const RoundProcess to_;
  bool willing_;
  bool introduction_due_ = false;
  bool readable_ = false;
  int64_t lent_count_ = 0;  // by this call
  std::deque<std::pair<PayloadKey, std::shared_ptr<RoundPayload>>> lent_;
  uint64_t word_ = 0;               // as told
  std::atomic<uint64_t> proof_{0};  // read by the peer
};

}  // namespace paceline

// Transfers chunks of rounds between members on one machine.  The sender lends
// its memory, and the receiver reads it (process_vm_readv, MPI's cross-memory
// attach) while the sender goes on with its work.  The kernel allows this
// between processes of one user where it allows a debugger.
//
// Its gain: four members on one machine agree on 100 MiB in 0.62 s with it and
// in 1.05 s without, where gRPC alone takes 0.9 s (round_speed.py --part
// loopback, November 2026, on a loaded machine of two cores).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/transfer/round_frame.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_transport.h"

namespace paceline {

// Returns whether a call came over loopback.  peer: gRPC's name of its other
// side, "ipv4:127.0.0.1:40312".
bool IsNear(const std::string& peer);

// An address in the other process, and the span that its bytes go to.
struct NearBytes {
  uint64_t address = 0;
  absl::Span<uint8_t> target;
};

// Copies all of `bytes`, in their order.  process: its id as this process sees
// it.
// Errors: Unavailable  not allowed, no such process, or no memory there
absl::Status ReadNear(int process, absl::Span<const NearBytes> bytes);

// Returns the proof that a sender puts into its memory when it gets `word`.  It
// holds for one pair of processes: a sender cannot pass the word to a third
// process and claim that one's memory.  Never 0.
uint64_t MemoryProof(uint64_t word, const RoundProcess& from,
                     const RoundProcess& to);

// The sending side of chunks that are lent to a receiver on the same machine.

// The content of a paceline.v1.RoundReceipt.
struct LoanReceipt {
  uint64_t word = 0;
  bool readable = false;
  int64_t taken = 0;
};

// Serves the calls to one peer, one after the other.  Thread-compatible.  It
// must not move, since another process reads its memory.
class Lender {
 public:
  // near: the peer is reached over loopback.  from: this process.  to: the
  // peer.
  Lender(bool near, const RoundProcess& from, const RoundProcess& to)
      : from_(from), to_(to), willing_(near) {}
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // Returns the introduction that is due to the peer, once; else nothing.
  std::optional<RoundMemory> TakeIntroduction();

  bool lends() const { return readable_; }
  // Returns whether a further chunk may be lent.
  bool has_room() const { return lent_.size() < kMostLent; }
  // Keeps the payload until the peer has taken one chunk of it.
  void Lend(const PayloadKey& key, std::shared_ptr<RoundPayload> payload);
  // Returns the latest loan still out of those of steps before `step`; 0: none.
  // Copies of the state are not counted, since members need them at any step.
  int64_t LastLoanBefore(int64_t step) const;
  // Returns whether this loan of the present call is still out.
  bool IsOut(int64_t loan) const;

  // Both functions return payloads that the caller must free without a lock.
  using Returned = std::vector<std::shared_ptr<RoundPayload>>;
  Returned OnReceipt(const LoanReceipt& receipt);
  // data_lost: the peer could not use the data.  If that was lent, the peer
  // gets no more loans.
  Returned OnCallDone(bool data_lost);

  // Enough for the peer to go on while a receipt is in transit.
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
  uint64_t word_ = 0;               // from the peer
  std::atomic<uint64_t> proof_{0};  // read by the peer
};

// The receiving side of chunks that a sender on the same machine lends: it
// reads them in the sender's memory.

// Serves one stream.  Thread-compatible.
//
// A sender could name any process that this one may read, and learn the content
// of that memory.  So it must show that the memory is its own: the proof of a
// word that only this sender got (MemoryProof) must stand there.  Every read of
// a chunk checks it again.  Only a sender over loopback may lend.  A sender in
// its own container, of another user, or behind a kernel that forbids it sends
// its bytes.
class Borrower {
 public:
  Borrower() = default;  // for a stream that lends nothing
  // near: the stream comes over loopback.
  Borrower(bool near, const RoundProcess& from, const RoundProcess& to);

  // Call it after a frame was taken; returns whether a receipt is due.  A
  // receipt is for several loans together, and for all loans before a frame
  // without one.
  bool OnFrame(const RoundFrameHeader& header);

  // Copies a lent chunk and returns its XXH3-64.
  // Errors: InvalidArgument  the sender has not shown its memory
  //         DataLoss         unreadable: the sender must send the chunk
  absl::StatusOr<uint64_t> Read(uint64_t address,
                                absl::Span<uint8_t> target) const;

  // Returns a paceline.v1.RoundReceipt of the present state.
  std::string Receipt();

  // Below Lender::kMostLent, or both sides would wait for each other.
  static constexpr int64_t kLoansAReceipt = 4;

 private:
  // Returns whether the proof stands at the address in the sender's memory.
  bool IsShown(const RoundMemory& memory) const;

  uint64_t word_ = 0;   // 0: the sender got none
  uint64_t proof_ = 0;  // of word_
  RoundMemory memory_;  // shown by the sender; process 0: none
  int64_t taken_ = 0;
  int64_t told_ = 0;  // of taken_, in receipts
};

}  // namespace paceline

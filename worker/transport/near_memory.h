// Chunks of rounds between members of one machine: the sender lends them, and
// the receiver reads them out of the sender's memory (process_vm_readv, what
// MPI calls cross-memory attach) while the sender goes on with its work.  The
// kernel allows it between processes of one user, where it allows a debugger.
//
// What it carries: four members on one machine agree on 100 MiB in 0.62 s with
// it and in 1.05 s without, where gRPC alone takes 0.9 s (round_speed.py --part
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

// Whether a call came over loopback.  peer: as gRPC calls the other side of it,
// "ipv4:127.0.0.1:40312".
bool IsNear(const std::string& peer);

// A place there, and where to put as many bytes as this has.
struct NearBytes {
  uint64_t address = 0;
  absl::Span<uint8_t> target;
};

// Copies all of them, in their order.  process: as this process sees it.
// Errors: Unavailable  not allowed, no such process, or no memory there
absl::Status ReadNear(int process, absl::Span<const NearBytes> bytes);

// A sender puts this into its memory when it is told `word`.  It holds for one
// pair of processes: a sender that passes the word on to another process, to
// have that one vouch for its memory, gets something of no use.  Never 0.
uint64_t MemoryProof(uint64_t word, const RoundProcess& from,
                     const RoundProcess& to);

// The sending side of pieces that are lent to a receiver on the same machine:
// borrower.h.

// A paceline.v1.RoundReceipt says this.
struct LoanReceipt {
  uint64_t word = 0;
  bool readable = false;
  int64_t taken = 0;
};

// Serves the calls to one peer, one after the other.  Thread-compatible; stays
// where it is, since another process looks there.
class Lender {
 public:
  // near: the peer is reached over loopback.  from, to: this process, the peer.
  Lender(bool near, const RoundProcess& from, const RoundProcess& to)
      : from_(from), to_(to), willing_(near) {}
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // The next thing to say to the peer, once; nothing.
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

// The receiving side of pieces that a sender on the same machine lends: they
// stay where they are, and the receiver reads them there.

// Serves one stream.  Thread-compatible.
//
// A sender could name any process that this one may read, and learn what is in
// its memory.  So it has to show that the memory is its own: what follows from
// a word that it alone was told (MemoryProof) has to be found there, again with
// every piece.  Only a sender that comes over loopback is asked; one in a
// container of its own, of another user, or behind a kernel that forbids it
// sends its bytes, as everybody else does.
class Borrower {
 public:
  Borrower() = default;  // of a stream on which nothing is lent
  // near: the stream comes over loopback.
  Borrower(bool near, const RoundProcess& from, const RoundProcess& to);

  // After the frame was taken: whether a receipt is due.  One is for some loans
  // together, and for all before a frame that is none.
  bool OnFrame(const RoundFrameHeader& header);

  // Copies a lent piece and gives its XXH3-64.
  // Errors: InvalidArgument  nothing was shown to be the sender's
  //         DataLoss         it cannot be read: the sender is to send it
  absl::StatusOr<uint64_t> Read(uint64_t address,
                                absl::Span<uint8_t> target) const;

  // A paceline.v1.RoundReceipt, of how things stand.
  std::string Receipt();

  // Below Lender::kMostLent, or both would wait for each other.
  static constexpr int64_t kLoansAReceipt = 4;

 private:
  // Where the proof is, and whose memory that is.
  bool IsShown(const RoundMemory& memory) const;

  uint64_t word_ = 0;   // 0: none was told
  uint64_t proof_ = 0;  // that belongs to it
  RoundMemory memory_;  // that was shown; process 0: none
  int64_t taken_ = 0;
  int64_t told_ = 0;  // of taken_
};

}  // namespace paceline

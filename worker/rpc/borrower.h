// The receiving side of pieces that a sender on the same machine lends: they
// stay where they are, and the receiver reads them there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/transfer/round_frame.h"

namespace paceline {

// Of one stream.  Thread-compatible.
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

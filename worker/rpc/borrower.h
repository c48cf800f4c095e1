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
// its memory.  So it has to show that the memory is its own: a word that nobody
// can guess has to be found there.  Only a sender that comes over loopback is
// asked; one in a container of its own, of another user, or behind a kernel
// that forbids it sends its bytes, as everybody else does.
class Borrower {
 public:
  // near: the stream comes over loopback.
  explicit Borrower(bool near = false);

  // Before or after the frame was taken, whichever; whether a receipt is due.
  bool OnFrame(const RoundFrameHeader& header);

  // Copies a lent piece and gives its XXH3-64.
  // Errors: InvalidArgument  nothing was shown to be the sender's
  //         DataLoss         it cannot be read: the sender is to send it
  absl::StatusOr<uint64_t> Read(uint64_t address,
                                absl::Span<uint8_t> target) const;

  // A paceline.v1.RoundReceipt, of how things stand.
  std::string Receipt() const;

 private:
  uint64_t word_ = 0;  // 0: none was told
  int process_ = 0;    // whose memory was shown; 0: none
  int64_t taken_ = 0;
};

}  // namespace paceline

#include "worker/rpc/borrower.h"

#include <sys/random.h>

#include "absl/strings/str_cat.h"
#include "core/transfer/checksum.h"
#include "paceline/v1/round.pb.h"
#include "worker/rpc/near_memory.h"

namespace paceline {

Borrower::Borrower(bool near) {
  if (!near) return;
  // Where there is no chance there is no word, and nothing is lent.
  if (getrandom(&word_, sizeof(word_), GRND_NONBLOCK) != sizeof(word_)) {
    word_ = 0;
  }
}

bool Borrower::OnFrame(const RoundFrameHeader& header) {
  if (header.address != 0) ++taken_;
  bool shown = false;
  if (header.memory.has_value() && word_ != 0 && process_ == 0) {
    uint64_t found = 0;
    const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(&found),
                                    sizeof(found));
    shown = ReadNear(header.memory->process, header.memory->word_address, bytes)
                .ok() &&
            found == word_;
    if (shown) process_ = header.memory->process;
  }
  return shown || header.address != 0;
}

absl::StatusOr<uint64_t> Borrower::Read(uint64_t address,
                                        absl::Span<uint8_t> target) const {
  if (process_ == 0) {
    return absl::InvalidArgumentError(
        "a lent piece of a sender whose memory was never shown to be its own");
  }
  if (const absl::Status read = ReadNear(process_, address, target);
      !read.ok()) {
    return absl::DataLossError(absl::StrCat(read.message(), ": send it"));
  }
  Checksum checksum;
  checksum.Update(target);
  return checksum.Digest();
}

std::string Borrower::Receipt() const {
  v1::RoundReceipt receipt;
  receipt.set_word(word_);
  receipt.set_readable(process_ != 0);
  receipt.set_taken(taken_);
  return receipt.SerializeAsString();
}

}  // namespace paceline

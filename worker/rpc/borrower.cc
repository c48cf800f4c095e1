#include "worker/rpc/borrower.h"

#include <sys/random.h>

#include "core/transfer/checksum.h"
#include "paceline/v1/round.pb.h"
#include "worker/rpc/near_memory.h"

namespace paceline {
namespace {

absl::Span<uint8_t> BytesOf(uint64_t& value) {
  return {reinterpret_cast<uint8_t*>(&value), sizeof(value)};
}

}  // namespace

Borrower::Borrower(bool near, const RoundProcess& from,
                   const RoundProcess& to) {
  if (!near) return;
  // Where there is no chance there is no word, and nothing is lent.
  if (getrandom(&word_, sizeof(word_), GRND_NONBLOCK) != sizeof(word_)) {
    word_ = 0;
  }
  proof_ = MemoryProof(word_, from, to);
}

bool Borrower::OnFrame(const RoundFrameHeader& header) {
  if (header.address != 0) {
    ++taken_;
    return taken_ - told_ >= kLoansAReceipt;
  }
  const bool shown = header.memory.has_value() && word_ != 0 &&
                     memory_.process == 0 && IsShown(*header.memory);
  if (shown) memory_ = *header.memory;
  return shown || taken_ != told_;
}

bool Borrower::IsShown(const RoundMemory& memory) const {
  uint64_t found = 0;
  return ReadNear(memory.process, {{memory.word_address, BytesOf(found)}})
             .ok() &&
         found == proof_;
}

absl::StatusOr<uint64_t> Borrower::Read(uint64_t address,
                                        absl::Span<uint8_t> target) const {
  if (memory_.process == 0) {
    return absl::InvalidArgumentError(
        "a lent piece of a sender whose memory was never shown to be its own");
  }
  uint64_t found = 0;
  const absl::Status read =
      ReadNear(memory_.process,
               {{memory_.word_address, BytesOf(found)}, {address, target}});
  // One answer, whatever is there: the sender is to learn nothing of it.
  if (!read.ok() || found != proof_) {
    return absl::DataLossError("a lent piece cannot be read: send it again");
  }
  Checksum checksum;
  checksum.Update(target);
  return checksum.Digest();
}

std::string Borrower::Receipt() {
  told_ = taken_;
  v1::RoundReceipt receipt;
  receipt.set_word(word_);
  receipt.set_readable(memory_.process != 0);
  receipt.set_taken(taken_);
  return receipt.SerializeAsString();
}

}  // namespace paceline

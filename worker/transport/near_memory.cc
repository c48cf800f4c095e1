#include "worker/transport/near_memory.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/transfer/checksum.h"
#include "paceline/v1/round.pb.h"

namespace paceline {

bool IsNear(const std::string& peer) {
  return absl::StartsWith(peer, "ipv4:127.") ||
         absl::StartsWith(peer, "ipv6:[::1]:") ||
         absl::StartsWith(peer, "ipv6:%5B::1%5D:");
}

absl::Status ReadNear(int process, absl::Span<const NearBytes> bytes) {
  std::vector<iovec> here, there;
  size_t wanted = 0;
  for (const NearBytes& each : bytes) {
    here.push_back({each.target.data(), each.target.size()});
    there.push_back(
        {reinterpret_cast<void*>(each.address), each.target.size()});
    wanted += each.target.size();
  }
  const ssize_t read = process_vm_readv(process, here.data(), here.size(),
                                        there.data(), there.size(), 0);
  if (read == static_cast<ssize_t>(wanted)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot read ", wanted, " bytes of process ", process, ": ",
                   read < 0 ? strerror(errno) : "no memory there"));
}

uint64_t MemoryProof(uint64_t word, const RoundProcess& from,
                     const RoundProcess& to) {
  Sha256 hash;
  hash.Update(absl::StrCat(word, " ", from.worker, " ", from.incarnation, " ",
                           to.worker, " ", to.incarnation));
  uint64_t proof = 0;
  PACELINE_CHECK(absl::SimpleHexAtoi(hash.HexDigest().substr(0, 16), &proof),
                 "a digest that is not hexadecimal");
  return proof == 0 ? 1 : proof;
}

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
namespace {

absl::Span<uint8_t> BytesOf(uint64_t& value) {
  return {reinterpret_cast<uint8_t*>(&value), sizeof(value)};
}

}  // namespace

Borrower::Borrower(bool near, const RoundProcess& from,
                   const RoundProcess& to) {
  if (!near) return;
  // Without a random word the sender lends nothing.
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
  // Every failure gets the same answer, so that the sender learns nothing about
  // the memory.
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

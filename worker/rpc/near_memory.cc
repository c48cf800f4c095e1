#include "worker/rpc/near_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/transfer/checksum.h"

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

}  // namespace paceline

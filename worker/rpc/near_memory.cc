#include "worker/rpc/near_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace paceline {

bool IsNear(const std::string& peer) {
  return absl::StartsWith(peer, "ipv4:127.") ||
         absl::StartsWith(peer, "ipv6:[::1]:") ||
         absl::StartsWith(peer, "ipv6:%5B::1%5D:");
}

absl::Status ReadNear(int process, uint64_t address,
                      absl::Span<uint8_t> target) {
  size_t done = 0;
  while (done < target.size()) {
    const iovec here = {target.data() + done, target.size() - done};
    const iovec there = {reinterpret_cast<void*>(address + done),
                         target.size() - done};
    const ssize_t bytes = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (bytes <= 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot read ", target.size() - done, " bytes of process ", process,
          ": ", bytes < 0 ? strerror(errno) : "nothing there"));
    }
    done += static_cast<size_t>(bytes);
  }
  return absl::OkStatus();
}

}  // namespace paceline

// Memory of another process of this machine, read while that one goes on with
// its work: process_vm_readv, what MPI calls cross-memory attach.  The kernel
// allows it between processes of one user, where it allows a debugger.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/transfer/round_frame.h"

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

// What a sender puts into its memory when it is told `word`.  It holds for one
// pair of processes: who passes the word on to somebody else, to have that one
// vouch for its memory, gets something of no use.  Never 0.
uint64_t MemoryProof(uint64_t word, const RoundProcess& from,
                     const RoundProcess& to);

}  // namespace paceline

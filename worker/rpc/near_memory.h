// Memory of another process of this machine, read while that one goes on with
// its work: process_vm_readv, what MPI calls cross-memory attach.  The kernel
// allows it between processes of one user, where it allows a debugger.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace paceline {

// Whether a call came over loopback.  peer: as gRPC calls the other side of it,
// "ipv4:127.0.0.1:40312".
bool IsNear(const std::string& peer);

// Copies as many bytes as `target` has.  process: as this process sees it.
// Errors: Unavailable  not allowed, no such process, or no memory there: why
absl::Status ReadNear(int process, uint64_t address,
                      absl::Span<uint8_t> target);

}  // namespace paceline

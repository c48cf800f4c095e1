// One end of one transfer, as a process of its own.
#pragma once

#include <cstdint>
#include <string>

namespace paceline {

struct TransferSpec {
  int64_t frame_bytes = 0;
  int64_t frames = 0;
};

// way: plane; grpc; grpc+: with the allocator's settings of the data plane;
// tcp.  Prints the port it listens on, reads that of the
// other end, transfers; the receiver prints "seconds cpu_seconds", the sender,
// when told that all is done, "cpu_seconds".
void RunTransfer(const std::string& way, bool send, const TransferSpec& spec);

}  // namespace paceline

// One end of one transfer, as a process of its own.
#pragma once

#include <cstdint>
#include <string>

namespace paceline {

struct TransferSpec {
  int64_t frame_bytes = 0;
  int64_t frames = 0;
  std::string identity;  // the folder of both ends' certificate
};

// Makes an authority and, in a fresh folder, a worker's certificate of it.
std::string MakeIdentity();

// way: plane; tls: the same with TLS; grpc; grpc+: with the allocator's
// settings of the data plane.  Prints the port it listens on, reads that
// of the other end, transfers; the receiver prints "seconds cpu_seconds", the
// sender, when told that all is done, "cpu_seconds".
void RunTransfer(const std::string& way, bool send, const TransferSpec& spec);

}  // namespace paceline

// Everybody sends to everybody over gRPC alone: the measure for rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/impl/codegen/service_type.h"

namespace paceline {

// A raw callback service that throws away what it reads, and streams to others
// of its kind, a message of kRoundChunkBytes at a time.  Thread-compatible.
class BareExchange {
 public:
  BareExchange();
  ~BareExchange();

  grpc::Service* service();

  // Connects to those at `addresses`, once.
  void Connect(const std::vector<std::string>& addresses);
  // Sends `bytes` to each of them at the same time, and waits until all of them
  // have read them: the first half out of memory of its own, as parts are, the
  // other out of the same, as a result is.
  void Send(int64_t bytes);

 private:
  class Service;
  class Stream;

  const std::unique_ptr<Service> service_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<uint8_t> memory_;
};

}  // namespace paceline

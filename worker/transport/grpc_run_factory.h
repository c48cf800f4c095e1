// The connections of the real RunFactory: the planes and the coordinator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/os/thread.h"
#include "grpcpp/channel.h"
#include "worker/control/run_factory.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/transport/round/round_plane.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {

// They outlive the factory.
struct GrpcConnections {
  DataPlane& data_plane;
  RoundPlane& round_plane;
  std::shared_ptr<grpc::Channel> coordinator;
};

// Connects runs.  Engines and data are in main()'s subclass, because this
// folder may not know them.  Immutable.
class GrpcRunFactory : public RunFactory {
 public:
  explicit GrpcRunFactory(const GrpcConnections& connections)
      : connections_(connections) {}

  absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) override {
    return connections_.data_plane.Open(wiring);
  }
  absl::StatusOr<std::shared_ptr<RoundTransport>> ConnectGroup(
      const Fence& fence, const MemberId& self, RoundSink* sink) override {
    return connections_.round_plane.Open(fence, self, sink);
  }
  absl::Status OpenGate(const Fence& fence,
                        const GateOptions& options) override {
    return connections_.data_plane.OpenGate(fence, options);
  }
  absl::Status UploadWeights(const Fence& fence,
                             const std::vector<TensorPart>& parts,
                             const CancelToken& cancel) override;

 private:
  const GrpcConnections connections_;
};

// Hands weights over to the coordinator.

constexpr int64_t kUploadChunkBytes = 256 << 10;

struct UploadPace {
  // A call sends chunks for this long, at least one.  The coordinator's receipt
  // says that they are on its disk.
  absl::Duration call = absl::Seconds(5);
  // A call without a receipt by then counts as stalled.  A link of 20 KB/s
  // carries a chunk and full socket buffers in this time.
  absl::Duration deadline = absl::Minutes(2);
};

// Sends `parts` in chunks until the coordinator has acknowledged all.  After a
// call that breaks or stalls it tries again without limit, from the last
// acknowledged chunk.
// Errors: as RunFactory::UploadWeights.
absl::Status UploadWeights(const std::shared_ptr<grpc::Channel>& coordinator,
                           const Fence& fence,
                           const std::vector<TensorPart>& parts,
                           const CancelToken& cancel,
                           const UploadPace& pace = {});

}  // namespace paceline

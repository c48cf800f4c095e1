// The real RunFactory.  It has the planes, the coordinator, and the engine and
// data that main() provides.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/os/thread.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "worker/control/run_factory.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/transport/round/round_plane.h"
#include "worker/transport/stage/data_plane.h"

namespace paceline {

// Functions from main(), because this folder may not know engines and data.
struct ComputeParts {
  std::function<void(int threads)> set_threads;
  std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
      const EngineOptions&)>
      make_engine;
  std::function<absl::StatusOr<std::unique_ptr<BatchSource>>(const JobSpec&,
                                                             const Turns&)>
      open_data;
  std::function<absl::StatusOr<std::vector<NamedTensor>>(
      const ModelSpec&, const ModelDescription&, const LayerRange&,
      WeightsOrigin*)>
      read_weights;
  std::function<absl::StatusOr<ScriptModel>(const JobSpec&)> read_script;
};

// Immutable.
class GrpcRunFactory final : public RunFactory {
 public:
  // The planes and `coordinator` outlive this.
  GrpcRunFactory(ComputeParts compute, DataPlane& data_plane,
                 RoundPlane& round_plane, v1::Coordinator::Stub& coordinator)
      : compute_(std::move(compute)),
        data_plane_(data_plane),
        round_plane_(round_plane),
        coordinator_(coordinator) {}

  void SetThreads(int threads) override { compute_.set_threads(threads); }
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const EngineOptions& options) override {
    return compute_.make_engine(options);
  }
  absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec) override {
    return compute_.read_script(spec);
  }
  absl::StatusOr<std::vector<NamedTensor>> ReadWeights(
      const ModelSpec& spec, const ModelDescription& model,
      const LayerRange& layers, WeightsOrigin& origin) override {
    return compute_.read_weights(spec, model, layers, &origin);
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) override {
    return compute_.open_data(spec, turns);
  }
  absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) override {
    return data_plane_.Open(wiring);
  }
  absl::StatusOr<std::shared_ptr<RoundTransport>> ConnectGroup(
      const Fence& fence, const MemberId& self, RoundSink* sink) override {
    return round_plane_.Open(fence, self, sink);
  }
  absl::Status OpenGate(const Fence& fence,
                        const GateOptions& options) override {
    return data_plane_.OpenGate(fence, options);
  }
  absl::Status UploadWeights(const Fence& fence,
                             const std::vector<TensorPart>& parts,
                             const CancelToken& cancel) override;

 private:
  const ComputeParts compute_;
  DataPlane& data_plane_;
  RoundPlane& round_plane_;
  v1::Coordinator::Stub& coordinator_;
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
absl::Status UploadWeights(v1::Coordinator::Stub& stub, const Fence& fence,
                           const std::vector<TensorPart>& parts,
                           const CancelToken& cancel,
                           const UploadPace& pace = {});

}  // namespace paceline

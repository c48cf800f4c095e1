// The real RunFactory: the planes, the coordinator, and whatever engine
// and data main() has put in.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "paceline/v1/coordinator.grpc.pb.h"
#include "worker/rpc/data_plane.h"
#include "worker/rpc/round_plane.h"
#include "worker/run_factory.h"

namespace paceline {

// What main() knows and this folder may not: engines and data.
struct ComputeParts {
  std::function<void(int threads)> set_threads;
  std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
      const EngineOptions&)>
      make_engine;
  std::function<absl::StatusOr<std::unique_ptr<BatchSource>>(const JobSpec&,
                                                             const Turns&)>
      open_data;
  std::function<absl::StatusOr<std::vector<NamedTensor>>(
      const ModelSpec&, const ModelDescription&, const LayerRange&)>
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
      const LayerRange& layers) override {
    return compute_.read_weights(spec, model, layers);
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) override {
    return compute_.open_data(spec, turns);
  }
  absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) override {
    return data_plane_.Open(wiring);
  }
  absl::StatusOr<std::unique_ptr<RoundTransport>> ConnectGroup(
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

}  // namespace paceline

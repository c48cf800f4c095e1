// Makes runs of one process from FakeEngines and real data, and from nothing
// else unless a test says so.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster/run_order.h"
#include "core/model/catalog.h"
#include "paceline/v1/types.pb.h"
#include "tests/support/pipeline/fake_engine.h"
#include "worker/control/run_factory.h"
#include "worker/data/sample_set.h"

namespace paceline {

inline v1::LogLine LineOf(const std::string& text) {
  v1::LogLine line;
  line.set_level("info");
  line.set_text(text);
  return line;
}

class FakeRunFactory : public RunFactory {
 public:
  void SetThreads(int) override {}
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const EngineOptions& options) override {
    return std::make_unique<FakeEngine>(options);
  }
  absl::StatusOr<ScriptModel> ReadScript(const JobSpec&) override {
    return absl::UnimplementedError("no scripts here");
  }
  absl::StatusOr<std::vector<NamedTensor>> ReadWeights(
      const ModelSpec&, const ModelDescription&, const LayerRange&,
      WeightsOrigin&) override {
    return absl::UnimplementedError("no weights here");
  }
  absl::StatusOr<uint64_t> FingerprintOf(const std::string&) override {
    return 7;
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) override {
    return OpenBatchSource(spec, turns);
  }
  absl::StatusOr<RunConnections> Connect(const RunWiring&) override {
    return absl::UnimplementedError("no neighbours here");
  }
  absl::Status OpenGate(const Fence&, const GateOptions&) override {
    return absl::OkStatus();
  }
  absl::Status UploadWeights(const Fence&, const std::vector<TensorPart>&,
                             const CancelToken&) override {
    return absl::OkStatus();
  }
};

// To hold the whole model.
inline RunOrder WholeModelOrder(const Fence& fence, JobSpec spec,
                                WorkerId self) {
  RunOrder order;
  order.fence = fence;
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  order.stages = {
      {0, {0, static_cast<int>(model->layers.size())}, self, "w", "h:1"}};
  order.spec = std::move(spec);
  order.cpu_capability = "avx2";
  return order;
}

}  // namespace paceline

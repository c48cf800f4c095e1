// A FakeEngine with something changed: what a test does not override passes
// through.
#pragma once

#include <utility>
#include <vector>

#include "tests/support/fake_engine.h"

namespace paceline {

class WrappedEngine : public StageEngine {
 public:
  explicit WrappedEngine(const EngineOptions& options) : engine_(options) {}

  absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch, int micro_batch,
                                        TensorList input) override {
    return engine_.Forward(batch, micro_batch, std::move(input));
  }
  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList gradient) override {
    return engine_.Backward(batch, micro_batch, std::move(gradient));
  }
  absl::StatusOr<TensorList> BackwardInput(const BatchInfo& batch,
                                           int micro_batch,
                                           TensorList gradient) override {
    return engine_.BackwardInput(batch, micro_batch, std::move(gradient));
  }
  absl::Status BackwardWeight(const BatchInfo& batch,
                              int micro_batch) override {
    return engine_.BackwardWeight(batch, micro_batch);
  }
  absl::StatusOr<TiedTensors> Tied(const std::string& name,
                                   bool owner) override {
    return engine_.Tied(name, owner);
  }
  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override {
    return engine_.Report(batch);
  }
  absl::Status Apply(const StepVerdict& verdict) override {
    return engine_.Apply(verdict);
  }
  absl::Status UseVersion(int64_t version) override {
    return engine_.UseVersion(version);
  }
  StashReading Stash() const override { return engine_.Stash(); }
  absl::StatusOr<std::vector<NamedTensor>> Weights() override {
    return engine_.Weights();
  }
  absl::Status SetWeights(const std::vector<NamedTensor>& weights) override {
    return engine_.SetWeights(weights);
  }

 private:
  FakeEngine engine_;
};

}  // namespace paceline

// A stage without LibTorch: the same interface, the same rules (sums, order,
// same bytes at any cut), arithmetic that a test can follow by hand.  It is
// what the torch-free build runs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/stage_engine.h"

namespace paceline {

// Each layer maps x of n elements to y of m elements:
//
//   y[j] = w[j mod |w|] * x[j mod n] + b[j mod |b|]
//
// where w is the layer's first trainable parameter and b its second; without
// them w = 1 and b = 0.  The loss of a sample is half the squared distance
// between y and the one-hot vector of its label.
//
// Lives on the compute thread.
class FakeEngine final : public StageEngine {
 public:
  explicit FakeEngine(EngineOptions options);

  absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch, int micro_batch,
                                        TensorList input) override;
  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList output_gradient) override;
  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override;
  absl::Status Apply(const StepVerdict& verdict) override;
  absl::StatusOr<std::vector<NamedTensor>> Weights() override;
  absl::Status SetWeights(const std::vector<NamedTensor>& weights) override;

 private:
  struct FakeParameter {
    std::string name;
    bool trainable = true;
    Tensor value;
    Tensor gradient;
    std::vector<Tensor> state;
  };
  struct FakeLayer {
    int64_t outputs = 0;  // elements of a sample
    std::vector<FakeParameter> parameters;
    int weight = -1;  // index into parameters, -1: none
    int bias = -1;
  };
  // What backward needs of one micro-batch.
  struct Kept {
    std::vector<Tensor> inputs;  // of each layer
    Tensor output;
    Tensor labels;
  };

  absl::Status CheckInput(const TensorList& input) const;
  Tensor ForwardLayer(const FakeLayer& layer, const Tensor& input,
                      const Shape& sample_shape) const;
  Tensor BackwardLayer(FakeLayer& layer, const Tensor& input,
                       const Tensor& output_gradient);
  void Say(int layer, bool backward) const;  // on_layer
  LossSums Loss(const Tensor& output, const Tensor& labels) const;
  bool last() const { return options_.stage + 1 == options_.stages; }

  const EngineOptions options_;
  std::vector<FakeLayer> layers_;
  std::map<int, Kept> kept_;  // by micro-batch
  int64_t samples_ = 0;       // in the sum of the step
};

}  // namespace paceline

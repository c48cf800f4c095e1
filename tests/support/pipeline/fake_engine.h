// A stage without LibTorch: the same interface, the same rules (sums, order,
// same bytes at any cut), arithmetic that a test can follow by hand.  The
// torch-free build runs it.  A test that changes something derives from it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/pipeline/stage_engine.h"
#include "worker/pipeline/version_ring.h"

namespace paceline {

// Each layer maps x of n elements to y of m elements:
//
//   y[j] = w[j mod |w|] * x[j mod n] + b[j mod |b|]
//
// where w is the layer's first trainable parameter and b its second; without
// them w = 1 and b = 0.  A layer that borrows a parameter has that for w.
// Tokens are numbers like any others.  What goes beside an activation is handed
// on as far as input and output of a layer agree from the first of it on; of
// the rest of the input each float32 tensor z of k elements adds z[j mod k] to
// y[j], and of the rest of the output each float32 one of k elements begins as
// z[j] = x[j mod n], all else as zeros.  The loss of a label is half the
// squared distance between its part of y and its one-hot vector.
//
// Lives on the compute thread.
class FakeEngine : public StageEngine {
 public:
  explicit FakeEngine(EngineOptions options);

  absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch, int micro_batch,
                                        TensorList input) override;
  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList output_gradient) override;
  absl::StatusOr<TensorList> BackwardInput(const BatchInfo& batch,
                                           int micro_batch,
                                           TensorList output_gradient) override;
  absl::Status BackwardWeight(const BatchInfo& batch, int micro_batch) override;
  absl::StatusOr<TiedTensors> Tied(const std::string& name,
                                   bool owner) override;
  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override;
  absl::Status Apply(const StepVerdict& verdict) override;
  absl::Status UseVersion(int64_t version) override;
  StashReading Stash() const override;
  absl::StatusOr<std::vector<NamedTensor>> Weights() override;
  absl::Status SetWeights(const std::vector<NamedTensor>& weights) override;
  std::vector<ScatteredBytes> State() const override;
  void AbandonStep() override;
  void OnWeightsWritten() override { ++times_written_; }
  int times_written() const { return times_written_; }

 private:
  struct FakeParameter {
    std::string name;
    bool trainable = true;
    Tensor value;
    Tensor gradient;
    std::vector<Tensor> state;
    bool borrowed = false;
  };
  struct FakeLayer {
    int64_t outputs = 0;  // elements of a sample
    std::vector<FakeParameter> parameters;
    int weight = -1;  // index into parameters, -1: none
    int bias = -1;
  };
  // Backward needs this of one micro-batch.
  struct Kept {
    std::vector<Tensor> inputs;  // of each layer
    Tensor output;
    Tensor labels;
    std::vector<Tensor> output_gradients;  // of each layer, after the half
    int64_t version = 0;
  };
  using MicroBatch = std::pair<int64_t, int>;  // ordinal, micro-batch
  // The values of all parameters; the layers' own are one of these.
  using Values = std::vector<Tensor>;

  FakeLayer MakeLayer(int index) const;
  void Borrow(int index, FakeLayer& layer) const;
  size_t HandedOn(int layer) const;
  TensorList Join(int layer, const TensorList& beside, const Tensor& input,
                  Tensor& output) const;
  TensorList Part(int layer, TensorList gradients, const Tensor& input,
                  const Tensor& output_gradient, Tensor& of_input) const;
  Tensor ForwardLayer(const FakeLayer& layer, const Tensor& input,
                      const Shape& sample_shape) const;
  Tensor InputGradient(const FakeLayer& layer, const Tensor& input,
                       const Tensor& output_gradient) const;
  void AddWeightGradient(FakeLayer& layer, const Tensor& input,
                         const Tensor& output_gradient);
  absl::StatusOr<TensorList> OutputGradients(const Kept& kept,
                                             TensorList output_gradient) const;
  Tensor LossGradient(const Kept& kept) const;
  Values CurrentValues() const;
  void Load(const Values& values);
  void Say(int layer, bool backward);  // on_layer
  void LayFlat();
  void ClearSums();
  LossSums Loss(const Tensor& output, const Tensor& labels) const;
  bool last() const { return options_.stage + 1 == options_.stages; }

  const EngineOptions options_;
  std::vector<FakeLayer> layers_;
  std::map<MicroBatch, Kept> kept_;
  std::map<MicroBatch, Kept> split_;  // between the halves of their backward
  int64_t labels_ = 0;                // in the sum of the step
  std::optional<VersionRing<Values>> ring_;  // engines that stash
  int64_t gradient_version_ = 0;             // of the gradient that is summed
  int64_t staleness_ = 0;
  int times_written_ = 0;
};

}  // namespace paceline

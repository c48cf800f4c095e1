// The engine itself, for this folder; others know it by engine.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/torch/checkpoint.h"
#include "worker/torch/precision.h"
#include "worker/torch/script.h"
#include "worker/torch/split_backward.h"
#include "worker/torch/torch_layer.h"
#include "worker/torch/weight_stash.h"

namespace paceline {

// Lives on the compute thread.
class TorchEngine final : public StageEngine {
 public:
  // script: whose children are the layers, if the model is one; else empty.
  TorchEngine(const EngineOptions& options, const Script& script);

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
  void OnWeightsWritten() override { products_.ForgetAll(); }
  std::vector<ScatteredBytes> State() const override;

 private:
  // What backward needs of one micro-batch.
  struct Kept {
    KeptLayers layers;
    at::Tensor logits;  // a leaf; last stage only
    at::Tensor loss;    // last stage only
    int64_t samples = 0;
    int64_t labels = 0;
    int64_t version = 0;  // of the parameters
  };

  // What the second half of a backward needs of one micro-batch.
  struct Split {
    std::vector<WeightHalf> layers;  // in the order of the backward
    int64_t samples = 0;
    int64_t labels = 0;
    int64_t version = 0;
  };

  using MicroBatch = std::pair<int64_t, int>;  // ordinal, micro-batch

  bool is_first() const { return options_.layers.first == 0; }
  bool is_last() const { return options_.layers.last == model_layers_; }

  absl::Status CheckInput(const BatchInfo& batch, int micro_batch,
                          const TensorList& input) const;
  absl::Status CheckNotKept(const BatchInfo& batch, int micro_batch) const;
  ForwardResult Train(const BatchInfo& batch, int micro_batch, int64_t version,
                      const TensorList& input);
  ForwardResult Evaluate(const TensorList& input) const;
  absl::StatusOr<Kept> TakeKept(const BatchInfo& batch, int micro_batch,
                                const TensorList& output_gradient);
  Gradients OutputGradients(const Kept& kept, const TensorList& gradient) const;
  TensorList InputGradients(int64_t samples, const Gradients& gradients) const;
  TensorList BackwardOf(Kept kept, const TensorList& gradient);
  TensorList BackwardInputOf(Kept kept, const TensorList& gradient,
                             Split& rest) const;
  void Borrow(int layer);
  void LayFlat();
  void DropStep() override;
  void OnSummed(int64_t samples, int64_t labels, int64_t version);
  // before: as of WeightStash::Write
  void ApplyToParameters(const StepVerdict& verdict,
                         absl::Span<const Tensor> before);
  // before: null: in place
  void ApplyToParameter(const StepVerdict& verdict, const Tensor* before,
                        TorchParameter& parameter);
  void Fold();
  void ClearSums();

  const EngineOptions options_;
  const int model_layers_;
  std::vector<SampleTensor> gradients_;  // that come from the next stage
  Products products_;
  std::vector<TorchLayer> layers_;
  std::optional<StageLayers> chain_;  // over layers_

  std::map<MicroBatch, Kept> kept_;
  std::map<MicroBatch, Split> split_;  // between the halves of their backward
  int64_t summed_samples_ = 0;         // in the gradients
  int64_t summed_labels_ = 0;          // of these samples
  // Of each layer, by the micro-batches in the gradients.
  std::map<MicroBatch, std::vector<LayerStatistics>> seen_;
  std::optional<WeightStash> stash_;
  int64_t gradient_version_ = 0;  // at which the last gradient was computed
  int64_t staleness_ = 0;
};

}  // namespace paceline

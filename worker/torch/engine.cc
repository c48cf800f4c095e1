#include "worker/torch/engine.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "ATen/Version.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "c10/util/Exception.h"
#include "core/base/errors.h"
#include "core/base/tensor.h"
#include "core/model/description.h"
#include "core/model/initialize.h"
#include "core/optim/optimizer.h"
#include "core/transfer/checksum.h"
#include "torch/csrc/autograd/autograd.h"
#include "worker/torch/allocation_meter.h"
#include "worker/torch/guard.h"
#include "worker/torch/operations/precision.h"
#include "worker/torch/script.h"
#include "worker/torch/split_backward.h"
#include "worker/torch/stage_layers.h"
#include "worker/torch/tensor_bridge.h"
#include "worker/torch/torch_layer.h"
#include "worker/torch/weight_stash.h"

namespace paceline {
namespace {

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
  void AbandonStep() override;

 private:
  // A gradient is of these.
  struct Counts {
    int64_t samples = 0;
    int64_t labels = 0;
    int64_t version = 0;  // of the parameters
  };

  // Backward needs these of one micro-batch.
  struct Kept {
    KeptLayers layers;
    at::Tensor logits;  // a leaf; last stage only
    at::Tensor loss;    // last stage only
    Counts counts;
  };

  // The second half of a backward needs these of one micro-batch.
  struct Split {
    std::vector<WeightHalf> layers;  // in the order of the backward
    Counts counts;
  };

  using MicroBatch = std::pair<int64_t, int>;  // ordinal, micro-batch

  bool is_first() const { return options_.layers.first == 0; }
  bool is_last() const { return options_.layers.last == model_layers_; }

  absl::Status CheckInput(const BatchInfo& batch, int micro_batch,
                          const TensorList& input) const;
  absl::Status CheckNotKept(const BatchInfo& batch, int micro_batch) const;
  absl::StatusOr<ForwardResult> Train(const BatchInfo& batch, int micro_batch,
                                      int64_t version, const TensorList& input);
  ForwardResult Evaluate(const TensorList& input) const;
  absl::StatusOr<Kept> TakeKept(const BatchInfo& batch, int micro_batch,
                                const TensorList& output_gradient);
  Gradients OutputGradients(const Kept& kept, const TensorList& gradient) const;
  TensorList InputGradients(int64_t samples, const Gradients& gradients) const;
  void Borrow(int layer);
  void LayFlat();
  void OnLayer(const LayerDone& done);
  void SettleSum() override;
  void OnSummed(const Counts& counts);
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
  const bool trains_below_;              // in the stages before
  std::vector<SampleTensor> gradients_;  // that come from the next stage
  Products products_;
  std::vector<TorchLayer> layers_;
  std::optional<StageLayers> chain_;  // over layers_

  std::map<MicroBatch, Kept> kept_;
  std::map<MicroBatch, Split> split_;  // between the halves of their backward
  int64_t summed_samples_ = 0;         // in the gradients
  int64_t summed_labels_ = 0;          // of these samples
  int reported_ = 0;  // micro-batches of the step, as Report() was told
  // Each layer's, by the micro-batches in the gradients.
  std::map<MicroBatch, std::vector<LayerStatistics>> seen_;
  std::optional<WeightStash> stash_;
  int64_t gradient_version_ = 0;  // at which the last gradient was computed
  int64_t staleness_ = 0;
};

TorchEngine::TorchEngine(const EngineOptions& options, const Script& script)
    : options_(options),
      model_layers_(static_cast<int>(options.model.layers.size())),
      trains_below_(TrainsBelow(options.model, options.layers.first)),
      products_(options.precision) {
  const auto& [first, last] = options_.layers;
  const std::vector<Layer>& layers = options_.model.layers;
  if (!is_last()) gradients_ = GradientTensors(layers[last - 1]);
  const int slots =
      options_.inference ? kNoGradient : StateSlots(options_.train.optimizer);
  layers_.reserve(last - first);
  for (int i = first; i < last; ++i) {
    if (script.children.empty()) {
      layers_.emplace_back(layers[i], options_.train.seed, i, slots, products_);
      Borrow(i);
    } else {
      layers_.emplace_back(layers[i], script.children[i].second, slots,
                           products_);
    }
  }
  chain_.emplace(
      layers_,
      StageLayersOptions{
          .first_layer = first,
          .train = options_.train,
          .blocks = DroppableBlocks(options_.model, first, last),
          .recompute = FindRecompute(options_.train.activation_checkpointing)
                           .value_or(Recompute()),
          .keeps_buffers = options_.stashes,
          .on_layer = options_.flat_gradient
                          ? [this](const LayerDone& done) { OnLayer(done); }
                          : options_.on_layer,
          .counts_memory = !options_.flat_gradient});
  if (options_.flat_gradient && !options_.inference) LayFlat();
  if (options_.stashes) stash_.emplace(layers_, products_);
}

// The parameters that `layer` borrows begin with their owners' first values.
void TorchEngine::Borrow(int layer) {
  std::vector<absl::Span<float>> values;
  for (TorchParameter& parameter : layers_.back().parameters()) {
    if (parameter.borrowed) values.push_back(parameter.value.As<float>());
  }
  if (values.empty()) return;
  InitializeBorrowed(options_.model, layer, options_.train.seed, values);
}

absl::Status TorchEngine::CheckInput(const BatchInfo& batch, int micro_batch,
                                     const TensorList& input) const {
  if (micro_batch < 0 || micro_batch >= batch.micro_batches) {
    return InvalidArgument("micro-batch ", micro_batch, " of a batch of ",
                           batch.micro_batches);
  }
  const int64_t samples =
      MicroBatchSamples(batch, options_.train.micro_batch, micro_batch);
  PACELINE_RETURN_IF_ERROR(
      CheckStageInput(options_.model, options_.layers.first, samples, input));
  return is_last() ? CheckLabels(input.back(), options_.model.classes)
                   : absl::OkStatus();
}

absl::StatusOr<ForwardResult> TorchEngine::Forward(const BatchInfo& batch,
                                                   int micro_batch,
                                                   TensorList input) {
  PACELINE_RETURN_IF_ERROR(CheckInput(batch, micro_batch, input));
  const bool training = batch.phase == BatchPhase::kTrain;
  if (training && options_.inference) {
    return FailedPrecondition(
        "a batch of training for an engine that was made for inference");
  }
  if (!training) {
    if (stash_.has_value()) stash_->BindNewest();
    return Guard("forward", [&]() -> absl::StatusOr<ForwardResult> {
      return Evaluate(input);
    });
  }
  PACELINE_RETURN_IF_ERROR(CheckNotKept(batch, micro_batch));
  int64_t version = 0;
  if (stash_.has_value()) {
    PACELINE_ASSIGN_OR_RETURN(version, stash_->Begin());
  }
  return Guard("forward", [&]() -> absl::StatusOr<ForwardResult> {
    return Train(batch, micro_batch, version, input);
  });
}

// Without a flush other batches may wait for their backward.
absl::Status TorchEngine::CheckNotKept(const BatchInfo& batch,
                                       int micro_batch) const {
  if (kept_.empty() ||
      (kept_.count({batch.ordinal, micro_batch}) == 0 &&
       (stash_.has_value() || kept_.begin()->first.first == batch.ordinal))) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "forward of batch ", batch.ordinal, ", micro-batch ", micro_batch,
      " while batch ", kept_.begin()->first.first,
      " still waits for the backward of ", kept_.size(), " micro-batches");
}

absl::StatusOr<ForwardResult> TorchEngine::Train(const BatchInfo& batch,
                                                 int micro_batch,
                                                 int64_t version,
                                                 const TensorList& input) {
  Kept kept;
  kept.counts = {input.back().shape[0], CountLabels(input.back()), version};
  kept.layers.step = batch.step;
  kept.layers.micro_batch = micro_batch;
  std::vector<at::Tensor> beside = BesideOf(input);
  // Samples need no gradient, and nothing does before the first parameter that
  // trains.
  bool needs_gradient = trains_below_;
  const at::Tensor x = chain_->Forward(ToTorch(input[0]), &beside,
                                       &needs_gradient, &kept.layers);
  ForwardResult result;
  if (is_last()) {
    // Also where all that trains was dropped.
    kept.logits = x.set_requires_grad(true);
    kept.loss = LossOf(kept.logits, input.back());
    result.loss = SumsOf(kept.loss, kept.logits, input.back());
    if (options_.teacher != nullptr) {
      BatchInfo shown = batch;
      shown.phase = BatchPhase::kEvaluate;
      PACELINE_ASSIGN_OR_RETURN(
          const ForwardResult taught,
          options_.teacher->Forward(shown, micro_batch, input));
      kept.loss =
          DistilledLossOf(kept.loss, kept.logits, ToTorch(taught.output[0]),
                          input.back(), options_.train.distill);
    }
  } else {
    result.output = OutputOf(x, beside, input.back());
  }
  if (is_flat()) {
    Tensor tail = FlatTail();
    absl::Span<float> sums = tail.As<float>();
    const float weight = StatisticsWeight(micro_batch, batch.micro_batches);
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].AddTo(kept.layers.statistics[i], weight, sums);
    }
  }
  kept_.emplace(MicroBatch(batch.ordinal, micro_batch), std::move(kept));
  return result;
}

ForwardResult TorchEngine::Evaluate(const TensorList& input) const {
  const c10::InferenceMode guard;
  at::Tensor x = ToTorch(input[0]);
  std::vector<at::Tensor> beside = BesideOf(input);
  for (const TorchLayer& layer : layers_) {
    x = layer.Forward(x, /*training=*/false, /*statistics=*/nullptr, &beside);
  }
  ForwardResult result;
  if (!is_last()) {
    result.output = OutputOf(x, beside, input.back());
    return result;
  }
  result.loss = SumsOf(LossOf(x, input.back()), x, input.back());
  if (options_.inference) result.output = {FromTorch(x), input.back()};
  return result;
}

absl::StatusOr<TorchEngine::Kept> TorchEngine::TakeKept(
    const BatchInfo& batch, int micro_batch,
    const TensorList& output_gradient) {
  const auto found = kept_.find({batch.ordinal, micro_batch});
  if (found == kept_.end()) {
    return FailedPrecondition("backward of batch ", batch.ordinal,
                              ", micro-batch ", micro_batch,
                              " without its forward");
  }
  if (output_gradient.size() != gradients_.size()) {
    return InvalidArgument("got ", output_gradient.size(),
                           " gradient tensors, need ", gradients_.size());
  }
  for (size_t i = 0; i < gradients_.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(CheckTensor("gradient", output_gradient[i],
                                         found->second.counts.samples,
                                         {DType::kF32, gradients_[i].shape}));
  }
  Kept kept = std::move(found->second);
  kept_.erase(found);
  if (stash_.has_value() && chain_->recomputes()) {
    stash_->BindAgain(kept.counts.version);
  }
  seen_[{batch.ordinal, micro_batch}] = std::move(kept.layers.statistics);
  return kept;
}

absl::StatusOr<TensorList> TorchEngine::Backward(const BatchInfo& batch,
                                                 int micro_batch,
                                                 TensorList output_gradient) {
  PACELINE_ASSIGN_OR_RETURN(Kept kept,
                            TakeKept(batch, micro_batch, output_gradient));
  return Guard("backward", [&]() -> absl::StatusOr<TensorList> {
    const Counts counts = kept.counts;
    Gradients of_output = OutputGradients(kept, output_gradient);
    // The graph is gone before its version may be.
    TensorList input_gradient = InputGradients(
        counts.samples,
        chain_->Backward(std::exchange(kept, {}).layers, std::move(of_output)));
    OnSummed(counts);
    return input_gradient;
  });
}

absl::StatusOr<TensorList> TorchEngine::BackwardInput(
    const BatchInfo& batch, int micro_batch, TensorList output_gradient) {
  PACELINE_ASSIGN_OR_RETURN(Kept kept,
                            TakeKept(batch, micro_batch, output_gradient));
  return Guard("backward, input", [&]() -> absl::StatusOr<TensorList> {
    Split& rest = split_[{batch.ordinal, micro_batch}];
    rest.counts = kept.counts;
    Gradients of_output = OutputGradients(kept, output_gradient);
    return InputGradients(
        rest.counts.samples,
        chain_->BackwardInput(std::exchange(kept, {}).layers,
                              std::move(of_output), &rest.layers));
  });
}

absl::Status TorchEngine::BackwardWeight(const BatchInfo& batch,
                                         int micro_batch) {
  auto node = split_.extract({batch.ordinal, micro_batch});
  if (node.empty()) {
    return FailedPrecondition("backward of the weights of batch ",
                              batch.ordinal, ", micro-batch ", micro_batch,
                              " without that of its input");
  }
  return Guard("backward, weights", [&] {
    Split split = std::move(node.mapped());
    for (WeightHalf& layer : split.layers) {
      paceline::BackwardWeight(std::move(layer));
    }
    split.layers.clear();
    OnSummed(split.counts);
    return absl::OkStatus();
  });
}

// A gradient is in the sum, and its graph is gone.
void TorchEngine::OnSummed(const Counts& counts) {
  summed_samples_ += counts.samples;
  summed_labels_ += counts.labels;
  gradient_version_ = counts.version;
  if (stash_.has_value()) stash_->Release(counts.version);
}

Gradients TorchEngine::OutputGradients(const Kept& kept,
                                       const TensorList& gradient) const {
  if (is_last()) {
    torch::autograd::backward({kept.loss}, {});
    return {kept.logits.grad()};
  }
  Gradients gradients;
  for (const Tensor& tensor : gradient) gradients.push_back(ToTorch(tensor));
  return gradients;
}

// As the stage before expects them: all of them, zeros where nothing trains.
TensorList TorchEngine::InputGradients(int64_t samples,
                                       const Gradients& gradients) const {
  if (is_first()) return {};
  const Layer& before = options_.model.layers[options_.layers.first - 1];
  const std::vector<SampleTensor> expected = GradientTensors(before);
  TensorList list;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool came =
        trains_below_ && i < gradients.size() && gradients[i].defined();
    list.push_back(
        FromTorch(came ? gradients[i].contiguous()
                       : at::zeros(Batched(samples, expected[i].shape))));
  }
  return list;
}

absl::StatusOr<TiedTensors> TorchEngine::Tied(const std::string& name,
                                              bool owner) {
  if (is_flat()) return OwnTies();
  for (TorchParameter& parameter : AllParameters(layers_)) {
    if (parameter.name == name && parameter.borrowed != owner) {
      // The caller may write to the borrowed value, which makes its cast
      // stale.
      if (!owner) products_.Forget(parameter.variable);
      return TiedTensors{parameter.value, parameter.gradient};
    }
  }
  return NotFound("no layer here ", owner ? "owns " : "borrows ", name);
}

absl::StatusOr<StepReport> TorchEngine::Report(const BatchInfo& batch) {
  const bool waits = !stash_.has_value() && !kept_.empty();
  if (waits || !split_.empty() ||
      (!is_flat() && summed_samples_ != batch.samples)) {
    return FailedPrecondition("the gradient of step ", batch.step, " sums ",
                              summed_samples_, " samples, need ",
                              batch.samples);
  }
  SettleSum();
  StepReport report;
  report.step = batch.step;
  report.stage = options_.stage;
  report.samples = summed_labels_;
  Checksum checksum;
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    if (!parameter.updates()) continue;
    const std::vector<absl::Span<const float>> sum = SumOf(parameter.gradient);
    // The members of a group have hashed what they agreed on.
    if (!is_flat()) {
      checksum.Update({reinterpret_cast<const uint8_t*>(sum[0].data()),
                       sum[0].size() * sizeof(float)});
    }
    const double norm = SquaredNorm(sum);
    report.finite = report.finite && std::isfinite(norm);
    report.squared_norms.push_back(norm);
  }
  reported_ = batch.micro_batches;
  if (!is_flat()) report.result_hash = checksum.Digest();
  return report;
}

absl::Status TorchEngine::Apply(const StepVerdict& verdict) {
  if (!split_.empty() || (!stash_.has_value() && !kept_.empty())) {
    return FailedPrecondition("an update while ", kept_.size() + split_.size(),
                              " micro-batches wait for backward");
  }
  const auto apply = [&](absl::Span<const Tensor> before) {
    ApplyToParameters(verdict, before);
  };
  if (stash_.has_value()) {
    staleness_ = stash_->newest() - gradient_version_;
    stash_->Update(verdict.skip ? WeightStash::Write() : apply);
  } else if (!verdict.skip) {
    apply({});
  }
  if (!verdict.skip) Fold();
  ClearSums();
  return absl::OkStatus();
}

// Takes the micro-batches in ascending order, not in that of their backwards.
void TorchEngine::Fold() {
  if (is_flat()) {
    const std::vector<float> tail = CopyOfSum(FlatTail());
    absl::Span<const float> sums = tail;
    for (TorchLayer& layer : layers_) layer.FoldSums(reported_, sums);
    return;
  }
  for (const auto& [micro_batch, statistics] : seen_) {
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].Fold(statistics[i]);
  }
}

void TorchEngine::ApplyToParameters(const StepVerdict& verdict,
                                    absl::Span<const Tensor> before) {
  size_t next = 0;
  for (TorchParameter& parameter : AllParameters(layers_)) {
    const Tensor* const old = before.empty() ? nullptr : &before[next++];
    if (parameter.updates()) {
      ApplyToParameter(verdict, old, parameter);
    } else if (parameter.borrowed && is_flat()) {
      products_.Refresh(parameter.variable);  // the owner's was written
    }
  }
}

absl::Status TorchEngine::UseVersion(int64_t version) {
  if (stash_.has_value()) return stash_->Use(version);
  return FailedPrecondition("this engine keeps no versions");
}

StashReading TorchEngine::Stash() const {
  StashReading reading;
  reading.staleness = staleness_;
  if (stash_.has_value()) {
    reading.versions = stash_->versions();
    reading.bytes = stash_->bytes();
    return reading;
  }
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    reading.bytes += parameter.value.bytes();
  }
  return reading;
}

void TorchEngine::ApplyToParameter(const StepVerdict& verdict,
                                   const Tensor* before,
                                   TorchParameter& parameter) {
  const OptimizerSpec& optimizer = options_.train.optimizer;
  size_t done = 0;
  for (const absl::Span<const float> sum : SumOf(parameter.gradient)) {
    const auto part = [&](auto& tensor) {
      return tensor.template As<float>().subspan(done, sum.size());
    };
    std::vector<absl::Span<float>> state;
    for (Tensor& slot : parameter.state) state.push_back(part(slot));
    if (before == nullptr) {
      ApplyUpdate(optimizer, verdict, part(parameter.value), sum, state);
    } else {
      ApplyUpdateTo(optimizer, verdict, part(*before), part(parameter.value),
                    sum, state);
    }
    done += sum.size();
  }
  products_.Refresh(parameter.variable);
}

void TorchEngine::ClearSums() {
  for (TorchParameter& parameter : AllParameters(layers_)) {
    if (parameter.trainable) {
      parameter.Clear(/*lazily=*/is_flat() && !parameter.shared);
    }
  }
  if (is_flat()) {
    Tensor tail = FlatTail();
    const absl::Span<float> sums = tail.As<float>();
    std::fill(sums.begin(), sums.end(), 0.0f);
  }
  ReadOwnSum();
  summed_samples_ = 0;
  summed_labels_ = 0;
  seen_.clear();
}

absl::StatusOr<std::vector<NamedTensor>> TorchEngine::Weights() {
  std::vector<NamedTensor> weights;
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    if (parameter.borrowed) continue;
    weights.push_back({parameter.name, parameter.value});
  }
  return weights;
}

absl::Status TorchEngine::SetWeights(const std::vector<NamedTensor>& weights) {
  if (!kept_.empty() || !split_.empty() || summed_samples_ > 0) {
    return FailedPrecondition("weights cannot be set in the middle of a step");
  }
  std::vector<NamedTensor> own;
  for (const TorchParameter& parameter : AllParameters(layers_)) {
    own.push_back({parameter.name, parameter.value});
  }
  products_.ForgetAll();
  return OverwriteWeights(weights, own);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageEngine>> MakeTorchEngine(
    const EngineOptions& options) {
  const auto& [first, last] = options.layers;
  const int layers = static_cast<int>(options.model.layers.size());
  if (first < 0 || first >= last || last > layers) {
    return InvalidArgument("stage ", options.stage, " of layers [", first, ", ",
                           last, ") of a model with ", layers, " layers");
  }
  if (options.flat_gradient && options.stashes) {
    return InvalidArgument(
        "an engine keeps versions or is for data parallelism, not both");
  }
  Script script;
  if (!options.model.file.empty()) {
    PACELINE_ASSIGN_OR_RETURN(script, LoadScript(options.model.file));
    if (script.sha256 != options.model.file_sha256 ||
        script.children.size() != options.model.layers.size()) {
      return FailedPrecondition(
          options.model.file, " has sha256 ", script.sha256,
          " on this worker, the job was submitted for ",
          options.model.file_sha256, ": put the same file on every worker");
    }
  }
  CountLibTorchsMemory();
  return Guard("model", [&]() -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    return std::make_unique<TorchEngine>(options, script);
  });
}

// The view of a layer takes the place of memory of its own, one by one: there
// are never two gradients of the whole stage.
void TorchEngine::LayFlat() {
  MakeFlat(options_);
  const std::vector<size_t> offsets = GradientOffsets();
  std::map<std::string, TorchParameter*> owners;
  for (size_t i = 0; i < layers_.size(); ++i) {
    size_t next = offsets[i];
    for (TorchParameter& parameter : layers_[i].parameters()) {
      if (parameter.borrowed) {
        const auto owner = owners.find(parameter.name);
        if (owner != owners.end()) parameter.Share(*owner->second);
        continue;
      }
      owners.emplace(parameter.name, &parameter);
      if (!parameter.trainable) continue;
      const Shape& shape = parameter.value.shape;
      parameter.SumIn(FlatView(next, shape));
      next += NumElements(shape);
    }
  }
  Sums& sums = products_.sums();
  for (const auto& [name, owner] : owners) {
    if (owner->shared || !owner->trainable) continue;
    sums.of.emplace(owner->variable.unsafeGetTensorImpl(),
                    ToTorch(owner->gradient));
  }
  sums.on_written = [this](const float* begin, const float* end) {
    OnWritten(begin, end);
  };
}

void TorchEngine::OnLayer(const LayerDone& done) {
  if (done.backward) OnLayerSummed(done.layer - options_.layers.first);
  if (options_.on_layer != nullptr) options_.on_layer(done);
}

// Among the forwards that wait for their backward, the oldest is the first
// whose gradient is not in the parameters.
std::vector<ScatteredBytes> TorchEngine::State() const {
  std::vector<ScatteredBytes> state;
  for (size_t i = 0; i < layers_.size(); ++i) {
    ScatteredBytes& bytes = state.emplace_back();
    std::vector<Tensor> moved;
    if (options_.stashes && !kept_.empty()) {
      moved = kept_.begin()->second.layers.buffers[i];
    }
    auto before = moved.begin();
    for (const TorchParameter& parameter : layers_[i].parameters()) {
      if (parameter.borrowed && is_flat()) continue;
      const bool is_moved = !parameter.trainable && before != moved.end();
      bytes.Add(is_moved ? *before++ : parameter.value);
      for (const Tensor& slot : parameter.state) bytes.Add(slot);
    }
  }
  return state;
}

void TorchEngine::SettleSum() {
  if (!kept_.empty()) return;
  for (TorchLayer& layer : layers_) layer.Settle();
}

void TorchEngine::AbandonStep() {
  kept_.clear();
  split_.clear();
  ClearSums();
  if (!stash_.has_value()) return;
  products_.ForgetAll();  // casts of versions that are gone now
  stash_.emplace(layers_, products_);
  stash_->BindNewest();
  gradient_version_ = 0;
}

namespace {

// Looked up by name, so that any BLAS can stand behind libblas.so.3.
void CallIfPresent(const char* function, int argument) {
  if (void* found = dlsym(RTLD_DEFAULT, function)) {
    reinterpret_cast<void (*)(int)>(found)(argument);
  }
}

// LibTorch accepts it once a process, and only before its first use.
void SetInteropThreadsOnce() {
  static const bool done = [] {
    try {
      at::set_num_interop_threads(1);
    } catch (const c10::Error&) {
      return false;  // someone set it before; it stays what it is
    }
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

void SetComputeThreads(int threads) {
  threads = std::max(threads, 1);
  SetInteropThreadsOnce();
  at::set_num_threads(threads);
  CallIfPresent("omp_set_num_threads", threads);
  CallIfPresent("openblas_set_num_threads", threads);
}

std::string ActiveCpuCapability() {
  // 1.13 exports no function for it, only this text.
  constexpr absl::string_view kPrefix = "CPU capability usage:";
  for (absl::string_view line :
       absl::StrSplit(at::show_config(), absl::ByAnyChar("\n-"))) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, kPrefix)) continue;
    const std::string level =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(line));
    // Only products in bf16 ask for these instructions, and oneDNN knows them.
    if (level == "avx512" && HasBf16Instructions()) return "avx512_bf16";
    return level == "no avx" ? "default" : level;
  }
  return "default";
}

}  // namespace paceline

#include "tests/support/pipeline/fake_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ranges>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/data/data_sets.h"
#include "core/optim/optimizer.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// Steps of a job that cannot end within a test: ENDLESS of mesh_case.py.
constexpr int64_t kEndless = 1'000'000;
constexpr absl::Duration kPaceOfEndless = absl::Milliseconds(25);

Tensor Zeros(const Shape& shape, DType dtype = DType::kF32) {
  return Tensor::Zeros(dtype, shape);
}

// Around 1 for weights, around 0 for all other floats, from (seed, layer,
// parameter).
Tensor Initial(const Parameter& parameter, uint64_t seed, bool weight) {
  Tensor tensor = Zeros(parameter.shape, parameter.dtype);
  if (parameter.dtype != DType::kF32) return tensor;
  SplitMix64 random(seed);
  for (float& value : tensor.As<float>()) {
    value = (weight ? 1.0f : 0.0f) + 0.1f * (random.Unit() - 0.5f);
  }
  return tensor;
}

// Tokens as the numbers that they are.
Tensor AsFloats(const Tensor& tensor) {
  if (tensor.dtype == DType::kF32) return tensor;
  Tensor floats = Tensor::Allocate(DType::kF32, tensor.shape);
  const absl::Span<const int64_t> from = tensor.As<int64_t>();
  std::copy(from.begin(), from.end(), floats.As<float>().begin());
  return floats;
}

// to[j] += from[j mod n] for each sample, n being how many elements it has.
void AddRepeated(const Tensor& from, Tensor& to) {
  const int64_t samples = from.shape[0];
  const int64_t few = NumElements(from.shape) / samples;
  const int64_t many = NumElements(to.shape) / samples;
  for (int64_t n = 0; n < samples; ++n) {
    const float* const x = from.As<float>().data() + n * few;
    float* const y = to.As<float>().data() + n * many;
    for (int64_t j = 0; j < many; ++j) y[j] += x[j % few];
  }
}

// The gradient of that: to[j mod n] += from[j].
void AddFolded(const Tensor& from, Tensor& to) {
  const int64_t samples = from.shape[0];
  const int64_t many = NumElements(from.shape) / samples;
  const int64_t few = NumElements(to.shape) / samples;
  for (int64_t n = 0; n < samples; ++n) {
    const float* const y = from.As<float>().data() + n * many;
    float* const x = to.As<float>().data() + n * few;
    for (int64_t j = 0; j < many; ++j) x[j % few] += y[j];
  }
}

// The parameters of all layers, in order.
auto ParametersOf(auto& layers) {
  return layers | std::views::transform([](auto& layer) -> auto& {
           return layer.parameters;
         }) |
         std::views::join;
}

}  // namespace

FakeEngine::FakeEngine(EngineOptions options) : options_(std::move(options)) {
  for (int i = options_.layers.first; i < options_.layers.last; ++i) {
    layers_.push_back(MakeLayer(i));
    Borrow(i, layers_.back());
  }
  PACELINE_CHECK(!options_.stashes || !options_.flat_gradient, "both");
  if (options_.flat_gradient) LayFlat();
  if (options_.stashes) ring_.emplace(CurrentValues());
}

FakeEngine::FakeLayer FakeEngine::MakeLayer(int index) const {
  const int slots = StateSlots(options_.train.optimizer);
  const Layer& description = options_.model.layers[index];
  FakeLayer layer;
  layer.outputs = NumElements(description.output);
  for (const Parameter& parameter : description.parameters) {
    const int next = static_cast<int>(layer.parameters.size());
    if (parameter.trainable && layer.weight < 0) {
      layer.weight = next;
    } else if (parameter.trainable && layer.bias < 0) {
      layer.bias = next;
    }
    const uint64_t seed =
        MixSeed({static_cast<uint64_t>(options_.train.seed),
                 static_cast<uint64_t>(index), static_cast<uint64_t>(next)});
    layer.parameters.push_back({parameter.name, parameter.trainable,
                                Initial(parameter, seed, next == layer.weight),
                                Zeros(parameter.shape), std::vector<Tensor>()});
    for (int slot = 0; slot < slots; ++slot) {
      layer.parameters.back().state.push_back(Zeros(parameter.shape));
    }
  }
  return layer;
}

// With its owner's first value.
void FakeEngine::Borrow(int index, FakeLayer& layer) const {
  for (const SharedParameter& shared :
       SharedParameters(options_.model, /*frozen_too=*/true)) {
    if (shared.user != index) continue;
    FakeLayer owner = MakeLayer(shared.owner);
    for (FakeParameter& parameter : owner.parameters) {
      if (parameter.name != shared.name) continue;
      layer.weight = static_cast<int>(layer.parameters.size());
      parameter.state.clear();
      parameter.borrowed = true;
      layer.parameters.push_back(std::move(parameter));
    }
  }
}

FakeEngine::Values FakeEngine::CurrentValues() const {
  Values values;
  for (const FakeParameter& parameter : ParametersOf(layers_)) {
    values.push_back(parameter.value);
  }
  return values;
}

void FakeEngine::Load(const Values& values) {
  size_t next = 0;
  for (FakeParameter& parameter : ParametersOf(layers_)) {
    parameter.value = values[next++];
  }
}

absl::Status FakeEngine::UseVersion(int64_t version) {
  if (!ring_.has_value()) {
    return absl::FailedPreconditionError("this engine keeps no versions");
  }
  return ring_->Use(version).status();
}

StashReading FakeEngine::Stash() const {
  StashReading reading;
  reading.versions = ring_.has_value() ? ring_->size() : 1;
  for (const Tensor& value : CurrentValues()) {
    reading.bytes += reading.versions * value.bytes();
  }
  reading.staleness = staleness_;
  return reading;
}

// How much of what goes beside a layer's input goes beside its output too.
size_t FakeEngine::HandedOn(int layer) const {
  const auto input = InputTensors(options_.model, layer);
  const auto output = BoundaryTensors(options_.model.layers[layer]);
  size_t same = 1;
  while (same < std::min(input.size(), output.size()) &&
         input[same] == output[same]) {
    ++same;
  }
  return same - 1;
}

// Gives what goes beside the output of `layer`; what ends there goes into
// `output`.
TensorList FakeEngine::Join(int layer, const TensorList& beside,
                            const Tensor& input, Tensor& output) const {
  const size_t handed_on = HandedOn(layer);
  for (size_t i = handed_on; i < beside.size(); ++i) {
    if (beside[i].dtype == DType::kF32) AddRepeated(beside[i], output);
  }
  TensorList after(beside.begin(), beside.begin() + handed_on);
  const auto wanted = BoundaryTensors(options_.model.layers[layer]);
  for (size_t i = 1 + handed_on; i < wanted.size(); ++i) {
    after.push_back(
        Zeros(Batched(input.shape[0], wanted[i].shape), wanted[i].dtype));
    if (wanted[i].dtype == DType::kF32) AddRepeated(input, after.back());
  }
  return after;
}

// The way back.  gradients: of the float32 tensors beside the output.  Returns
// those beside the input; what began in this layer goes into `of_input`.
TensorList FakeEngine::Part(int layer, TensorList gradients,
                            const Tensor& input, const Tensor& output_gradient,
                            Tensor& of_input) const {
  const auto before = InputTensors(options_.model, layer);
  const size_t handed_on = HandedOn(layer);
  TensorList of_beside;
  size_t next = 0;
  for (size_t i = 1; i < before.size(); ++i) {
    if (before[i].dtype != DType::kF32) continue;
    if (i <= handed_on) {
      of_beside.push_back(std::move(gradients[next++]));
      continue;
    }
    of_beside.push_back(Zeros(Batched(input.shape[0], before[i].shape)));
    AddFolded(output_gradient, of_beside.back());
  }
  for (; next < gradients.size(); ++next) {
    AddFolded(gradients[next], of_input);
  }
  return of_beside;
}

Tensor FakeEngine::ForwardLayer(const FakeLayer& layer, const Tensor& input,
                                const Shape& sample_shape) const {
  const int64_t samples = input.shape[0];
  const int64_t inputs = NumElements(input.shape) / samples;
  Tensor output = Tensor::Allocate(DType::kF32, Batched(samples, sample_shape));
  absl::Span<const float> weight, bias;
  if (layer.weight >= 0)
    weight = layer.parameters[layer.weight].value.As<float>();
  if (layer.bias >= 0) bias = layer.parameters[layer.bias].value.As<float>();

  for (int64_t n = 0; n < samples; ++n) {
    const float* x = input.As<float>().data() + n * inputs;
    float* y = output.As<float>().data() + n * layer.outputs;
    for (int64_t j = 0; j < layer.outputs; ++j) {
      const float w = weight.empty() ? 1.0f : weight[j % weight.size()];
      const float b = bias.empty() ? 0.0f : bias[j % bias.size()];
      y[j] = w * x[j % inputs] + b;
    }
  }
  return output;
}

Tensor FakeEngine::InputGradient(const FakeLayer& layer, const Tensor& input,
                                 const Tensor& output_gradient) const {
  const int64_t samples = input.shape[0];
  const int64_t inputs = NumElements(input.shape) / samples;
  Tensor input_gradient = Zeros(input.shape);
  absl::Span<const float> weight;
  if (layer.weight >= 0) {
    weight = layer.parameters[layer.weight].value.As<float>();
  }
  for (int64_t n = 0; n < samples; ++n) {
    const float* dy = output_gradient.As<float>().data() + n * layer.outputs;
    float* dx = input_gradient.As<float>().data() + n * inputs;
    for (int64_t j = 0; j < layer.outputs; ++j) {
      const float w = weight.empty() ? 1.0f : weight[j % weight.size()];
      dx[j % inputs] += w * dy[j];
    }
  }
  return input_gradient;
}

void FakeEngine::AddWeightGradient(FakeLayer& layer, const Tensor& input,
                                   const Tensor& output_gradient) {
  const int64_t samples = input.shape[0];
  const int64_t inputs = NumElements(input.shape) / samples;
  absl::Span<float> weight_gradient, bias_gradient;
  if (layer.weight >= 0) {
    weight_gradient = layer.parameters[layer.weight].gradient.As<float>();
  }
  if (layer.bias >= 0) {
    bias_gradient = layer.parameters[layer.bias].gradient.As<float>();
  }
  for (int64_t n = 0; n < samples; ++n) {
    const float* x = input.As<float>().data() + n * inputs;
    const float* dy = output_gradient.As<float>().data() + n * layer.outputs;
    for (int64_t j = 0; j < layer.outputs; ++j) {
      if (!weight_gradient.empty()) {
        weight_gradient[j % weight_gradient.size()] += x[j % inputs] * dy[j];
      }
      if (!bias_gradient.empty()) {
        bias_gradient[j % bias_gradient.size()] += dy[j];
      }
    }
  }
}

LossSums FakeEngine::Loss(const Tensor& output, const Tensor& labels) const {
  const int64_t rows = NumElements(labels.shape);
  const int64_t classes = NumElements(output.shape) / rows;
  LossSums sums;
  for (int64_t n = 0; n < rows; ++n) {
    const float* y = output.As<float>().data() + n * classes;
    const int64_t label = labels.As<int64_t>()[n];
    if (label == kNoLabel) continue;
    ++sums.samples;
    for (int64_t j = 0; j < classes; ++j) {
      const double distance = y[j] - (j == label ? 1.0 : 0.0);
      sums.loss += 0.5 * distance * distance;
    }
    if (std::max_element(y, y + classes) - y == label) ++sums.correct;
  }
  return sums;
}

absl::StatusOr<ForwardResult> FakeEngine::Forward(const BatchInfo& batch,
                                                  int micro_batch,
                                                  TensorList input) {
  const int64_t samples =
      input.empty() || input[0].shape.empty() ? 0 : input[0].shape[0];
  PACELINE_RETURN_IF_ERROR(
      CheckStageInput(options_.model, options_.layers.first,
                      std::max<int64_t>(samples, 1), input));

  const bool training = batch.phase == BatchPhase::kTrain;
  Kept kept;
  if (ring_.has_value() && training) {
    PACELINE_ASSIGN_OR_RETURN(kept.version, ring_->Acquire());
    Load(ring_->at(kept.version));
  }
  kept.labels = input.back();
  Tensor x = AsFloats(input[0]);
  TensorList beside(input.begin() + 1, input.end() - 1);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int index = options_.layers.first + static_cast<int>(i);
    kept.inputs.push_back(x);
    x = ForwardLayer(layers_[i], x, options_.model.layers[index].output);
    beside = Join(index, beside, kept.inputs.back(), x);
    if (training) Say(static_cast<int>(i), /*backward=*/false);
  }
  kept.output = x;

  ForwardResult result;
  if (last()) {
    result.loss = Loss(x, kept.labels);
    if (options_.inference) result.output = {x, kept.labels};
  } else {
    result.output = {x};
    result.output.insert(result.output.end(), beside.begin(), beside.end());
    result.output.push_back(kept.labels);
  }
  if (ring_.has_value()) Load(ring_->newest_payload());
  if (training) kept_[{batch.ordinal, micro_batch}] = std::move(kept);
  return result;
}

void FakeEngine::Say(int layer, bool backward) {
  if (backward && is_flat()) OnLayerSummed(layer);
  if (options_.on_layer == nullptr) return;
  options_.on_layer({options_.layers.first + layer, backward, -1});
}

absl::StatusOr<TensorList> FakeEngine::OutputGradients(
    const Kept& kept, TensorList output_gradient) const {
  if (last()) return TensorList{LossGradient(kept)};
  const auto expected =
      GradientTensors(options_.model.layers[options_.layers.last - 1]);
  bool good = output_gradient.size() == expected.size();
  for (size_t i = 0; good && i < expected.size(); ++i) {
    const Tensor& gradient = output_gradient[i];
    good = gradient.dtype == DType::kF32 &&
           gradient.shape == Batched(kept.output.shape[0], expected[i].shape);
  }
  if (good) return output_gradient;
  return absl::InvalidArgumentError(
      absl::StrCat("backward: need ", expected.size(),
                   " F32 gradients, the first of the output's shape [",
                   absl::StrJoin(kept.output.shape, ", "), "]; got ",
                   output_gradient.size()));
}

Tensor FakeEngine::LossGradient(const Kept& kept) const {
  const int64_t rows = NumElements(kept.labels.shape);
  const int64_t outputs = NumElements(kept.output.shape) / rows;
  Tensor gradient = Zeros(kept.output.shape);
  for (int64_t n = 0; n < rows; ++n) {
    if (kept.labels.As<int64_t>()[n] == kNoLabel) continue;
    for (int64_t j = 0; j < outputs; ++j) {
      gradient.As<float>()[n * outputs + j] =
          kept.output.As<float>()[n * outputs + j] -
          (j == kept.labels.As<int64_t>()[n] ? 1.0f : 0.0f);
    }
  }
  return gradient;
}

absl::StatusOr<TensorList> FakeEngine::Backward(const BatchInfo& batch,
                                                int micro_batch,
                                                TensorList output_gradient) {
  PACELINE_ASSIGN_OR_RETURN(
      TensorList input_gradient,
      BackwardInput(batch, micro_batch, std::move(output_gradient)));
  PACELINE_RETURN_IF_ERROR(BackwardWeight(batch, micro_batch));
  return input_gradient;
}

absl::StatusOr<TensorList> FakeEngine::BackwardInput(
    const BatchInfo& batch, int micro_batch, TensorList output_gradient) {
  const auto found = kept_.find({batch.ordinal, micro_batch});
  if (found == kept_.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "backward: no forward of micro-batch ", micro_batch, " is kept"));
  }
  PACELINE_ASSIGN_OR_RETURN(
      TensorList gradients,
      OutputGradients(found->second, std::move(output_gradient)));
  auto node = kept_.extract(found);
  Kept& kept = node.mapped();
  if (ring_.has_value()) Load(ring_->at(kept.version));
  kept.output_gradients.resize(layers_.size());
  for (size_t i = layers_.size(); i-- > 0;) {
    const Tensor gradient = gradients[0];
    kept.output_gradients[i] = gradient;
    Tensor of_input = InputGradient(layers_[i], kept.inputs[i], gradient);
    gradients.erase(gradients.begin());
    gradients = Part(options_.layers.first + static_cast<int>(i),
                     std::move(gradients), kept.inputs[i], gradient, of_input);
    gradients.insert(gradients.begin(), std::move(of_input));
  }
  if (ring_.has_value()) Load(ring_->newest_payload());
  split_.insert(std::move(node));
  if (options_.stage == 0) return TensorList();
  return gradients;
}

absl::Status FakeEngine::BackwardWeight(const BatchInfo& batch,
                                        int micro_batch) {
  const auto node = split_.extract({batch.ordinal, micro_batch});
  if (node.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("backward: no first half of micro-batch ", micro_batch));
  }
  const Kept& kept = node.mapped();
  for (size_t i = layers_.size(); i-- > 0;) {
    AddWeightGradient(layers_[i], kept.inputs[i], kept.output_gradients[i]);
    Say(static_cast<int>(i), /*backward=*/true);
  }
  labels_ += CountLabels(kept.labels);
  gradient_version_ = kept.version;
  if (ring_.has_value()) ring_->Release(kept.version);
  return absl::OkStatus();
}

absl::StatusOr<TiedTensors> FakeEngine::Tied(const std::string& name,
                                             bool owner) {
  if (options_.flat_gradient) return OwnTies();
  for (FakeParameter& parameter : ParametersOf(layers_)) {
    if (parameter.name == name && parameter.borrowed != owner) {
      return TiedTensors{parameter.value, parameter.gradient};
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no layer here ", owner ? "owns " : "borrows ", name));
}

absl::StatusOr<StepReport> FakeEngine::Report(const BatchInfo& batch) {
  StepReport report;
  report.step = batch.step;
  report.stage = options_.stage;
  report.samples = labels_;
  Checksum checksum;
  for (const FakeParameter& parameter : ParametersOf(layers_)) {
    if (!parameter.trainable || parameter.borrowed) continue;
    const std::vector<float> gradient = CopyOfSum(parameter.gradient);
    checksum.Update({reinterpret_cast<const uint8_t*>(gradient.data()),
                     gradient.size() * sizeof(float)});
    report.squared_norms.push_back(SquaredNorm(gradient));
    report.finite = report.finite && std::isfinite(report.squared_norms.back());
  }
  if (!is_flat()) report.result_hash = checksum.Digest();
  return report;
}

absl::Status FakeEngine::Apply(const StepVerdict& verdict) {
  // A forward that still computes with the newest values keeps them: the
  // update goes beside.
  const bool beside = ring_.has_value() && !ring_->MayOverwrite();
  for (FakeParameter& parameter : ParametersOf(layers_)) {
    if (!parameter.trainable || verdict.skip) continue;
    if (beside) {
      const Tensor old = parameter.value;
      parameter.value = Zeros(old.shape);
      std::memcpy(parameter.value.data.get(), old.data.get(), old.bytes());
    }
    if (parameter.borrowed) continue;
    std::vector<absl::Span<float>> state;
    for (Tensor& slot : parameter.state) state.push_back(slot.As<float>());
    ApplyUpdate(options_.train.optimizer, verdict, parameter.value.As<float>(),
                CopyOfSum(parameter.gradient), state);
  }
  ClearSums();
  // A test waits for something else meanwhile, and needs the cores for that.
  if (options_.train.steps >= kEndless) absl::SleepFor(kPaceOfEndless);
  if (!ring_.has_value()) return absl::OkStatus();
  staleness_ = ring_->newest() - gradient_version_;
  if (beside) {
    ring_->Push(CurrentValues());
  } else {
    ring_->Overwrite();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedTensor>> FakeEngine::Weights() {
  std::vector<NamedTensor> weights;
  for (const FakeParameter& parameter : ParametersOf(layers_)) {
    if (parameter.borrowed) continue;
    weights.push_back({parameter.name, parameter.value});
  }
  return weights;
}

absl::Status FakeEngine::SetWeights(const std::vector<NamedTensor>& weights) {
  if (!kept_.empty() || !split_.empty() || labels_ > 0) {
    return absl::FailedPreconditionError(
        "weights cannot be set in the middle of a step");
  }
  std::vector<NamedTensor> own;
  for (const FakeParameter& parameter : ParametersOf(layers_)) {
    own.push_back({parameter.name, parameter.value});
  }
  return OverwriteWeights(weights, own);
}

void FakeEngine::LayFlat() {
  MakeFlat(options_);
  const std::vector<size_t> offsets = GradientOffsets();
  std::map<std::string, const FakeParameter*> owners;
  for (size_t i = 0; i < layers_.size(); ++i) {
    size_t next = offsets[i];
    for (FakeParameter& parameter : layers_[i].parameters) {
      const auto owner = owners.find(parameter.name);
      if (parameter.borrowed && owner != owners.end()) {
        parameter.value = owner->second->value;
        parameter.gradient = owner->second->gradient;
      }
      if (!parameter.trainable || parameter.borrowed) continue;
      parameter.gradient = FlatView(next, parameter.value.shape);
      next += NumElements(parameter.value.shape);
      owners.emplace(parameter.name, &parameter);
    }
  }
  ClearSums();
}

void FakeEngine::ClearSums() {
  for (FakeParameter& parameter : ParametersOf(layers_)) {
    if (!parameter.trainable) continue;
    std::memset(parameter.gradient.data.get(), 0, parameter.gradient.bytes());
  }
  if (is_flat()) {
    Tensor tail = FlatTail();
    std::memset(tail.data.get(), 0, tail.bytes());
  }
  ReadOwnSum();
  labels_ = 0;
}

std::vector<ScatteredBytes> FakeEngine::State() const {
  std::vector<ScatteredBytes> state;
  for (const FakeLayer& layer : layers_) {
    ScatteredBytes& bytes = state.emplace_back();
    for (const FakeParameter& parameter : layer.parameters) {
      if (parameter.borrowed && is_flat()) continue;
      bytes.Add(parameter.value);
      if (!parameter.trainable) continue;
      for (const Tensor& slot : parameter.state) bytes.Add(slot);
    }
  }
  return state;
}

void FakeEngine::AbandonStep() {
  kept_.clear();
  split_.clear();
  ClearSums();
  if (!ring_.has_value()) return;
  ring_.emplace(CurrentValues());
  gradient_version_ = 0;
}

}  // namespace paceline

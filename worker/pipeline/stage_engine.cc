#include "worker/pipeline/stage_engine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/optim/optimizer.h"
#include "core/round/rules/rule_blocks.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

std::string Describe(const Tensor& tensor) {
  return absl::StrCat(DTypeName(tensor.dtype), ShapeText(tensor.shape));
}

absl::Status CheckTokens(absl::Span<const int64_t> tokens, int64_t vocabulary) {
  for (const int64_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return InvalidArgument("token ", token,
                           " is outside of the model's vocabulary "
                           "of ",
                           vocabulary);
  }
  return absl::OkStatus();
}

absl::Status NotFlat() {
  return FailedPrecondition(
      "this engine was made for a pipeline, not for data parallelism");
}

// [layers + 1]: where the trainable parameters of each layer begin when those
// of all lie side by side, in layer order; the last entry is their number.
// A borrowed parameter is its owner's.
std::vector<size_t> ParameterOffsets(const ModelDescription& model,
                                     const LayerRange& layers) {
  std::vector<size_t> offsets = {0};
  for (int i = layers.first; i < layers.last; ++i) {
    size_t elements = 0;
    for (const Parameter& parameter : model.layers[i].parameters) {
      if (parameter.trainable) elements += NumElements(parameter.shape);
    }
    offsets.push_back(offsets.back() + elements);
  }
  return offsets;
}

}  // namespace

int64_t FlatValues(const ModelDescription& model, const LayerRange& layers) {
  int64_t values = 0;
  for (int i = layers.first; i < layers.last; ++i) {
    for (const Parameter& parameter : model.layers[i].parameters) {
      if (!parameter.frozen) values += NumElements(parameter.shape);
    }
  }
  return values;
}

int64_t UpdateBytes(const EngineOptions& options) {
  if (options.inference) return 0;
  const int64_t each = 4 * (1 + StateSlots(options.train.optimizer));
  int64_t bytes = 0;
  for (int i = options.layers.first; i < options.layers.last; ++i) {
    for (const Parameter& parameter : options.model.layers[i].parameters) {
      if (parameter.trainable) bytes += each * NumElements(parameter.shape);
    }
  }
  return bytes;
}

int64_t CountLabels(const Tensor& labels) {
  const absl::Span<const int64_t> values = labels.As<int64_t>();
  return std::count_if(values.begin(), values.end(),
                       [](int64_t label) { return label != kNoLabel; });
}

absl::Status CheckTensor(const char* what, const Tensor& tensor,
                         int64_t samples, const SampleTensor& expected) {
  const Shape shape = Batched(samples, expected.shape);
  if (tensor.dtype == expected.dtype && tensor.shape == shape && tensor.data) {
    return absl::OkStatus();
  }
  return InvalidArgument(what, ": got ", Describe(tensor),
                         tensor.data ? "" : " without memory", ", need ",
                         Describe({expected.dtype, shape, nullptr}));
}

absl::Status CheckStageInput(const ModelDescription& model, int first,
                             int64_t samples, const TensorList& input) {
  const std::vector<SampleTensor> expected = InputTensors(model, first);
  if (input.size() != expected.size() + 1) {
    return InvalidArgument(
        "forward: got ", input.size(), " tensors, need ", expected.size() + 1,
        ": the activation, what goes beside it, and the labels");
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(CheckTensor(
        i == 0 ? "forward: activation" : "forward: what goes beside it",
        input[i], samples, expected[i]));
  }
  PACELINE_RETURN_IF_ERROR(CheckTensor("forward: labels", input.back(), samples,
                                       {DType::kI64, model.label_shape}));
  if (first == 0 && model.input_dtype == DType::kI64) {
    return CheckTokens(input[0].As<int64_t>(), model.vocabulary);
  }
  return absl::OkStatus();
}

absl::Status CheckLabels(const Tensor& labels, int64_t classes) {
  for (const int64_t label : labels.As<int64_t>()) {
    if (label == kNoLabel || (label >= 0 && label < classes)) continue;
    return InvalidArgument(
        "label ", label, " is outside of the model's ", classes,
        " classes: set data.classes to as many as the data has");
  }
  return absl::OkStatus();
}

absl::Status OverwriteWeights(const std::vector<NamedTensor>& weights,
                              const std::vector<NamedTensor>& own) {
  std::multimap<std::string, const Tensor*> targets;
  for (const NamedTensor& named : own) {
    targets.emplace(named.name, &named.tensor);
  }
  for (const NamedTensor& named : weights) {
    const auto target = targets.find(named.name);
    if (target == targets.end()) {
      return InvalidArgument("this stage has no weights named ", named.name);
    }
    const Tensor& tensor = named.tensor;
    if (tensor.dtype != target->second->dtype ||
        tensor.shape != target->second->shape) {
      return InvalidArgument("weights ", named.name, ": got ", Describe(tensor),
                             ", need ", Describe(*target->second));
    }
  }
  for (const NamedTensor& named : weights) {
    const auto [first, last] = targets.equal_range(named.name);
    for (auto target = first; target != last; ++target) {
      std::memcpy(target->second->data.get(), named.tensor.data.get(),
                  named.tensor.bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(StageEngine& engine, int64_t step) {
  PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> weights,
                            engine.Weights());
  for (const NamedTensor& weight : weights) {
    if (weight.tensor.dtype != DType::kF32) continue;
    const absl::Span<const float> values = weight.tensor.As<float>();
    if (FindNonFinite(values) == values.size()) continue;
    return InvalidArgument(
        "NaN or infinity in ", weight.name, " after step ", step,
        ": the training has diverged; lower train.learning_rate.base, or set "
        "train.clip_norm");
  }
  return absl::OkStatus();
}

absl::Status OwnTies() {
  return FailedPrecondition(
      "an engine for data parallelism adds up shared parameters by itself");
}

// --- State ---

void ScatteredBytes::Add(const Tensor& tensor) {
  const auto bytes = static_cast<size_t>(tensor.bytes());
  if (bytes == 0) return;
  pieces_.push_back({tensor.data.get(), bytes});
  size_ += bytes;
}

void ScatteredBytes::CopyTo(uint8_t* to) const {
  for (const absl::Span<uint8_t> piece : pieces_) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

void ScatteredBytes::CopyFrom(const uint8_t* from) const {
  for (const absl::Span<uint8_t> piece : pieces_) {
    std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
}

uint64_t StageEngine::StateHash() const {
  Checksum checksum;
  for (const ScatteredBytes& layer : State()) {
    for (const absl::Span<uint8_t> piece : layer.pieces()) {
      checksum.Update(piece);
    }
  }
  return checksum.Digest();
}

absl::Status StageEngine::RestoreState(
    const std::vector<absl::Span<const uint8_t>>& layers) {
  std::vector<ScatteredBytes> state = State();
  if (layers.size() != state.size()) {
    return InvalidArgument("a copy of the state of ", layers.size(),
                           " layers, need ", state.size());
  }
  for (size_t i = 0; i < state.size(); ++i) {
    if (layers[i].size() == state[i].size()) continue;
    return InvalidArgument("a copy of the state of layer ", i,
                           " of the stage has ", layers[i].size(),
                           " bytes, need ", state[i].size(),
                           ": it is of another model or optimizer");
  }
  AbandonStep();
  state = State();  // forwards that are dropped had some of it
  for (size_t i = 0; i < state.size(); ++i) state[i].CopyFrom(layers[i].data());
  OnWeightsWritten();
  return absl::OkStatus();
}

// --- Data parallelism ---

void StageEngine::MakeFlat(const EngineOptions& options) {
  offsets_ = ParameterOffsets(options.model, options.layers);
  flat_ =
      Tensor::Zeros(DType::kF32, {FlatValues(options.model, options.layers)});
}

// The view keeps the whole of it alive.
Tensor StageEngine::FlatView(size_t offset, const Shape& shape) const {
  const int64_t end = static_cast<int64_t>(offset) + NumElements(shape);
  PACELINE_CHECK(end <= flat_.shape[0], "end=", end);
  return {DType::kF32, shape,
          std::shared_ptr<uint8_t>(flat_.data,
                                   flat_.data.get() + offset * sizeof(float))};
}

Tensor StageEngine::FlatTail() const {
  const auto begin = static_cast<int64_t>(offsets_.back());
  return FlatView(offsets_.back(), {flat_.shape[0] - begin});
}

absl::StatusOr<absl::Span<float>> StageEngine::FlatGradient() {
  if (!is_flat()) return NotFlat();
  SettleSum();
  return flat_.As<float>();
}

void StageEngine::StreamSum(std::function<void(size_t begin)> on_final) {
  on_final_ = std::move(on_final);
  final_from_ = is_flat() ? offsets_.back() : 0;
}

void StageEngine::SayFinal(size_t begin) {
  final_from_ = begin;
  if (on_final_ != nullptr) on_final_(begin);
}

// Values behind it may still change: then on_final hears of all with the layer.
void StageEngine::OnWritten(const float* begin, const float* end) {
  const float* const flat = flat_.As<float>().data();
  if (end == flat + final_from_) SayFinal(begin - flat);
}

absl::Status StageEngine::ReadSumFrom(
    std::vector<absl::Span<const float>> pieces) {
  if (!is_flat()) return NotFlat();
  size_t values = 0;
  for (const absl::Span<const float> piece : pieces) values += piece.size();
  if (static_cast<int64_t>(values) != flat_.shape[0]) {
    return InvalidArgument("a sum of ", values, " values for the ",
                           flat_.shape[0],
                           " of the trainable parameters and statistics");
  }
  pieces_ = std::move(pieces);
  return absl::OkStatus();
}

std::vector<absl::Span<const float>> StageEngine::SumOf(Tensor gradient) const {
  const absl::Span<float> own = gradient.As<float>();
  if (pieces_.empty()) return {own};
  size_t skip =
      static_cast<const float*>(own.data()) - flat_.As<float>().data();
  size_t left = own.size();
  std::vector<absl::Span<const float>> found;
  for (const absl::Span<const float> piece : pieces_) {
    if (left == 0) break;
    if (skip < piece.size()) {
      found.push_back(piece.subspan(skip, left));
      left -= found.back().size();
    }
    skip -= std::min(skip, piece.size());
  }
  return found;
}

std::vector<float> StageEngine::CopyOfSum(Tensor gradient) const {
  std::vector<float> sum;
  for (const absl::Span<const float> piece : SumOf(std::move(gradient))) {
    sum.insert(sum.end(), piece.begin(), piece.end());
  }
  return sum;
}

}  // namespace paceline

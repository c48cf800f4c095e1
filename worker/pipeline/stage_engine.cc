#include "worker/pipeline/stage_engine.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/model/data_sets.h"

namespace paceline {
namespace {

std::string Describe(const Tensor& tensor) {
  return absl::StrCat(std::string(DTypeName(tensor.dtype)), "[",
                      absl::StrJoin(tensor.shape, ", "), "]");
}

absl::Status CheckTokens(absl::Span<const int64_t> tokens, int64_t vocabulary) {
  for (const int64_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("token ", token,
                     " is outside of the model's vocabulary "
                     "of ",
                     vocabulary));
  }
  return absl::OkStatus();
}

}  // namespace

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
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": got ", Describe(tensor), tensor.data ? "" : " without memory",
      ", need ", Describe({expected.dtype, shape, nullptr})));
}

absl::Status CheckStageInput(const ModelDescription& model, int first,
                             int64_t samples, const TensorList& input) {
  const std::vector<SampleTensor> expected = InputTensors(model, first);
  if (input.size() != expected.size() + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "forward: got ", input.size(), " tensors, need ", expected.size() + 1,
        ": the activation, what goes beside it, and the labels"));
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
    return absl::InvalidArgumentError(
        absl::StrCat("label ", label, " is outside of the model's ", classes,
                     " classes: set data.classes to as many as the data has"));
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
      return absl::InvalidArgumentError(
          absl::StrCat("this stage has no weights named ", named.name));
    }
    const Tensor& tensor = named.tensor;
    if (tensor.dtype != target->second->dtype ||
        tensor.shape != target->second->shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights ", named.name, ": got ", Describe(tensor),
                       ", need ", Describe(*target->second)));
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

namespace {
absl::Status NotParallel() {
  return absl::FailedPreconditionError(
      "this engine was made for a pipeline, not for data parallelism");
}
}  // namespace

absl::Status OwnTies() {
  return absl::FailedPreconditionError(
      "an engine for data parallelism adds up shared parameters by itself");
}

absl::Status StageEngine::ReadSumFrom(std::vector<absl::Span<const float>>) {
  return NotParallel();
}

absl::StatusOr<absl::Span<float>> StageEngine::FlatGradient() {
  return NotParallel();
}

absl::Status StageEngine::CopyState(absl::Span<uint8_t>) {
  return NotParallel();
}

absl::StatusOr<uint64_t> StageEngine::StateHash() { return NotParallel(); }

absl::Status StageEngine::RestoreState(absl::Span<const uint8_t>) {
  return NotParallel();
}

absl::Status StageEngine::AbandonStep() { return NotParallel(); }

}  // namespace paceline

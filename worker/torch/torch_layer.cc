#include "worker/torch/torch_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/match.h"
#include "core/base/errors.h"
#include "core/model/initialize.h"
#include "core/optim/optimizer.h"
#include "worker/torch/script.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

absl::Span<float> Floats(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

TorchParameter::TorchParameter(const Parameter& parameter, int state_slots)
    : name(parameter.name),
      trainable(parameter.trainable),
      value(Tensor::Zeros(parameter.dtype, parameter.shape)),
      variable(ToTorch(value)) {
  if (!trainable || state_slots == kNoGradient) return;
  gradient = Tensor::Zeros(parameter.dtype, parameter.shape);
  for (int i = 0; i < state_slots; ++i) {
    state.push_back(Tensor::Zeros(parameter.dtype, parameter.shape));
  }
  variable.set_requires_grad(true);
  variable.mutable_grad() = ToTorch(gradient);
}

void TorchParameter::SumIn(Tensor sum) {
  gradient = std::move(sum);
  variable.mutable_grad() = ToTorch(gradient);
}

void TorchParameter::Share(TorchParameter& owner) {
  shared = owner.shared = true;
  value = owner.value;
  variable.set_data(ToTorch(value));  // steps have this object
  if (trainable) SumIn(owner.gradient);
}

void TorchParameter::Clear(bool lazily) {
  if (lazily) {
    settled = false;
    variable.mutable_grad() = at::Tensor();
    return;
  }
  const absl::Span<float> values = gradient.As<float>();
  std::fill(values.begin(), values.end(), 0.0f);
}

void TorchParameter::Settle() {
  if (std::exchange(settled, true)) return;
  at::Tensor& sum = variable.mutable_grad();
  const at::Tensor first = std::exchange(sum, ToTorch(gradient));
  if (!first.defined()) {
    sum.zero_();
  } else if (first.data_ptr() != sum.data_ptr()) {
    sum.copy_(first);
  }
}

TorchLayer::TorchLayer(const Layer& layer, int64_t seed, int index,
                       int state_slots, Products& products)
    : products_(&products) {
  const size_t own = layer.parameters.size();
  parameters_.reserve(own + layer.borrowed.size());
  for (const Parameter& parameter : layer.parameters) {
    parameters_.emplace_back(parameter, state_slots);
  }
  for (const Parameter& parameter : layer.borrowed) {
    parameters_.emplace_back(parameter, std::min(state_slots, 0)).borrowed =
        true;
  }
  size_t next = 0;
  size_t next_borrowed = own;
  // Without steps its output is its input.
  const size_t steps = layer.skipped ? 0 : layer.operations.size();
  for (size_t i = 0; i < steps; ++i) {
    const Operation& operation = layer.operations[i];
    Step step{FindCompute(layer, i), operation, {}, {}};
    Give(step, own, next);
    Give(step, parameters_.size(), next_borrowed);
    draws_ |= operation.probability > 0;
    steps_.push_back(std::move(step));
  }
  PACELINE_CHECK(
      layer.skipped || (next == own && next_borrowed == parameters_.size()),
      layer.name);

  std::vector<absl::Span<float>> values;
  for (TorchParameter& parameter : parameters_) {
    if (parameter.borrowed) continue;
    values.push_back(parameter.value.dtype == DType::kF32
                         ? parameter.value.As<float>()
                         : absl::Span<float>());
  }
  InitializeLayer(layer, seed, index, values);
}

// A description lists the parameters in the order of their operations.
void TorchLayer::Give(Step& step, size_t end, size_t& next) {
  const std::string& name = step.operation.name;
  while (next < end && !name.empty() &&
         (parameters_[next].name == name ||
          absl::StartsWith(parameters_[next].name, name + "."))) {
    step.at.push_back(next);
    step.parameters.push_back(parameters_[next++].variable);
  }
}

TorchLayer::TorchLayer(const Layer& layer, const torch::jit::Module& child,
                       int state_slots, Products& products)
    : products_(&products),
      child_(child),
      writes_input_(layer.operations[0].sizes[0] != 0) {
  // A script may draw wherever it likes.
  draws_ = true;
  const std::vector<ScriptTensor> tensors = TensorsOf(child);
  TORCH_CHECK(tensors.size() == layer.parameters.size(), layer.name, " has ",
              tensors.size(), " tensors, need ", layer.parameters.size());
  parameters_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Parameter& parameter = layer.parameters[i];
    const ScriptTensor& found = tensors[i];
    TORCH_CHECK(parameter.name == layer.name + "." + found.name &&
                    parameter.shape == found.tensor.sizes() &&
                    parameter.dtype == FromTorch(found.tensor.scalar_type()),
                parameter.name, " is not what the file holds");
    TorchParameter& own = parameters_.emplace_back(parameter, state_slots);
    ToTorch(own.value).copy_(found.tensor.detach());
    SetTensor(*child_, found.name, own.variable);
  }
}

at::Tensor TorchLayer::ForwardScript(const at::Tensor& input,
                                     bool training) const {
  if (child_->is_training() != training) child_->train(training);
  // Autograd forbids writing to a leaf, and others may read that memory.
  at::Tensor output = RunScript(*child_, writes_input_ ? input.clone() : input);
  if (training) AdoptBuffers();
  return output.contiguous();
}

// A script may put another tensor in a buffer's place.
void TorchLayer::AdoptBuffers() const {
  const std::vector<ScriptTensor> tensors = TensorsOf(*child_);
  for (size_t i = 0; i < tensors.size() && i < parameters_.size(); ++i) {
    if (parameters_[i].trainable) continue;  // bound to some version
    const at::Tensor& own = parameters_[i].variable;
    const at::Tensor& found = tensors[i].tensor;
    if (own.data_ptr() == found.data_ptr()) continue;
    const at::NoGradGuard no_gradient;
    ToTorch(parameters_[i].value).copy_(found);
    SetTensor(*child_, tensors[i].name, own);
  }
}

std::vector<Tensor> TorchLayer::MovedBuffers() const {
  std::vector<Tensor> values;
  if (!child_.has_value()) return values;
  for (const TorchParameter& each : parameters_) {
    if (each.trainable) continue;
    values.push_back(Tensor::Allocate(each.value.dtype, each.value.shape));
    std::memcpy(values.back().data.get(), each.value.data.get(),
                each.value.bytes());
  }
  return values;
}

void TorchLayer::SetMovedBuffers(const std::vector<Tensor>& values) {
  if (!child_.has_value()) return;
  size_t next = 0;
  for (TorchParameter& each : parameters_) {
    if (each.trainable) continue;
    PACELINE_CHECK(next < values.size(), each.name);
    std::memcpy(each.value.data.get(), values[next++].data.get(),
                each.value.bytes());
  }
}

void TorchLayer::Bind(absl::Span<const at::Tensor> variables) {
  PACELINE_CHECK_EQ(variables.size(), parameters_.size());
  for (Step& step : steps_) {
    for (size_t i = 0; i < step.at.size(); ++i) {
      step.parameters[i] = variables[step.at[i]];
    }
  }
  if (!child_.has_value()) return;
  size_t next = 0;
  for (const ScriptTensor& tensor : TensorsOf(*child_)) {
    SetTensor(*child_, tensor.name, variables[next++]);
  }
}

at::Tensor TorchLayer::Forward(const at::Tensor& input, bool training,
                               LayerStatistics* statistics,
                               std::vector<at::Tensor>* beside) const {
  if (child_.has_value()) return ForwardScript(input, training);
  at::Tensor remembered;
  at::Tensor x = input;
  for (const Step& step : steps_) {
    x = step.compute({step.operation, step.parameters, training, remembered,
                      statistics, *products_, beside},
                     x);
  }
  if (beside != nullptr) {
    for (at::Tensor& tensor : *beside) {
      if (tensor.is_floating_point()) tensor = AsFloat(tensor);
      tensor = tensor.contiguous();
    }
  }
  return AsFloat(x).contiguous();
}

void TorchLayer::Fold(const LayerStatistics& statistics) {
  size_t next = 0;
  for (const Step& step : steps_) {
    const int offset = NormOffset(step.operation);
    if (offset < 0) continue;
    PACELINE_CHECK(next < statistics.size(), step.operation.name);
    const BatchStatistics& seen = statistics[next++];
    if (!seen.mean.defined()) continue;
    FoldStatistics(Floats(seen.mean), Floats(step.parameters[offset + 2]));
    FoldStatistics(Floats(seen.variance), Floats(step.parameters[offset + 3]));
    ++*step.parameters[offset + 4].data_ptr<int64_t>();
  }
}

void TorchLayer::AddTo(const LayerStatistics& statistics, float weight,
                       absl::Span<float>& sums) const {
  size_t next = 0;
  for (const Step& step : steps_) {
    const int offset = NormOffset(step.operation);
    if (offset < 0) continue;
    const BatchStatistics& seen = statistics[next++];
    const size_t channels = Floats(step.parameters[offset + 2]).size();
    if (seen.mean.defined()) {
      AddStatistics(Floats(seen.mean), weight, sums.first(channels));
      AddStatistics(Floats(seen.variance), weight,
                    sums.subspan(channels, channels));
      sums[2 * channels] += weight;
    }
    sums.remove_prefix(2 * channels + 1);
  }
}

void TorchLayer::FoldSums(int micro_batches, absl::Span<const float>& sums) {
  for (const Step& step : steps_) {
    const int offset = NormOffset(step.operation);
    if (offset < 0) continue;
    const absl::Span<float> mean = Floats(step.parameters[offset + 2]);
    const absl::Span<float> variance = Floats(step.parameters[offset + 3]);
    const size_t channels = mean.size();
    const float weight = sums[2 * channels];
    FoldSum(sums.first(channels), weight, micro_batches, mean);
    FoldSum(sums.subspan(channels, channels), weight, micro_batches, variance);
    // A member may lie.
    for (float& value : variance) value = std::max(value, 0.0f);
    if (weight > 0) {
      *step.parameters[offset + 4].data_ptr<int64_t>() += micro_batches;
    }
    sums.remove_prefix(2 * channels + 1);
  }
}

}  // namespace paceline

#include "worker/torch/torch_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/model/initialize.h"
#include "torch/torch.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

constexpr double kLayerNormEpsilon = 1e-6;

Tensor Zeros(const Shape& shape) {
  Tensor tensor = Tensor::Allocate(DType::kF32, shape);
  absl::Span<float> values = tensor.As<float>();
  std::fill(values.begin(), values.end(), 0.0f);
  return tensor;
}

}  // namespace

TorchParameter::TorchParameter(const Parameter& parameter, int state_slots)
    : name(parameter.name),
      value(Zeros(parameter.shape)),
      gradient(Zeros(parameter.shape)),
      variable(ToTorch(value)) {
  for (int i = 0; i < state_slots; ++i) state.push_back(Zeros(parameter.shape));
  variable.set_requires_grad(true);
  variable.mutable_grad() = ToTorch(gradient);
}

// What one operation sees besides its input.
struct TorchLayer::State {
  const Step& step;
  bool training;
  at::Tensor& remembered;  // between residual_begin and residual_end

  int64_t size(int i) const { return step.operation.sizes[i]; }
  const at::Tensor& parameter(int i) const { return step.parameters[i]; }
};

// One function a kind; core/model/operation.h says what each does.
struct Computations {
  using State = TorchLayer::State;

  static at::Tensor Flatten(const State&, const at::Tensor& x) {
    return x.flatten(1);
  }
  static at::Tensor Linear(const State& s, const at::Tensor& x) {
    return at::linear(x, s.parameter(0), s.parameter(1));
  }
  static at::Tensor Relu(const State&, const at::Tensor& x) {
    return at::relu(x);
  }
  // After an operation of the same layer whose backward does not look at its
  // output: the same values without another pass through memory.
  static at::Tensor ReluInPlace(const State&, const at::Tensor& x) {
    at::Tensor y = x;
    return y.relu_();
  }
  static at::Tensor Gelu(const State&, const at::Tensor& x) {
    return at::gelu(x);
  }
  static at::Tensor Conv2d(const State& s, const at::Tensor& x) {
    const int64_t stride = s.size(3);
    const int64_t padding = s.size(4);
    return at::conv2d(x, s.parameter(0), s.parameter(1), {stride, stride},
                      {padding, padding});
  }
  static at::Tensor MaxPool2d(const State& s, const at::Tensor& x) {
    return at::max_pool2d(x, {s.size(0), s.size(0)}, {s.size(1), s.size(1)});
  }
  static at::Tensor Dropout(const State& s, const at::Tensor& x) {
    return at::dropout(x, s.step.operation.probability, s.training);
  }
  static at::Tensor LayerNorm(const State& s, const at::Tensor& x) {
    return at::layer_norm(x, {s.size(0)}, s.parameter(0), s.parameter(1),
                          kLayerNormEpsilon);
  }
  static at::Tensor PatchEmbedding(const State& s, const at::Tensor& x) {
    const int64_t patch = s.size(2);
    return at::conv2d(x, s.parameter(0), s.parameter(1), {patch, patch})
        .flatten(2)
        .transpose(1, 2);
  }
  static at::Tensor ClassToken(const State& s, const at::Tensor& x) {
    return at::cat({s.parameter(0).expand({x.size(0), -1, -1}), x}, 1);
  }
  static at::Tensor PositionEmbedding(const State& s, const at::Tensor& x) {
    return x + s.parameter(0);
  }
  static at::Tensor Attention(const State& s, const at::Tensor& x) {
    const int64_t width = s.size(0);
    const int64_t heads = s.size(1);
    const int64_t depth = width / heads;
    const int64_t samples = x.size(0);
    const int64_t tokens = x.size(1);
    const at::Tensor qkv = at::linear(x, s.parameter(0), s.parameter(1))
                               .reshape({samples, tokens, 3, heads, depth})
                               .permute({2, 0, 3, 1, 4});
    const at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(-2, -1)) *
                              (1 / std::sqrt(static_cast<double>(depth)));
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), qkv[2])
                                 .transpose(1, 2)
                                 .reshape({samples, tokens, width});
    return at::linear(mixed, s.parameter(2), s.parameter(3));
  }
  static at::Tensor ResidualBegin(const State& s, const at::Tensor& x) {
    s.remembered = x;
    return x;
  }
  static at::Tensor ResidualEnd(const State& s, const at::Tensor& x) {
    return std::exchange(s.remembered, at::Tensor()) + x;
  }
  static at::Tensor TakeToken(const State& s, const at::Tensor& x) {
    return x.select(1, s.size(0));
  }
};

TorchLayer::Compute TorchLayer::FindCompute(const Layer& layer,
                                            size_t operation) {
  static constexpr std::pair<const char*, Compute> kComputes[] = {
      {"flatten", Computations::Flatten},
      {"linear", Computations::Linear},
      {"relu", Computations::Relu},
      {"gelu", Computations::Gelu},
      {"conv2d", Computations::Conv2d},
      {"max_pool2d", Computations::MaxPool2d},
      {"dropout", Computations::Dropout},
      {"layer_norm", Computations::LayerNorm},
      {"patch_embedding", Computations::PatchEmbedding},
      {"class_token", Computations::ClassToken},
      {"position_embedding", Computations::PositionEmbedding},
      {"attention", Computations::Attention},
      {"multihead_attention", Computations::Attention},
      {"residual_begin", Computations::ResidualBegin},
      {"residual_end", Computations::ResidualEnd},
      {"take_token", Computations::TakeToken},
  };
  const std::string& kind = layer.operations[operation].kind;
  if (kind == "relu" && operation > 0) {
    const std::string& before = layer.operations[operation - 1].kind;
    if (before == "conv2d" || before == "linear") {
      return Computations::ReluInPlace;
    }
  }
  for (const auto& [name, compute] : kComputes) {
    if (kind == name) return compute;
  }
  C10_THROW_ERROR(ValueError, absl::StrCat(layer.name, ": operation '", kind,
                                           "' is not implemented"));
}

TorchLayer::TorchLayer(const Layer& layer, int64_t seed, int index,
                       int state_slots) {
  parameters_.reserve(layer.parameters.size());
  for (const Parameter& parameter : layer.parameters) {
    parameters_.emplace_back(parameter, state_slots);
  }
  size_t next = 0;
  for (size_t i = 0; i < layer.operations.size(); ++i) {
    const Operation& operation = layer.operations[i];
    Step step{FindCompute(layer, i), operation, {}};
    // A description lists the parameters in the order of their operations.
    while (next < parameters_.size() && !operation.name.empty() &&
           (parameters_[next].name == operation.name ||
            absl::StartsWith(parameters_[next].name, operation.name + "."))) {
      step.parameters.push_back(parameters_[next++].variable);
    }
    draws_ |= operation.kind == "dropout" && operation.probability > 0;
    steps_.push_back(std::move(step));
  }
  PACELINE_CHECK(next == parameters_.size(), layer.name);

  std::vector<absl::Span<float>> values;
  for (TorchParameter& parameter : parameters_) {
    values.push_back(parameter.value.As<float>());
  }
  InitializeLayer(layer, seed, index, values);
}

void TorchLayer::Bind(absl::Span<const at::Tensor> variables) {
  size_t next = 0;
  for (Step& step : steps_) {
    for (at::Tensor& parameter : step.parameters) parameter = variables[next++];
  }
  PACELINE_CHECK(next == variables.size(), absl::StrCat("bound=", next));
}

at::Tensor TorchLayer::Forward(const at::Tensor& input, bool training) const {
  at::Tensor remembered;
  at::Tensor x = input;
  for (const Step& step : steps_) {
    x = step.compute({step, training, remembered}, x);
  }
  return x.contiguous();
}

}  // namespace paceline

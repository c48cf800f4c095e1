#include "core/model/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/model/operation.h"

namespace paceline {
namespace {

// Keep these streams apart from others drawn from (seed, small number).
constexpr uint64_t kInitialStream = 0x696e6974;  // "init"
constexpr uint64_t kDropoutStream = 0x64726f70;  // "drop"
constexpr uint64_t kAdapterStream = 0x6c6f7261;  // "lora"
constexpr uint64_t kScaleStream = 0x7363616c;    // "scal"

constexpr float kEmbeddingDeviation = 0.02f;

void FillUniform(double variance, SplitMix64& random, absl::Span<float> out) {
  // Uniform in [-b, b] has variance b * b / 3.
  const float bound = static_cast<float>(std::sqrt(3 * variance));
  for (float& value : out) value = (2 * random.Unit() - 1) * bound;
}

void FillNormal(float deviation, SplitMix64& random, absl::Span<float> out) {
  // A sum of four uniforms has variance 4 / 12; its tails end at 3.5
  // deviations.
  const float scale = deviation * std::sqrt(3.0f);
  for (float& value : out) {
    float sum = -2;
    for (int i = 0; i < 4; ++i) sum += random.Unit();
    value = sum * scale;
  }
}

// Inputs that one output of a weight [out, in, ...] sums over.
double FanIn(const Shape& weight) {
  return static_cast<double>(NumElements(weight)) / weight[0];
}

// The same seen from an input; kernels count, as torch.nn.init does.
double FanOut(const Shape& weight) {
  return static_cast<double>(NumElements(weight)) / weight[1];
}

bool EndsWithAny(const std::string& name,
                 std::initializer_list<const char*> ends) {
  return std::ranges::any_of(
      ends, [&](const char* end) { return absl::EndsWith(name, end); });
}

// A normalisation between the two changes nothing.
bool ReluFollows(const Layer& layer, size_t operation) {
  for (size_t i = operation + 1; i < layer.operations.size(); ++i) {
    const std::string& kind = layer.operations[i].kind;
    if (kind != "batch_norm2d") return kind == "relu";
  }
  return false;
}

// Gram and Schmidt's, over a matrix [out, in...] or its transpose.  A second
// pass takes away what rounding left of the first.
void FillOrthogonal(const Shape& shape, double gain, SplitMix64& random,
                    absl::Span<float> out) {
  const auto rows = static_cast<size_t>(shape[0]);
  const size_t columns = out.size() / rows;
  const size_t count = std::min(rows, columns), size = std::max(rows, columns);
  std::vector<double> vectors(count * size);
  for (size_t i = 0; i < count; ++i) {
    double* const own = &vectors[i * size];
    for (size_t k = 0; k < size; ++k) own[k] = 2 * random.Unit() - 1;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        const double* const other = &vectors[j * size];
        double product = 0;
        for (size_t k = 0; k < size; ++k) product += own[k] * other[k];
        for (size_t k = 0; k < size; ++k) own[k] -= product * other[k];
      }
      double norm = 0;
      for (size_t k = 0; k < size; ++k) norm += own[k] * own[k];
      norm = std::sqrt(norm);
      for (size_t k = 0; k < size; ++k) own[k] /= norm;
    }
  }
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const size_t at = rows <= columns ? r * size + c : c * size + r;
      out[r * columns + c] = static_cast<float>(gain * vectors[at]);
    }
  }
}

void FillWeight(const Layer& layer, size_t operation, const Parameter& weight,
                SplitMix64& random, absl::Span<float> out) {
  Shape shape = weight.shape;
  if (HasTrait(layer.operations[operation].kind, kIsInFirst)) {
    std::swap(shape[0], shape[1]);
  }
  const double fan_in = FanIn(shape);
  const bool three = EndsWithAny(
      weight.name, {".qkv.weight", ".in_proj_weight", ".c_attn.weight"});
  const bool four = HasTrait(layer.operations[operation].kind, kIsRecurrent);
  const double fan_out = FanOut(shape) / (three ? 3 : four ? 4 : 1);
  const bool relu = ReluFollows(layer, operation);
  if (layer.init == "orthogonal") {
    return FillOrthogonal(weight.shape, relu ? std::sqrt(2.0) : 1, random, out);
  }
  double variance = relu ? 2 / fan_in : 2 / (fan_in + fan_out);
  if (layer.init == "uniform") variance = 1 / (3 * fan_in);
  if (layer.init == "xavier") variance = 2 / (fan_in + fan_out);
  if (layer.init == "kaiming") variance = 2 / fan_in;
  FillUniform(variance, random, out);
}

// A place in the layer's column of a Latin hypercube, in [0, 1).
double HypercubePlace(int64_t seed, int index, float within) {
  SplitMix64 random(MixSeed({kScaleStream, static_cast<uint64_t>(index)}));
  std::array<int, kHypercubeStarts> order;
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(i + 1)]);
  }
  const auto row = static_cast<uint64_t>(seed) % kHypercubeStarts;
  return (order[row] + within) / kHypercubeStarts;
}

void FillParameter(const Layer& layer, size_t operation,
                   const Parameter& parameter, SplitMix64& random,
                   absl::Span<float> out) {
  const std::string& kind = layer.operations[operation].kind;
  if (HasTrait(kind, kIsTable)) {
    FillNormal(kEmbeddingDeviation, random, out);
  } else if (EndsWithAny(parameter.name, {".bias", "_bias", ".running_mean"}) ||
             (HasTrait(kind, kIsRecurrent) && parameter.shape.size() == 1)) {
    std::ranges::fill(out, 0.0f);
  } else if (parameter.shape.size() == 1) {  // a scale, or a variance
    std::ranges::fill(out, 1.0f);
  } else if (HasTrait(kind, kIsInFirst) &&
             (layer.init == "auto" || layer.init == "latin-hypercube")) {
    FillNormal(kEmbeddingDeviation, random, out);
  } else {
    FillWeight(layer, operation, parameter, random, out);
  }
}

// So that A x begins small and B (A x) as 0.
void FillAdapter(const Parameter& parameter, SplitMix64& random,
                 absl::Span<float> out) {
  if (absl::EndsWith(parameter.name, kAdapterIn)) {
    FillUniform(1 / (3 * FanIn(parameter.shape)), random, out);
  } else {
    std::ranges::fill(out, 0.0f);
  }
}

// Where a parameter is that must be there.
size_t Find(const std::vector<Parameter>& parameters, const std::string& name) {
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  PACELINE_CHECK(found != parameters.end(), name);
  return found - parameters.begin();
}

}  // namespace

void InitializeLayer(const Layer& layer, int64_t seed, int index,
                     absl::Span<const absl::Span<float>> parameters) {
  PACELINE_CHECK(parameters.size() == layer.parameters.size(), layer.name,
                 ": got ", parameters.size(), ", need ",
                 layer.parameters.size());
  SplitMix64 random(MixSeed({kInitialStream, static_cast<uint64_t>(seed),
                             static_cast<uint64_t>(index)}));
  // Beside adapters a model begins with the values that it has without.
  SplitMix64 of_adapters(MixSeed({kAdapterStream, static_cast<uint64_t>(seed),
                                  static_cast<uint64_t>(index)}));
  SplitMix64 of_scale(MixSeed({kScaleStream, static_cast<uint64_t>(seed),
                               static_cast<uint64_t>(index)}));
  const auto scale = static_cast<float>(
      0.5 + 1.5 * HypercubePlace(seed, index, of_scale.Unit()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = layer.parameters[i];
    if (parameter.dtype != DType::kF32) continue;
    if (IsOfAdapter(parameter)) {
      FillAdapter(parameter, of_adapters, parameters[i]);
      continue;
    }
    const Operation& owner = OwnerOf(layer, parameter);
    FillParameter(layer, &owner - layer.operations.data(), parameter, random,
                  parameters[i]);
    if (layer.init != "latin-hypercube" || parameter.shape.size() == 1 ||
        HasTrait(owner.kind, kIsTable)) {
      continue;
    }
    for (float& value : parameters[i]) value *= scale;
  }
}

void InitializeBorrowed(const ModelDescription& model, int index, int64_t seed,
                        absl::Span<const absl::Span<float>> parameters) {
  const std::vector<Parameter>& borrowed = model.layers[index].borrowed;
  PACELINE_CHECK_EQ(parameters.size(), borrowed.size());
  for (const SharedParameter& shared :
       SharedParameters(model, /*frozen_too=*/true)) {
    if (shared.user != index) continue;
    const Layer& owner = model.layers[shared.owner];
    std::vector<std::vector<float>> values;
    for (const Parameter& parameter : owner.parameters) {
      values.emplace_back(
          parameter.dtype == DType::kF32 ? NumElements(parameter.shape) : 0);
    }
    std::vector<absl::Span<float>> spans;
    for (std::vector<float>& each : values) {
      spans.push_back(absl::MakeSpan(each));
    }
    InitializeLayer(owner, seed, shared.owner, spans);
    const size_t from = Find(owner.parameters, shared.name);
    const size_t to = Find(borrowed, shared.name);
    std::ranges::copy(values[from], parameters[to].begin());
  }
}

uint64_t DropoutSeed(int64_t seed, int64_t step, int micro_batch, int layer) {
  return MixSeed(
      {kDropoutStream, static_cast<uint64_t>(seed), static_cast<uint64_t>(step),
       static_cast<uint64_t>(micro_batch), static_cast<uint64_t>(layer)});
}

}  // namespace paceline

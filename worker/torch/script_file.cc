#include "worker/torch/script_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/model/data_sets.h"
#include "torch/torch.h"
#include "worker/torch/allocation_meter.h"
#include "worker/torch/guard.h"
#include "worker/torch/script.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

constexpr int64_t kSamples = 2;

absl::Status DoesNot(const std::string& file, const std::string& layer,
                     const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": layer ", layer, " ", what));
}

// Of a matrix or kernel [out, ...]: two a multiply-add, once for each place of
// the output.  Right for linear maps and convolutions.
double GuessFlops(const ScriptLayer& layer) {
  double flops = 0;
  for (const Parameter& parameter : layer.parameters) {
    if (parameter.shape.size() < 2 || parameter.shape[0] < 1) continue;
    const double places = static_cast<double>(NumElements(layer.output)) /
                          static_cast<double>(parameter.shape[0]);
    flops += 2.0 * static_cast<double>(NumElements(parameter.shape)) *
             std::max(places, 1.0);
  }
  return flops;
}

absl::StatusOr<std::vector<Parameter>> ParametersOf(
    const std::string& file, const std::string& name,
    const torch::jit::Module& child) {
  std::vector<Parameter> parameters;
  for (const ScriptTensor& found : TensorsOf(child)) {
    const DType dtype = FromTorch(found.tensor.scalar_type());
    if (dtype == DType::kUnspecified ||
        (found.trainable && dtype != DType::kF32)) {
      return DoesNot(file, name,
                     absl::StrCat("has ", found.name, " of dtype ",
                                  c10::toString(found.tensor.scalar_type()),
                                  "; parameters must be float32"));
    }
    parameters.push_back({absl::StrCat(name, ".", found.name),
                          found.tensor.sizes().vec(), found.trainable, dtype});
  }
  return parameters;
}

std::string SamplesText(const at::Tensor& x) {
  return absl::StrCat("samples of shape [",
                      absl::StrJoin(x.sizes().slice(1), ", "), "]",
                      x.is_floating_point() ? "" : " of tokens, int64");
}

// Runs one child as training would, and says what came out.
absl::StatusOr<ScriptLayer> Try(const std::string& file,
                                const std::string& name,
                                torch::jit::Module child, at::Tensor& x) {
  ScriptLayer layer;
  layer.name = name;
  PACELINE_ASSIGN_OR_RETURN(layer.parameters, ParametersOf(file, name, child));
  child.train(true);
  const at::Tensor leaf = x.detach().set_requires_grad(x.is_floating_point());
  const at::Tensor input = leaf.clone();
  const auto version = input._version();
  const AllocationMeter meter(/*enabled=*/true);
  at::Tensor output;
  try {
    output = RunScript(child, input);
  } catch (const c10::Error& error) {
    return DoesNot(file, name,
                   absl::StrCat("cannot take ", SamplesText(x), ": ",
                                error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return DoesNot(
        file, name,
        absl::StrCat("cannot take ", SamplesText(x), ": ", error.what()));
  }
  output = output.contiguous();
  if (output.scalar_type() != at::kFloat || output.dim() < 2 ||
      output.size(0) != kSamples) {
    return DoesNot(
        file, name,
        absl::StrCat("gives a tensor [", absl::StrJoin(output.sizes(), ", "),
                     "] of ", c10::toString(output.scalar_type()), " for ",
                     kSamples, " samples; need float32 [", kSamples, ", ...]"));
  }
  layer.writes_input = input._version() != version;
  layer.output = output.sizes().slice(1).vec();
  const int64_t input_bytes = x.numel() * x.element_size();
  layer.activation_bytes =
      (std::max<int64_t>(meter.live_bytes(), 0) + input_bytes) / kSamples;
  layer.forward_flops = GuessFlops(layer);
  x = output.detach();
  return layer;
}

}  // namespace

absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec) {
  const std::string& file = spec.model.file;
  PACELINE_ASSIGN_OR_RETURN(const Script script, LoadScript(file));
  return Guard("script", [&]() -> absl::StatusOr<ScriptModel> {
    ScriptModel model;
    model.sha256 = script.sha256;
    const SampleFormat format = FormatOf(spec.data);
    model.input = format.shape;
    model.vocabulary = VocabularyOf(spec.data);
    std::vector<int64_t> shape = {kSamples};
    shape.insert(shape.end(), model.input.begin(), model.input.end());
    at::Tensor x = model.vocabulary > 0
                       ? at::full(shape, model.vocabulary - 1, at::kLong)
                       : at::zeros(shape);
    for (const auto& [name, child] : script.children) {
      PACELINE_ASSIGN_OR_RETURN(model.layers.emplace_back(),
                                Try(file, name, child, x));
    }
    return model;
  });
}

}  // namespace paceline

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/model/chain.h"

namespace paceline {
namespace {

// Far above any model for small machines: a description may come from anyone.
constexpr size_t kMostLayers = 4096;
constexpr size_t kMostParameters = 100'000;
constexpr int64_t kMostBytes = int64_t{1} << 40;

template <typename... Parts>
absl::Status Impossible(const Parts&... what) {
  return InvalidArgument("the description of the script is impossible: ",
                         what...);
}

bool IsSize(DType dtype, const Shape& shape) {
  const int64_t bytes = TensorBytes(dtype, shape);
  return ElementBytes(dtype) > 0 && bytes >= 0 && bytes <= kMostBytes;
}

absl::Status CheckParameters(const ScriptLayer& layer,
                             std::set<std::string>& names) {
  for (const Parameter& parameter : layer.parameters) {
    if (!names.insert(parameter.name).second) {
      return Impossible("two parameters ", parameter.name);
    }
    if (!IsSize(parameter.dtype, parameter.shape) ||
        (parameter.trainable && parameter.dtype != DType::kF32)) {
      return Impossible("parameter ", parameter.name);
    }
  }
  return names.size() <= kMostParameters ? absl::OkStatus()
                                         : Impossible("too many parameters");
}

absl::StatusOr<Layer> DescribeLayer(const ScriptLayer& script,
                                    std::set<std::string>& names) {
  PACELINE_RETURN_IF_ERROR(CheckParameters(script, names));
  const bool numbers = script.activation_bytes >= 0 &&
                       script.activation_bytes <= kMostBytes &&
                       script.forward_flops >= 0 && script.forward_flops < 1e18;
  if (!numbers || script.output.empty() ||
      !IsSize(DType::kF32, script.output) || NumElements(script.output) < 1) {
    return Impossible("layer ", script.name);
  }
  Layer layer;
  layer.name = script.name;
  layer.operations = {
      {"script", script.name, {script.writes_input ? 1 : 0}, 0}};
  layer.parameters = script.parameters;
  layer.output = script.output;
  layer.forward_flops = script.forward_flops;
  layer.output_bytes = TensorBytes(DType::kF32, script.output);
  layer.activation_bytes = script.activation_bytes;
  for (const Parameter& parameter : layer.parameters) {
    layer.parameter_bytes += TensorBytes(parameter.dtype, parameter.shape);
  }
  return layer;
}

absl::Status DescribeScores(const std::string& file, ModelDescription& model) {
  const Shape& output = model.layers.back().output;
  const bool tokens = model.input_dtype == DType::kI64;
  if (output.back() != model.classes || output.size() > (tokens ? 2 : 1)) {
    return InvalidArgument(
        file, " ends with shape ", ShapeText(output), " of a sample, need [",
        model.classes, "]",
        tokens ? absl::StrCat(" or [tokens, ", model.classes, "]") : "",
        ": one score a class, as data.classes says",
        tokens ? ", of the sample or of each token" : "");
  }
  model.label_shape.assign(output.begin(), output.end() - 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeScript(const ModelSpec& spec,
                                                const Shape& input,
                                                int32_t classes) {
  const ScriptModel& script = spec.script;
  if (script.layers.empty()) {
    return FailedPrecondition("no worker has looked into ", spec.file,
                              " yet: its layers are not known");
  }
  if (script.input != input) {
    return InvalidArgument(spec.file, " was described for samples of shape ",
                           ShapeText(script.input), ", data.shape is ",
                           ShapeText(input));
  }
  if (script.layers.size() > kMostLayers) return Impossible("too many layers");
  ModelDescription model;
  model.name = spec.name;
  model.input = input;
  model.classes = classes;
  if (script.vocabulary != 0) {
    if (script.vocabulary < 0) return Impossible("its vocabulary");
    model.input_dtype = DType::kI64;
    model.vocabulary = script.vocabulary;
  }
  model.file = spec.file;
  model.file_sha256 = script.sha256;
  std::set<std::string> layers, parameters;
  for (const ScriptLayer& described : script.layers) {
    if (described.name.empty() || !layers.insert(described.name).second) {
      return Impossible("two layers '", described.name, "'");
    }
    PACELINE_ASSIGN_OR_RETURN(Layer layer,
                              DescribeLayer(described, parameters));
    model.layers.push_back(std::move(layer));
  }
  PACELINE_RETURN_IF_ERROR(DescribeScores(spec.file, model));
  return model;
}

}  // namespace paceline

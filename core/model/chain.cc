#include "core/model/chain.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"

namespace paceline {
namespace {

constexpr int64_t kFloatBytes = 4;

}  // namespace

Chain::Chain(std::string model, Shape input, int32_t classes) : shape_(input) {
  model_.name = std::move(model);
  model_.input = std::move(input);
  model_.classes = classes;
}

Chain& Chain::Begin(std::string layer) {
  Layer next;
  next.name = std::move(layer);
  next.output = shape_;
  next.output_bytes = NumElements(shape_) * kFloatBytes;
  next.activation_bytes = next.output_bytes;  // its input is kept
  model_.layers.push_back(std::move(next));
  return *this;
}

Chain& Chain::Add(Operation operation) {
  PACELINE_CHECK(!model_.layers.empty(), "Begin() comes before Add()");
  if (!status_.ok()) return *this;
  absl::StatusOr<OperationFacts> facts = ExamineOperation(operation, shape_);
  if (!facts.ok()) {
    status_ = facts.status();
    return *this;
  }
  shape_ = std::move(facts->output);
  Layer& layer = model_.layers.back();
  layer.output = shape_;
  layer.output_bytes = NumElements(shape_) * kFloatBytes;
  const bool in_place = !layer.operations.empty() &&
                        IsInPlace(operation, layer.operations.back());
  if (!in_place) {
    layer.activation_bytes += facts->kept_elements * kFloatBytes;
  }
  layer.forward_flops += facts->flops;
  for (Parameter& parameter : facts->parameters) {
    layer.parameter_bytes += TensorBytes(parameter.dtype, parameter.shape);
    layer.parameters.push_back(std::move(parameter));
  }
  layer.operations.push_back(std::move(operation));
  return *this;
}

Chain& Chain::AddDropout(double probability) {
  if (probability == 0) return *this;
  return Add({"dropout", "", {}, probability});
}

absl::StatusOr<ModelDescription> Chain::Build() && {
  if (!status_.ok()) return status_;
  if (shape_ != Shape{model_.classes}) {
    return absl::InvalidArgumentError(absl::StrCat(
        model_.name, " ends with shape [", absl::StrJoin(shape_, ", "),
        "], need ", model_.classes, " classes"));
  }
  return std::move(model_);
}

}  // namespace paceline

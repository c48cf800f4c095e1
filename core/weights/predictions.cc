#include "core/weights/predictions.h"

#include <utility>
#include <vector>

namespace paceline {
namespace {

constexpr char kPredictions[] = "predictions";

}  // namespace

Shape PredictionShape(const ModelDescription& model) {
  Shape shape = model.layers.back().output;
  if (!shape.empty()) shape.pop_back();
  return shape;
}

std::vector<uint8_t> SkippedRow(const ModelDescription& model,
                                const InferSpec& infer) {
  bool any = infer.tolerate == "skip";
  std::vector<uint8_t> row;
  for (const Layer& layer : model.layers) {
    if (layer.block < 0) continue;
    row.resize(layer.block + 1);
    row[layer.block] = layer.skipped ? 1 : 0;
    any = any || layer.skipped;
  }
  return any ? row : std::vector<uint8_t>();
}

absl::StatusOr<SafetensorsLayout> LayOutPredictions(
    const ModelDescription& model, const InferSpec& infer, int64_t samples,
    const PredictedNameBytes& names) {
  const Shape each = Batched(samples, PredictionShape(model));
  std::vector<TensorPlace> tensors;
  tensors.push_back(
      {.name = kPredictedClasses, .dtype = DType::kI64, .shape = each});
  tensors.push_back(
      {.name = kPredictedLabels, .dtype = DType::kI64, .shape = each});
  if (infer.outputs) {
    tensors.push_back({.name = kPredictedOutputs,
                       .shape = Batched(samples, model.layers.back().output)});
  }
  const auto blocks = static_cast<int64_t>(SkippedRow(model, infer).size());
  if (blocks > 0) {
    tensors.push_back({.name = kPredictedSkipped,
                       .dtype = DType::kU8,
                       .shape = {samples, blocks}});
  }
  // Last, since all others have to begin at a multiple of their elements.
  for (const auto& [name, bytes] :
       {std::pair(kPredictedFiles, names.files),
        std::pair(kPredictedClassNames, names.class_names)}) {
    if (bytes == 0) continue;
    tensors.push_back({.name = name, .dtype = DType::kU8, .shape = {bytes}});
  }
  absl::StatusOr<SafetensorsLayout> layout = LayOut(
      std::move(tensors),
      {{"format", "pt"}, {"model", model.name}, {"content", kPredictions}});
  if (layout.ok()) layout->content = kPredictions;
  return layout;
}

}  // namespace paceline

#include "core/plan/stage_memory.h"

#include <algorithm>
#include <cstddef>

namespace paceline {

double FixedBytes(const PlanProblem& problem, const LayerCost& layer) {
  return problem.parameter_copies * layer.parameter_bytes -
         problem.owner_copies * layer.borrowed_bytes + layer.frozen_bytes;
}

StageAmounts AmountsOf(const PlanProblem& problem, LayerRange layers) {
  StageAmounts amounts;
  const int length = SegmentLayers(problem);
  double segment = 0;
  for (int index = layers.first; index < layers.last; ++index) {
    const LayerCost& layer = problem.layers[index];
    amounts.fixed += FixedBytes(problem, layer);
    amounts.parameters += layer.parameter_bytes;
    amounts.outputs += OutputBytes(problem, layer);
    if (length == 0) {
      amounts.kept += layer.kept_bytes;
      continue;
    }
    if ((index - layers.first) % length == 0) {
      amounts.kept += InputBytes(problem, index);
      segment = 0;
    }
    segment += SegmentBytes(problem, layer);
    amounts.once = std::max(amounts.once, segment);
  }
  const auto add_boundary = [&](const LayerCost& before) {
    amounts.boundary += before.output_bytes;
    amounts.frames += DecodedBytes(before);
  };
  if (layers.first > 0) add_boundary(problem.layers[layers.first - 1]);
  if (static_cast<size_t>(layers.last) < problem.layers.size()) {
    add_boundary(problem.layers[layers.last - 1]);
  }
  return amounts;
}

double StageBytes(const PlanProblem& problem, LayerRange layers,
                  const StagePlace& place) {
  return BytesOf(problem, AmountsOf(problem, layers),
                 InFlightOf(problem, place));
}

}  // namespace paceline

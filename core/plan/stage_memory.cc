#include "core/plan/stage_memory.h"

#include <cstddef>

namespace paceline {

double FixedBytes(const PlanProblem& problem, const LayerCost& layer) {
  return problem.parameter_copies * layer.parameter_bytes -
         problem.owner_copies * layer.borrowed_bytes + layer.frozen_bytes;
}

StageAmounts AmountsOf(const PlanProblem& problem, LayerRange layers) {
  StageAmounts amounts;
  for (int index = layers.first; index < layers.last; ++index) {
    const LayerCost& layer = problem.layers[index];
    amounts.fixed += FixedBytes(problem, layer);
    amounts.parameters += layer.parameter_bytes;
    amounts.kept += layer.kept_bytes;
    amounts.outputs += layer.output_bytes;
  }
  if (layers.first > 0) {
    amounts.boundary += problem.layers[layers.first - 1].output_bytes;
  }
  if (static_cast<size_t>(layers.last) < problem.layers.size()) {
    amounts.boundary += problem.layers[layers.last - 1].output_bytes;
  }
  return amounts;
}

double StageBytes(const PlanProblem& problem, LayerRange layers,
                  const StagePlace& place) {
  return BytesOf(problem, AmountsOf(problem, layers),
                 InFlightOf(problem, place));
}

}  // namespace paceline

#include "core/simulate/workload.h"

#include <cstddef>

#include "core/plan/stage_memory.h"

namespace paceline {
namespace {

struct Seconds {
  double forward = 0;
  double backward = 0;
};

Seconds SecondsOf(const PlanProblem& problem, int layer, const Device& device) {
  const LayerCost& cost = problem.layers[layer];
  const double backward = problem.training ? cost.backward_seconds : 0;
  if (device.layer_seconds.empty()) {
    return {cost.forward_seconds / device.speed, backward / device.speed};
  }
  const double measured = device.layer_seconds[layer];
  const double both = cost.forward_seconds + backward;
  if (!(both > 0)) return {measured, 0};
  const double forward = measured * (cost.forward_seconds / both);
  return {forward, measured - forward};
}

}  // namespace

std::vector<StageWork> WeighStages(
    const PlanProblem& problem, const Placement& placement,
    const std::vector<double>& optimizer_seconds) {
  std::vector<StageWork> stages;
  for (size_t s = 0; s < placement.size(); ++s) {
    const LayerRange layers = placement[s].layers;
    StageWork work;
    work.output_bytes = problem.layers[layers.last - 1].output_bytes;
    const StageAmounts amounts = AmountsOf(problem, layers);
    work.parameter_bytes = amounts.parameters;
    work.fixed_bytes = amounts.fixed + amounts.once;
    if (problem.training) {
      work.kept_bytes = amounts.kept;
      work.split_bytes = amounts.outputs;
    }
    for (const int index : placement[s].devices) {
      const Device& device = problem.devices[index];
      Seconds sum;
      double input_seconds = 0;
      for (int layer = layers.first; layer < layers.last; ++layer) {
        const Seconds seconds = SecondsOf(problem, layer, device);
        sum.forward += seconds.forward;
        sum.backward += seconds.backward;
        const bool weighs = problem.layers[layer].parameter_bytes > 0;
        input_seconds += weighs ? seconds.backward / 2 : seconds.backward;
      }
      work.forward_seconds.push_back(sum.forward);
      work.backward_seconds.push_back(sum.backward);
      work.input_seconds.push_back(input_seconds);
      work.optimizer_seconds.push_back(
          optimizer_seconds.empty() ? 0 : optimizer_seconds[s] / device.speed);
    }
    stages.push_back(std::move(work));
  }
  return stages;
}

}  // namespace paceline

// Problems for tests: a chain of layers, one a stage and device.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/simulate/simulation.h"

namespace paceline {

inline constexpr double kFree = std::numeric_limits<double>::infinity();

struct Chain {
  PlanProblem problem;
  Placement placement;
  SimulationOptions options;

  // A layer and a device for each of `seconds`; free links, no bytes.
  // Backward takes `backward` times as long as forward.
  static Chain Of(const std::vector<double>& seconds, int64_t micro_batches,
                  bool training, double backward = 2) {
    Chain chain;
    PlanProblem& problem = chain.problem;
    for (size_t i = 0; i < seconds.size(); ++i) {
      LayerCost layer;
      layer.name = "l" + std::to_string(i);
      layer.forward_seconds = seconds[i];
      layer.backward_seconds = backward * seconds[i];
      problem.layers.push_back(layer);
      Device device;
      device.name = "d" + std::to_string(i);
      problem.devices.push_back(device);
      const int first = static_cast<int>(i);
      chain.placement.push_back({{first, first + 1}, {first}, {1}});
    }
    problem.micro_batches = micro_batches;
    problem.training = training;
    chain.Link(kFree, 0);
    return chain;
  }

  static Chain Equal(int stages, int64_t micro_batches, bool training) {
    return Of(std::vector<double>(stages, 1), micro_batches, training);
  }

  void Link(double bytes_per_second, double latency_seconds) {
    const size_t devices = problem.devices.size();
    problem.links.assign(
        devices,
        std::vector<LinkCost>(devices, {bytes_per_second, latency_seconds}));
  }

  void Bytes(double output, double kept = 0, double parameters = 0) {
    for (LayerCost& layer : problem.layers) {
      layer.output_bytes = output;
      layer.kept_bytes = kept;
      layer.parameter_bytes = parameters;
    }
  }

  absl::StatusOr<SimulationResult> Try() const {
    return Simulate(problem, placement, options);
  }

  SimulationResult Run() const {
    absl::StatusOr<SimulationResult> result = Try();
    PACELINE_CHECK(result.ok(), result.status().ToString());
    return *std::move(result);
  }

  double Formula() const {
    const absl::StatusOr<PlacementCost> cost = CostOf(problem, placement);
    PACELINE_CHECK(cost.ok(), cost.status().ToString());
    return cost->step_seconds;
  }
};

inline double BusySeconds(const DeviceUse& use) {
  return use.load_seconds + use.forward_seconds + use.backward_seconds +
         use.optimizer_seconds;
}

}  // namespace paceline

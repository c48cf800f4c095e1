// Planning problems small enough to solve in one's head.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/problem.h"

namespace paceline {

// Layers of these forward seconds that send and hold nothing, on devices of
// these speeds with free links; an endless stream of training.
inline PlanProblem ProblemOf(const std::vector<double>& layer_seconds,
                             const std::vector<double>& speeds) {
  PlanProblem problem;
  for (size_t i = 0; i < layer_seconds.size(); ++i) {
    LayerCost layer;
    layer.name = "layer" + std::to_string(i);
    layer.forward_seconds = layer_seconds[i];
    problem.layers.push_back(std::move(layer));
  }
  for (size_t i = 0; i < speeds.size(); ++i) {
    Device device;
    device.name = "device" + std::to_string(i);
    device.speed = speeds[i];
    problem.devices.push_back(std::move(device));
  }
  problem.links.assign(speeds.size(),
                       std::vector<LinkCost>(speeds.size(), {HUGE_VAL, 0}));
  return problem;
}

inline void SetLinks(PlanProblem& problem, const LinkCost& link) {
  for (std::vector<LinkCost>& row : problem.links) {
    row.assign(row.size(), link);
  }
}

inline void SetOutputs(PlanProblem& problem, const std::vector<double>& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    problem.layers[i].output_bytes = bytes[i];
  }
}

// Twelve layers of a second on two devices that take ten times as long and two
// that do not.
inline PlanProblem TwoSlowTwoFast() {
  return ProblemOf(std::vector<double>(12, 1.0), {0.1, 0.1, 1, 1});
}

}  // namespace paceline

// Counts the seconds and bytes of the stages of a placement.
#pragma once

#include <vector>

#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

struct StageWork {
  double output_bytes = 0;     // of a frame to the next stage, and back
  double kept_bytes = 0;       // of a micro-batch; 0 without training
  double parameter_bytes = 0;  // one copy
  // The parameters, always there, and of one segment (StageAmounts::once).
  double fixed_bytes = 0;
  // A backward in halves keeps the gradient of each layer's output between
  // them.
  double split_bytes = 0;
  // [replicas], of a micro-batch.  Where a device was measured, its seconds are
  // split as the layer's own are.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // Its first half, I, takes half the time of a layer with parameters and all
  // of another's.
  std::vector<double> input_seconds;
  std::vector<double> optimizer_seconds;  // of an update
};

// optimizer_seconds: [stages], on a device of speed 1; empty: none.
std::vector<StageWork> WeighStages(
    const PlanProblem& problem, const Placement& placement,
    const std::vector<double>& optimizer_seconds);

}  // namespace paceline

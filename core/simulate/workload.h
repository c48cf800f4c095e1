// What the stages of a placement weigh, in seconds and bytes.
#pragma once

#include <vector>

#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

struct StageWork {
  double output_bytes = 0;     // of a frame to the next stage, and back
  double kept_bytes = 0;       // of a micro-batch; 0 without training
  double parameter_bytes = 0;  // one copy
  double fixed_bytes = 0;      // of the parameters, always there
  // What a backward in halves keeps between them: the gradient of each layer's
  // output.
  double split_bytes = 0;
  // [replicas], of a micro-batch.  Where a device was measured, its seconds are
  // split as the layer's own are.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // Of its first half, I: half of what a layer with parameters takes, all of
  // another.
  std::vector<double> input_seconds;
  std::vector<double> optimizer_seconds;  // of an update
};

// optimizer_seconds: [stages], on a device of speed 1; empty: none.
std::vector<StageWork> WeighStages(
    const PlanProblem& problem, const Placement& placement,
    const std::vector<double>& optimizer_seconds);

}  // namespace paceline

// The policy `equal`: stages of as many layers each.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/cost.h"

namespace paceline {

// problem.stages stages, or as many as layers and devices allow when it is 0;
// layer counts differ by at most one, the longer ones first; one device a
// stage, the first ones in order.  `problem` has passed CheckProblem.
//
// Errors: ResourceExhausted  a stage does not fit its device.
absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem);

// Puts ranges[s] on device s, checked against its memory.
// Errors: ResourceExhausted  a stage does not fit its device.
absl::StatusOr<Placement> OneDeviceAStage(
    const PlanProblem& problem, const std::vector<LayerRange>& ranges);

// How many stages a policy without an objective makes.
int StagesOf(const PlanProblem& problem);

}  // namespace paceline

// The policies `equal` and `min-cut`: they cut the chain without looking at the
// devices, which take the stages in order.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

// problem.stages stages, or as many as layers and devices allow when it is 0;
// layer counts differ by at most one, the longer ones first; one device a
// stage, the first ones in order.  `problem` has passed CheckProblem.
//
// Errors: ResourceExhausted  a stage does not fit its device.
absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem);

// As many stages as EqualPlacement makes, cut where the fewest bytes cross in
// all (which also makes the largest crossing smallest: the cuts are the
// cheapest there are); among those the most even layer counts, by the least
// sum of squares.  One device a stage, the first ones in order.
// O(stages x layers^2).  `problem` has passed CheckProblem.
//
// Errors: ResourceExhausted  a stage does not fit its device.
absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem);

}  // namespace paceline

// The policy `min-cut`: cuts where little crosses.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/cost.h"

namespace paceline {

// As many stages as EqualPlacement makes, cut where the fewest bytes cross in
// all (which also makes the largest crossing smallest: the cuts are the
// cheapest there are); among those the most even layer counts, by the least
// sum of squares.  One device a stage, the first ones in order.
// O(stages x layers^2).  `problem` has passed CheckProblem.
//
// Errors: ResourceExhausted  a stage does not fit its device.
absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem);

}  // namespace paceline

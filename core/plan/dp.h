// The policy `dp`.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/cost.h"

namespace paceline {

struct DpAnswer {
  Placement placement;
  bool exact = false;  // proved optimal, with shares as SharesFor gives them
};

// A short heuristic search, then the exact one below what that found; where
// the exact one is too large or gives up, a longer heuristic search.  What is
// too large is a count of states and steps, never a clock.  `problem` has
// passed CheckProblem.
//
// Errors: ResourceExhausted  no placement fits the memory, or (when the exact
// search is too large) none was found that does.
absl::StatusOr<DpAnswer> SolveDp(const PlanProblem& problem);

}  // namespace paceline

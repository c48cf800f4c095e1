// The policy `brute`: every placement there is.  The oracle of the tests.
// Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/cost.h"

namespace paceline {

inline constexpr double kMostBrutePlacements = 2e6;

// How many placements `problem` has: cuts x devices for each stage, with
// devices left out.  Infinity beyond the range of double.
double CountPlacements(const PlanProblem& problem);

// The placement of the least step_seconds that fits, with shares as SharesFor
// gives them; of equals the one with fewer stages, then the first in the order
// of the walk.  O(CountPlacements).  `problem` has passed CheckProblem.
//
// Errors:
//   InvalidArgument    more than kMostBrutePlacements: says both numbers
//   ResourceExhausted  no placement fits the memory
absl::StatusOr<Placement> BrutePlacement(const PlanProblem& problem);

}  // namespace paceline

// The policy `dp` on one level.  Pure.
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

using DpSolver = absl::StatusOr<DpAnswer> (*)(const PlanProblem& problem);

// Schedules with backwards in halves keep more the more stages come before a
// stage (stage_memory.h), which a search from the last stage to the first does
// not know, unless the number of stages is given.
//
// `solve` as it is where backwards are whole or the number of stages is given.
// Else `solve` first counts nothing for earlier stages: what it finds is the
// answer where it fits as counted in full.  Where it does not, every number of
// stages is asked for that could be better than the best one so far; of more
// than kMostStageCounts those nearest to the first answer's, and then nothing
// is proved.
//
// Errors: those of `solve`
inline constexpr int kMostStageCounts = 8;
absl::StatusOr<DpAnswer> SolveHalves(const PlanProblem& problem,
                                     DpSolver solve);

}  // namespace paceline

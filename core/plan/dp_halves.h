// Schedules with backwards in halves keep more the more stages come before a
// stage (stage_memory.h), which a search from the last stage to the first does
// not know.  It does where it knows the number of stages.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/plan/dp.h"
#include "core/plan/problem.h"

namespace paceline {

using DpSolver = absl::StatusOr<DpAnswer> (*)(const PlanProblem& problem);

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

// The policy `mcmc`: a Metropolis-Hastings walk over placements, after the
// search of FlexFlow (Jia, Zaharia, Aiken 2018, "Beyond Data and Model
// Parallelism for Deep Neural Networks", section 6).  Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

// The best placement that the walk met and that fits, with shares as SharesFor
// gives them.  A step changes a cut, the devices of a stage or two, or the
// number of stages (kept when problem.stages is not 0); it is taken with
// probability min(1, exp(-increase / temperature)).  What does not fit is
// charged by how much, so that the walk may pass through it.
//
// Ours differs from the paper: the temperature falls (the paper's is fixed),
// half of the proposals are about the stage that bounds the step (so the chain
// is not symmetric: it minimises, it does not sample), and the costs are exact
// rather than simulated.
//
// Same arguments, same answer, on every machine.  `problem` has passed
// CheckProblem.  The number of steps grows with layers + devices: 8 layers on
// 5 devices take some milliseconds, 1,000 layers on 64 a second.
//
// Errors: ResourceExhausted  no placement that it met fits; not a proof.
absl::StatusOr<Placement> McmcPlacement(const PlanProblem& problem,
                                        uint64_t seed);

}  // namespace paceline

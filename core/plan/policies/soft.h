// The policy `soft`: gradient descent on a relaxation of the placement, then
// rounding.  Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/cost.h"
#include "core/plan/policies/soft_relaxation.h"
#include "core/plan/policies/walk_state.h"
#include "core/plan/problem.h"

namespace paceline {

// For several numbers of stages (the one asked for, when problem.stages is not
// 0) and several seeded starts: descend on the Relaxation by Adam (Kingma and
// Ba 2015, algorithm 1) while it is annealed from soft to hard, round, mend
// what does not fit, and look once around it for what the rounding cost.  The
// best of all is the answer, with shares as SharesFor gives them.
//
// Same arguments, same answer, on every machine.  `problem` has passed
// CheckProblem.  8 layers on 5 devices take some milliseconds, 1,000 layers on
// 64 about a second.
//
// Errors: ResourceExhausted  no rounded placement could be mended to fit; not
// a proof.
absl::StatusOr<Placement> SoftPlacement(const PlanProblem& problem,
                                        uint64_t seed);

// The parts, for tests.

// Logits of chance: nearly equal widths, memberships that lean a little.
std::vector<double> RandomLogits(const Relaxation& relaxation, int stages,
                                 uint64_t seed);

// Changes `logits` by `steps` steps of Adam under annealed softness.
void Descend(const CostTable& table, int steps, Relaxation& relaxation,
             std::vector<double>& logits);

// Memberships are made those of `placed`, hard; then the cuts alone descend:
// they were at home among devices that rounding has changed.
void SettleCuts(const CostTable& table, int steps,
                const std::vector<WalkStage>& placed, Relaxation& relaxation,
                std::vector<double>& logits);

}  // namespace paceline

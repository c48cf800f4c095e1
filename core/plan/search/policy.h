// The planning policies behind one interface.  Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

struct PolicyOptions {
  uint64_t seed = 1;  // mcmc, soft
  // Layer times are predicted or assumed, so a proof holds only for these
  // times.  Changes the answer's text alone.
  bool predicted = false;
};

struct PlanAnswer {
  Placement placement;
  PlacementCost cost;
  double lower_bound_seconds = 0;  // no placement's step_seconds is less
  double gap = 0;                  // step_seconds / lower_bound_seconds - 1
  bool exact = false;  // proved optimal (with the shares of SharesFor)
  std::string why;     // for people: the bound, and why devices are left out
};

// equal    stages of equal layer counts, one device a stage, in order
// min-cut  cuts at the smallest outputs, one device a stage, in order
// optimal  exact where that is affordable (says so), else the best found
// brute    tries every placement; refuses a problem that would take too long
// mcmc     Metropolis walk over placements
// soft     gradient descent on a softmax relaxation, annealed, rounded,
//          repaired, from several starts
// Sorted by name.
std::vector<std::string> PolicyNames();

// Same arguments, same answer.
//
// Errors:
//   InvalidArgument     CheckProblem's; unknown policy (did you mean); brute
//                       on a problem too large; a step longer than a double
//                       holds
//   FailedPrecondition  no devices
//   ResourceExhausted   no placement fits the memory: names the layer that is
//                       hardest to place and its excess bytes, or the bytes of
//                       the whole model and those available
absl::StatusOr<PlanAnswer> SolvePlan(absl::string_view policy,
                                     const PlanProblem& problem,
                                     const PolicyOptions& options);

// Returns cost, bound and gap of a given placement, whether it fits the memory
// or not.
// Errors: InvalidArgument  as SolvePlan, and CostOf's
absl::StatusOr<PlanAnswer> AnswerFor(const PlanProblem& problem,
                                     const Placement& placement);

}  // namespace paceline

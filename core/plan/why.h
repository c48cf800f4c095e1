// Writes the reasons that a plan gives for itself.  Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/search/policy.h"

namespace paceline {

// "a, b, c, d and 60 more": people read plans for 64 machines too.
std::string FewNames(const std::vector<std::string>& names);

// "0.125 s".
std::string SecondsText(double seconds);

// Describes the stage or the transfer that bounds the step.
std::string BoundText(const PlanProblem& problem, const Placement& placement,
                      const PlacementCost& cost);

// Says in one or two sentences what bounds the step, which devices are left
// out, how the step would change with the best of them, and how good the plan
// is known to be.
// predicted: PolicyOptions::predicted.
std::string WhyOf(const PlanProblem& problem, const PlanAnswer& answer,
                  bool predicted = false);

// Returns ResourceExhausted with the layer that no device can hold and its
// excess bytes; when each layer fits somewhere, with the least bytes of the
// whole model and the bytes available.
absl::Status NothingFits(const PlanProblem& problem);

}  // namespace paceline

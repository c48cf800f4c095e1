// Writes the reasons that a plan gives for itself.  Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/plan/policy.h"

namespace paceline {

// "a, b, c, d and 60 more": a plan for 64 machines is read too.
std::string FewNames(const std::vector<std::string>& names);

// "0.125 s".
std::string SecondsText(double seconds);

// The stage that bounds the step, or the transfer after it.
std::string BoundText(const PlanProblem& problem, const Placement& placement,
                      const PlacementCost& cost);

// One or two sentences: what bounds the step, who is left out and what taking
// the best of them would change, and how good the plan is known to be.
// predicted: PolicyOptions::predicted.
std::string WhyOf(const PlanProblem& problem, const PlanAnswer& answer,
                  bool predicted = false);

// ResourceExhausted: the layer that no device can hold and how many bytes it
// is too large; or, when each fits somewhere, what the whole needs at least
// and what there is.
absl::Status NothingFits(const PlanProblem& problem);

}  // namespace paceline

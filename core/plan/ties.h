// What a parameter costs that layers of two stages share: traffic once a step.
#pragma once

#include <optional>

#include "core/plan/cost.h"
#include "core/plan/problem.h"

namespace paceline {

// Seconds a step, in training: for each tie whose ends are on two stages, its
// gradient on the way to the owner and its value on the way back, over the
// slowest pair of their devices.  Nothing hides it: the gate waits for the
// gradient, and the next forward for the value.
double TieSeconds(const PlanProblem& problem, const Placement& placement);

// The policies do not look at ties while they search.  What they miss most is
// that one stage pays nothing: the best placement of all layers on one device
// that holds them, if it takes less than `seconds`.
std::optional<Placement> OneStageBelow(const PlanProblem& problem,
                                       double seconds);

}  // namespace paceline

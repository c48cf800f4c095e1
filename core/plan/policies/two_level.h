// Planning on two levels: inside each machine, then over the machines.  Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/cost_table.h"
#include "core/plan/policies/dp.h"

namespace paceline {

// As PipeDream does (Narayanan et al. 2019, section 3.1): the best stages
// inside a machine are found for every range of layers, then a chain of
// machines with their ranges is laid by dynamic programming.  Devices of one
// machine hold neighbouring stages, or one stage is replicated over all devices
// of some machines; a machine may be left out.  Of many layers only some cuts
// are looked at between machines, at small outputs; at the end all cuts are
// moved layer by layer.  Orders of machines: all of at most four, else as given
// and by speed, both ways.
//
// Our departure: what is kept to is the cost of the whole (cost.h), not that of
// each level, and memory is judged with all devices behind a stage.
//
// Never cheaper than the exact single level, and `exact` only where all devices
// are in one machine.
//
// Errors: as SolveDp, which is also asked when no chain of machines fits.
absl::StatusOr<DpAnswer> SolveTwoLevels(const PlanProblem& problem);

// At most `most` places to cut inside `layers`, both ends included, ascending:
// about evenly spaced in work, each where the fewest bytes cross nearby.
std::vector<int> GoodCuts(const CostTable& table, LayerRange layers, int most);

// The layers between neighbouring `cuts` joined to one each, on `devices` alone
// as if nothing was before or behind, in any number of stages.
PlanProblem PartOf(const PlanProblem& problem, const std::vector<int>& cuts,
                   const std::vector<int>& devices);

}  // namespace paceline

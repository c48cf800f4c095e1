// Fewer, larger layers, and a part of a problem by itself.  Pure.
#pragma once

#include <vector>

#include "core/plan/dp_table.h"
#include "core/plan/problem.h"

namespace paceline {

// At most `most` places to cut inside `layers`, both ends included, ascending:
// about evenly spaced in work, each where the fewest bytes cross nearby.
std::vector<int> GoodCuts(const DpTable& table, LayerRange layers, int most);

// The layers between neighbouring `cuts` joined to one each, on `devices` alone
// as if nothing was before or behind, in any number of stages.
PlanProblem PartOf(const PlanProblem& problem, const std::vector<int>& cuts,
                   const std::vector<int>& devices);

}  // namespace paceline

// Moves the cuts of a placement within its devices.  Pure.
#pragma once

#include "core/plan/cost.h"
#include "core/plan/dp_table.h"

namespace paceline {

// Leaves `placement` as it is or makes it cheaper: the best cuts within a few
// layers of where they are, by dynamic programming over cuts, repeated while
// that helps.  Shares become those of SharesFor; memory is kept to.
// O(stages x window^2 x replicas) a round.
void PolishCuts(const DpTable& table, Placement& placement);

}  // namespace paceline

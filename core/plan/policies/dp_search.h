// The heuristic side of the policy `dp`: good orders of devices packed at the
// best pace, then improved by local search.  Deterministic.  Pure.
#pragma once

#include "core/plan/cost.h"
#include "core/plan/cost_table.h"

namespace paceline {

struct DpSearchOptions {
  // Devices looked at while packing; see dp.cc for what one takes.
  double most_steps = 0;
};

// The best placement found, shares as SharesFor gives them; empty when none
// was found that fits.
Placement SearchPlacement(const CostTable& table,
                          const DpSearchOptions& options);

}  // namespace paceline

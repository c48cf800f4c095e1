// The exact search of the policy `dp`.  Pure.
//
// Stages are laid from the last to the first, because how many micro-batches a
// stage keeps depends on the devices behind it.  A state is (first layer j of
// what is laid, set S of devices used, set T of the stage that starts at j);
// its labels are pairs (sum, bottleneck) of which none is better in both, and
// without overlap also what the stage at j is busy for so far.  A label is
// dropped when the best that can still become of it, by the same recursion
// without the transfers' far ends, reaches the incumbent.  Sets are counts over
// interchangeable devices: 16 equal machines have 17 sets, not 65,536.
#pragma once

#include <vector>

#include "core/plan/cost.h"
#include "core/plan/cost_table.h"

namespace paceline {

// [classes][members], each ascending, classes by their first member.  Two
// devices share a class when they have the same speed, measured seconds,
// memory and frame costs, and swapping them leaves every link as it was.
// O(devices^3).
std::vector<std::vector<int>> InterchangeableDevices(
    const PlanProblem& problem);

// Pairs (set of devices, a set inside it that can hold a stage): what the
// search's tables are as large as.
double CountPairs(const std::vector<std::vector<int>>& classes, bool replicas);

struct DpExactOptions {
  // What is known to be possible; only what is cheaper is looked for.
  // Infinity: nothing is.
  double incumbent_seconds = 0;
  // Steps (a stage tried at a label) after which the search gives up.
  double most_steps = 0;
};

struct DpExactAnswer {
  bool finished = false;  // false: too large, or given up
  Placement placement;    // empty: nothing is cheaper than the incumbent
};

// Optimal over all placements with shares as SharesFor gives them.
// O(layers^2 x 4^devices) at worst for unlike devices, mostly far less.
DpExactAnswer SolveExactly(const CostTable& table,
                           const DpExactOptions& options);

}  // namespace paceline

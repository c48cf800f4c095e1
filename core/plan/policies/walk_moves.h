// The steps of the walks over placements.  Pure.
#pragma once

#include <vector>

#include "core/base/random.h"
#include "core/plan/policies/walk_state.h"

namespace paceline {

// Where to cut `layers` in two so that both halves take about as long, the
// left one on `left`, the right one on `right`: the first layer of the right
// half.  `layers` holds at least two.  O(devices x log layers).
int BalancedCut(const CostTable& table, LayerRange layers,
                const std::vector<int>& left, const std::vector<int>& right);

// The devices, the quickest for the whole chain first; ties by number.
std::vector<int> QuickestFirst(const CostTable& table);

// Stages over `devices`, one each in this order, as long as their speeds say;
// at least one layer each.  1 <= devices.size() <= layers.
std::vector<WalkStage> ProportionalStages(const CostTable& table,
                                          const std::vector<int>& devices);

// Edits the draft of `state` by one random step; half of them are about
// `busiest`.  Keeps the number of stages when the problem asks for one, and one
// device a stage without replicas.  False: the step that was drawn does not
// apply here; the draft may be half changed, undo it.
bool ProposeMove(const CostTable& table, int busiest, SplitMix64& random,
                 WalkState& state);

}  // namespace paceline

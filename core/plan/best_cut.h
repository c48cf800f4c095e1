// The best cut of a chain into stages, by dynamic programming.  Pure.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/plan/problem.h"

namespace paceline {

// Cuts the layers into `stages` so that what all of them cost is least; of
// equal cuts the one with the earliest boundaries.
// O(stages x layers^2).
//
//   1 <= stages <= layers
//   nothing                    what no stage costs
//   add(before, stage, range)  what the stages up to `stage` cost, which holds
//                              `range`, when those before it cost `before`
template <typename Cost, typename Add>
std::vector<LayerRange> BestCut(int layers, int stages, const Cost& nothing,
                                const Add& add) {
  // The best cut of the first layers into so many stages.
  struct Prefix {
    std::optional<Cost> cost;
    int from = 0;  // the first layer of its last stage
  };
  std::vector<std::vector<Prefix>> best(stages + 1,
                                        std::vector<Prefix>(layers + 1));
  best[0][0].cost = nothing;
  for (int stage = 0; stage < stages; ++stage) {
    for (int last = stage + 1; last <= layers; ++last) {
      Prefix& here = best[stage + 1][last];
      for (int first = stage; first < last; ++first) {
        const std::optional<Cost>& before = best[stage][first].cost;
        if (!before.has_value()) continue;
        const Cost cost = add(*before, stage, LayerRange{first, last});
        if (!here.cost.has_value() || cost < *here.cost) here = {cost, first};
      }
    }
  }
  std::vector<LayerRange> ranges;
  int last = layers;
  for (int stage = stages; stage > 0; --stage) {
    ranges.push_back({best[stage][last].from, last});
    last = ranges.back().first;
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace paceline

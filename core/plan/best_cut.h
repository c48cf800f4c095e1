// The best cut of a chain into stages, by dynamic programming.  Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "core/plan/problem.h"

namespace paceline {

// Cuts the layers into `stages` so that the cost of all of them is least; of
// equal cuts it takes the one with the earliest boundaries.
// O(stages x layers^2).
//
//   1 <= stages <= layers
//   nothing                    the cost of no stages
//   add(before, stage, range)  the cost of the stages up to `stage`, which
//                              holds `range`; the earlier ones cost `before`
template <typename Cost, typename Add>
std::vector<LayerRange> BestCut(int layers, int stages, const Cost& nothing,
                                const Add& add) {
  // The best cut of the first layers into a given number of stages.
  struct Prefix {
    Cost cost;
    int from = 0;  // the first layer of its last stage
  };
  std::vector<std::vector<Prefix>> best(
      stages + 1, std::vector<Prefix>(layers + 1, {nothing}));
  for (int stage = 0; stage < stages; ++stage) {
    const auto cost_from = [&](int first, int last) {
      return add(best[stage][first].cost, stage, LayerRange{first, last});
    };
    for (int last = stage + 1; last <= layers; ++last) {
      Prefix here = {cost_from(stage, last), stage};
      // No layer comes before the first stage's.
      const int end = stage == 0 ? 0 : last;
      for (int first = stage + 1; first < end; ++first) {
        const Cost cost = cost_from(first, last);
        if (cost < here.cost) here = {cost, first};
      }
      best[stage + 1][last] = here;
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

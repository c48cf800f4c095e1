#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/plan/plan.h"
#include "core/plan/policies/policies.h"

namespace paceline {
namespace {

// How many stages a policy without an objective makes.
int StagesOf(const PlanProblem& problem) {
  if (problem.stages > 0) return problem.stages;
  return static_cast<int>(
      std::min(problem.layers.size(), problem.devices.size()));
}

// Puts ranges[s] on device s, checked against its memory.
absl::StatusOr<Placement> OneDeviceAStage(
    const PlanProblem& problem, const std::vector<LayerRange>& ranges) {
  Placement placement;
  for (size_t stage = 0; stage < ranges.size(); ++stage) {
    placement.push_back({ranges[stage], {static_cast<int>(stage)}, {1.0}});
  }
  PACELINE_ASSIGN_OR_RETURN(const PlacementCost cost,
                            CostOf(problem, placement));
  PACELINE_RETURN_IF_ERROR(CheckMemory(problem, placement, cost));
  return placement;
}

// Bytes over the cuts, then squares of the layer counts.
using Badness = std::pair<double, double>;

constexpr Badness kNone = {HUGE_VAL, HUGE_VAL};

// The best cuts of layers [0, last).
struct Prefix {
  Badness badness = kNone;
  int from = 0;  // the first layer of its last stage
};

// [stages + 1][layers + 1]
std::vector<std::vector<Prefix>> BestPrefixes(const PlanProblem& problem,
                                              int stages) {
  const int layers = static_cast<int>(problem.layers.size());
  std::vector<std::vector<Prefix>> best(stages + 1,
                                        std::vector<Prefix>(layers + 1));
  best[0][0].badness = {0, 0};
  for (int stage = 1; stage <= stages; ++stage) {
    for (int last = stage; last <= layers; ++last) {
      // The end of the model is no cut.
      const double bytes =
          last < layers ? problem.layers[last - 1].output_bytes : 0;
      for (int first = stage - 1; first < last; ++first) {
        const Badness& before = best[stage - 1][first].badness;
        if (before == kNone) continue;
        const double count = last - first;
        const Badness badness = {before.first + bytes,
                                 before.second + count * count};
        if (badness < best[stage][last].badness) {
          best[stage][last] = {badness, first};
        }
      }
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      CutEqually(static_cast<int>(problem.layers.size()), StagesOf(problem)));
  return OneDeviceAStage(problem, ranges);
}

absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem) {
  const std::vector<std::vector<Prefix>> best =
      BestPrefixes(problem, StagesOf(problem));
  std::vector<LayerRange> ranges;
  int last = static_cast<int>(problem.layers.size());
  for (size_t stage = best.size() - 1; stage > 0; --stage) {
    const int first = best[stage][last].from;
    ranges.push_back({first, last});
    last = first;
  }
  std::reverse(ranges.begin(), ranges.end());
  return OneDeviceAStage(problem, ranges);
}

}  // namespace paceline

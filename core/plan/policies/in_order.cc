#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/plan/best_cut.h"
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

}  // namespace

absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      CutEqually(static_cast<int>(problem.layers.size()), StagesOf(problem)));
  return OneDeviceAStage(problem, ranges);
}

absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem) {
  const int layers = static_cast<int>(problem.layers.size());
  // Bytes over the cuts, then squares of the layer counts.
  using Badness = std::pair<double, double>;
  return OneDeviceAStage(
      problem, BestCut(layers, StagesOf(problem), Badness(),
                       [&](const Badness& before, int, LayerRange range) {
                         // The end of the model is no cut.
                         const double bytes =
                             range.last < layers
                                 ? problem.layers[range.last - 1].output_bytes
                                 : 0;
                         const double count = range.last - range.first;
                         return Badness(before.first + bytes,
                                        before.second + count * count);
                       }));
}

}  // namespace paceline

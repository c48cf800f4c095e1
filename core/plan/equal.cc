#include "core/plan/equal.h"

#include <algorithm>
#include <cstddef>

#include "core/base/status_macros.h"
#include "core/plan/plan.h"

namespace paceline {

int StagesOf(const PlanProblem& problem) {
  if (problem.stages > 0) return problem.stages;
  return static_cast<int>(
      std::min(problem.layers.size(), problem.devices.size()));
}

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

absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      CutEqually(static_cast<int>(problem.layers.size()), StagesOf(problem)));
  return OneDeviceAStage(problem, ranges);
}

}  // namespace paceline

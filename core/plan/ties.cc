#include "core/plan/ties.h"

#include <algorithm>

#include "absl/status/statusor.h"

namespace paceline {
namespace {

const PlacedStage& StageOf(const Placement& placement, int layer) {
  const auto found = std::find_if(
      placement.begin(), placement.end(),
      [&](const PlacedStage& stage) { return layer < stage.layers.last; });
  return found == placement.end() ? placement.back() : *found;
}

}  // namespace

double TieSeconds(const PlanProblem& problem, const Placement& placement) {
  if (!problem.training) return 0;
  double sum = 0;
  for (const TieCost& tie : problem.ties) {
    const PlacedStage& owner = StageOf(placement, tie.owner);
    const PlacedStage& user = StageOf(placement, tie.user);
    if (owner.layers == user.layers) continue;
    double longest = 0;
    for (const int o : owner.devices) {
      for (const int u : user.devices) {
        if (o == u) continue;  // two stages of one device
        const LinkCost& there = problem.links[u][o];
        const LinkCost& back = problem.links[o][u];
        longest =
            std::max(longest, tie.bytes / there.bytes_per_second +
                                  tie.bytes / back.bytes_per_second +
                                  there.latency_seconds + back.latency_seconds);
      }
    }
    sum += longest;
  }
  return sum;
}

std::optional<Placement> OneStageBelow(const PlanProblem& problem,
                                       double seconds) {
  std::optional<Placement> best;
  const int layers = static_cast<int>(problem.layers.size());
  const int devices = static_cast<int>(problem.devices.size());
  for (int device = 0; device < devices; ++device) {
    const Placement placement = {{{0, layers}, {device}, {1}}};
    const absl::StatusOr<PlacementCost> cost = CostOf(problem, placement);
    if (!cost.ok() || cost->step_seconds >= seconds ||
        !CheckMemory(problem, placement, *cost).ok()) {
      continue;
    }
    seconds = cost->step_seconds;
    best = placement;
  }
  return best;
}

}  // namespace paceline

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/plan/cut.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/plan/search/policies.h"
#include "core/plan/stage_memory.h"

namespace paceline {
namespace {

// Puts each range on a device that holds it; where this is impossible, on the
// first devices.
Placement OneDeviceAStage(const PlanProblem& problem,
                          const std::vector<LayerRange>& ranges) {
  const int stages = static_cast<int>(ranges.size());
  std::vector<double> needs, sizes;
  for (int s = 0; s < stages; ++s) {
    needs.push_back(StageBytes(problem, ranges[s], {1, s, stages - 1 - s}));
  }
  for (const Device& device : problem.devices) {
    sizes.push_back(device.memory_bytes);
  }
  const std::vector<int> places = PlacesFor(needs, sizes);
  Placement placement;
  for (int s = 0; s < stages; ++s) {
    placement.push_back({ranges[s], {places.empty() ? s : places[s]}, {1.0}});
  }
  return placement;
}

// Makes as many stages as possible, or fewer where memory does not allow that.
//   cut  takes a number of stages
template <typename CutIn>
absl::StatusOr<Placement> InOrder(const PlanProblem& problem,
                                  const CutIn& cut) {
  const auto most =
      static_cast<int>(std::min(problem.layers.size(), problem.devices.size()));
  absl::Status first;
  for (int stages = problem.stages > 0 ? problem.stages : most; stages > 0;
       --stages) {
    Placement placement = OneDeviceAStage(problem, cut(stages));
    PACELINE_ASSIGN_OR_RETURN(const PlacementCost cost,
                              CostOf(problem, placement));
    const absl::Status fits = CheckMemory(problem, placement, cost);
    if (fits.ok()) return placement;
    first.Update(fits);
    if (problem.stages > 0) break;
  }
  return first;
}

}  // namespace

absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem) {
  return InOrder(problem, [&problem](int stages) {
    return *CutEqually(static_cast<int>(problem.layers.size()), stages);
  });
}

absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem) {
  const int layers = static_cast<int>(problem.layers.size());
  // (bytes over the cuts, squares of the layer counts)
  using Badness = std::pair<double, double>;
  return InOrder(problem, [&](int stages) {
    return BestCut(
        layers, stages, Badness(),
        [&](const Badness& before, int, LayerRange range) {
          // The end of the model is no cut.
          const double bytes = range.last < layers
                                   ? problem.layers[range.last - 1].output_bytes
                                   : 0;
          const double count = range.last - range.first;
          return Badness(before.first + bytes, before.second + count * count);
        });
  });
}

}  // namespace paceline

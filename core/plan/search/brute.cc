#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/errors.h"
#include "core/plan/cost_table.h"
#include "core/plan/search/policies.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// Counts ordered sequences of `stages` disjoint, non-empty sets out of
// `devices`, with some devices in none, by inclusion and exclusion over the
// empty sets.
double CountSequences(int devices, int stages) {
  double count = 0;
  double choose = 1;
  for (int empty = 0; empty <= stages; ++empty) {
    const double sign = empty % 2 == 0 ? 1 : -1;
    count += sign * choose * std::pow(stages - empty + 1, devices);
    choose = choose * (stages - empty) / (empty + 1);
  }
  return count;
}

double CountOrders(int devices, int stages) {
  double count = 1;
  for (int i = 0; i < stages; ++i) count *= devices - i;
  return count;
}

// Lays stage after stage, each on every subset of the devices still free.
class EveryPlacement {
 public:
  explicit EveryPlacement(const PlanProblem& problem)
      : problem_(problem),
        table_(problem),
        layers_(static_cast<int>(problem.layers.size())),
        all_((1u << problem.devices.size()) - 1) {}

  Placement Best() {
    LayStage(0, all_);
    return std::move(best_);
  }

 private:
  void LayStage(int first, unsigned free) {
    if (first == layers_) return Judge();
    const int laid = static_cast<int>(placement_.size());
    if (problem_.stages > 0 && laid == problem_.stages) return;
    for (int last = layers_; last > first; --last) {
      for (unsigned set = free; set > 0; set = (set - 1) & free) {
        if (!problem_.replicas && (set & (set - 1)) != 0) continue;
        PlacedStage stage;
        stage.layers = {first, last};
        for (int device = 0; set >> device; ++device) {
          if (set >> device & 1) stage.devices.push_back(device);
        }
        stage.shares = SharesFor(table_, stage.layers, stage.devices);
        placement_.push_back(std::move(stage));
        LayStage(last, free & ~set);
        placement_.pop_back();
      }
    }
  }

  void Judge() {
    const int stages = static_cast<int>(placement_.size());
    if (problem_.stages > 0 && stages != problem_.stages) return;
    const PlacementCost cost = UntiedCostOf(table_, placement_);
    const bool better = best_.empty() || cost.step_seconds < best_seconds_ ||
                        (cost.step_seconds == best_seconds_ &&
                         placement_.size() < best_.size());
    if (!better || !CheckMemory(problem_, placement_, cost).ok()) return;
    best_ = placement_;
    best_seconds_ = cost.step_seconds;
  }

  const PlanProblem& problem_;
  const CostTable table_;
  const int layers_;
  const unsigned all_;
  Placement placement_;
  Placement best_;
  double best_seconds_ = 0;
};

}  // namespace

double CountPlacements(const PlanProblem& problem) {
  const int layers = static_cast<int>(problem.layers.size());
  const int devices = static_cast<int>(problem.devices.size());
  double count = 0;
  double cuts = 1;  // ways to cut the layers into `stages`
  for (int stages = 1; stages <= std::min(layers, devices); ++stages) {
    if (problem.stages == 0 || problem.stages == stages) {
      count += cuts * (problem.replicas ? CountSequences(devices, stages)
                                        : CountOrders(devices, stages));
    }
    cuts = cuts * (layers - stages) / stages;
  }
  return std::isnan(count) ? HUGE_VAL : count;
}

absl::StatusOr<Placement> BrutePlacement(const PlanProblem& problem) {
  // With many devices the count itself loses its digits.
  constexpr size_t kMostDevices = 20;
  const double count = CountPlacements(problem);
  if (problem.devices.size() > kMostDevices ||
      !(count <= kMostBrutePlacements)) {
    return InvalidArgument("brute would try ", count, " placements of ",
                           problem.layers.size(), " layers on ",
                           problem.devices.size(), " devices, the limit is ",
                           kMostBrutePlacements, ": use optimal");
  }
  Placement best = EveryPlacement(problem).Best();
  if (best.empty()) return NothingFits(problem);
  return best;
}

}  // namespace paceline

#include "core/plan/min_cut.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "core/plan/equal.h"

namespace paceline {
namespace {

// What counts, in this order.
using Badness = std::pair<double, double>;

// Adds a stage of `layers` layers, cut from the next one at `bytes`.
using AddStage =
    std::function<Badness(const Badness& before, double bytes, int layers)>;

// The best [0, last) in `stages` stages, for every last and number of stages.
class ChainOfCuts {
 public:
  ChainOfCuts(const PlanProblem& problem, int stages, const AddStage& add)
      : layers_(static_cast<int>(problem.layers.size())),
        best_(stages + 1, std::vector<Badness>(layers_ + 1, kNone)),
        from_(stages + 1, std::vector<int>(layers_ + 1, 0)) {
    best_[0][0] = {0, 0};
    for (int stage = 1; stage <= stages; ++stage) {
      for (int last = stage; last <= layers_; ++last) {
        // The end of the model is no cut.
        const double bytes =
            last < layers_ ? problem.layers[last - 1].output_bytes : 0;
        for (int first = stage - 1; first < last; ++first) {
          if (best_[stage - 1][first] == kNone) continue;
          const Badness badness =
              add(best_[stage - 1][first], bytes, last - first);
          if (!(badness < best_[stage][last])) continue;
          best_[stage][last] = badness;
          from_[stage][last] = first;
        }
      }
    }
  }

  Badness best() const { return best_.back()[layers_]; }

  std::vector<LayerRange> Ranges() const {
    std::vector<LayerRange> ranges;
    int last = layers_;
    for (size_t stage = best_.size() - 1; stage > 0; --stage) {
      ranges.push_back({from_[stage][last], last});
      last = from_[stage][last];
    }
    std::reverse(ranges.begin(), ranges.end());
    return ranges;
  }

  static constexpr Badness kNone = {HUGE_VAL, HUGE_VAL};

 private:
  int layers_;
  std::vector<std::vector<Badness>> best_;  // [stages + 1][layers + 1]
  std::vector<std::vector<int>> from_;      // the first layer of the last stage
};

}  // namespace

absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem) {
  const int stages = StagesOf(problem);
  const ChainOfCuts fewest_bytes(
      problem, stages, [](const Badness& before, double bytes, int) {
        return Badness(before.first + bytes, std::max(before.second, bytes));
      });
  // With the largest crossing known, evenness can be added up as bytes can.
  const double most_bytes = fewest_bytes.best().second;
  const ChainOfCuts even(
      problem, stages,
      [most_bytes](const Badness& before, double bytes, int layers) {
        if (bytes > most_bytes) return ChainOfCuts::kNone;
        return Badness(before.first + bytes,
                       before.second + static_cast<double>(layers) * layers);
      });
  return OneDeviceAStage(problem, even.Ranges());
}

}  // namespace paceline

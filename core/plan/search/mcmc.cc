#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/plan/search/policies.h"
#include "core/plan/search/walk.h"

namespace paceline {
namespace {

// Steps for each layer and device of a problem, over all restarts.  On random
// problems of 8 layers and 5 devices, 16 restarts miss the best placement in 1
// %, and 4 restarts of the same length in 4 % (measured 2026-11-21); on large
// ones the number hardly matters.
constexpr int kStepsPerSize = 1000;
constexpr int kRestarts = 16;
// The first temperature, relative to the best cost.
constexpr double kFirst = 0.08;

void Shuffle(std::vector<int>& values, SplitMix64& random) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.Below(i)]);
  }
}

// Returns the start of restart `index`: first on all devices by speed, then on
// one, then on a random number of devices in a random order.
std::vector<WalkStage> Start(const CostTable& table, int index,
                             SplitMix64& random) {
  const int most = std::min(table.layers(), table.devices());
  std::vector<int> devices = QuickestFirst(table);
  int stages = table.problem().stages;
  if (stages == 0) {
    stages = most;
    if (index == 1) stages = 1;
    if (index > 1) {
      stages = 1 + static_cast<int>(random.Below(static_cast<uint64_t>(most)));
    }
  }
  if (index != 1) {
    devices.resize(static_cast<size_t>(std::max(stages, most)));
    Shuffle(devices, random);
  }
  devices.resize(static_cast<size_t>(stages));
  return ProportionalStages(table, devices);
}

}  // namespace

absl::StatusOr<Placement> McmcPlacement(const PlanProblem& problem,
                                        uint64_t seed) {
  const CostTable table(problem);
  SplitMix64 random(MixSeed({seed, 0x7374617274}));
  Walk walk(table, MixSeed({seed, 0x6d636d63}));
  const int64_t steps =
      int64_t{kStepsPerSize} * (table.layers() + table.devices()) / kRestarts;
  for (int restart = 0; restart + 1 < kRestarts; ++restart) {
    walk.Run(Start(table, restart, random), steps, kFirst);
  }
  if (!walk.found()) walk.CountOnlyExcess();
  for (int restart = 2; !walk.found() && restart < kRestarts; ++restart) {
    walk.Run(Start(table, restart, random), steps, kFirst);
  }
  // Walk on from the best placement at a lower temperature.
  if (walk.found()) walk.Run(walk.best(), steps, kFirst / 4);
  return walk.BestPlacement();
}

}  // namespace paceline

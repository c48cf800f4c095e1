#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/plan/policies/policies.h"
#include "core/plan/policies/walk.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// Steps of one problem, over all restarts.  On random ones of 8 layers and 5
// devices, 16 restarts miss the best in 1 %, 4 of the same length in 4 %
// (measured 2026-11-21); on large ones the number hardly matters.
constexpr int kStepsPerSize = 1000;
constexpr int kRestarts = 16;
// Temperatures, in parts of the best cost: kFirst x kCooling^level.
constexpr int kLevels = 48;
constexpr double kFirst = 0.08;
constexpr double kCooling = 0.9;
// How much bytes too many weigh, in parts of the cost; and when nothing was
// found that fits, so that only they count.
constexpr double kExcessWeight = 4;
constexpr double kRescueWeight = 1000;
// An endless stream does not see what the stages below the bottleneck take;
// the walk has to, or it stands on a plain.
constexpr double kMeanWeight = 0.02;

// 1 / exp(x) for x >= 0 out of products, which all machines round alike:
// (1 - x / 64)^64 has the same shape.
double Acceptance(double x) {
  double power = std::max(1 - x / 64, 0.0);
  for (int i = 0; i < 6; ++i) power *= power;
  return power;
}

class Walk {
 public:
  Walk(const CostTable& table, uint64_t seed)
      : table_(table), random_(MixSeed({seed, 0x6d636d63})), state_(table) {}

  void Run(std::vector<WalkStage> from, int64_t steps, double temperature) {
    state_.Reset(std::move(from));
    Take(state_.Evaluate());
    for (int level = 0; level < kLevels; ++level) {
      for (int64_t i = 0; i < steps / kLevels; ++i) Try(temperature);
      temperature *= kCooling;
    }
  }

  void CountOnlyExcess() { excess_weight_ = kRescueWeight; }

  bool found() const { return best_seconds_ < HUGE_VAL; }
  const std::vector<WalkStage>& best() const { return best_; }

 private:
  double Energy(const WalkCost& cost) const {
    const bool endless = table_.problem().micro_batches == 0;
    return (cost.step_seconds +
            (endless ? kMeanWeight * cost.mean_busy_seconds : 0)) *
           (1 + excess_weight_ * cost.excess);
  }

  void Take(const WalkCost& cost) {
    state_.Keep();
    energy_ = Energy(cost);
    busiest_ = cost.busiest_stage;
    if (cost.excess > 0 || cost.step_seconds >= best_seconds_) return;
    best_seconds_ = cost.step_seconds;
    best_.resize(static_cast<size_t>(state_.size()));
    for (int s = 0; s < state_.size(); ++s) best_[s] = state_.stage(s);
  }

  void Try(double temperature) {
    if (!ProposeMove(table_, busiest_, random_, state_)) {
      state_.Undo();
      return;
    }
    const WalkCost cost = state_.Evaluate();
    const double more = Energy(cost) - energy_;
    if (more <= 0 ||
        random_.Unit() < Acceptance(more / (temperature * energy_))) {
      Take(cost);
    } else {
      state_.Undo();
    }
  }

  const CostTable& table_;
  SplitMix64 random_;
  WalkState state_;
  double excess_weight_ = kExcessWeight;
  double energy_ = 0;
  int busiest_ = 0;
  double best_seconds_ = HUGE_VAL;
  std::vector<WalkStage> best_;
};

void Shuffle(std::vector<int>& values, SplitMix64& random) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.Below(i)]);
  }
}

// Where restart `index` begins: on all devices by speed, on one, then on as
// many as chance says in an order of chance.
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
  Walk walk(table, seed);
  const int64_t steps =
      int64_t{kStepsPerSize} * (table.layers() + table.devices()) / kRestarts;
  for (int restart = 0; restart + 1 < kRestarts; ++restart) {
    walk.Run(Start(table, restart, random), steps, kFirst);
  }
  if (!walk.found()) walk.CountOnlyExcess();
  for (int restart = 2; !walk.found() && restart < kRestarts; ++restart) {
    walk.Run(Start(table, restart, random), steps, kFirst);
  }
  if (!walk.found()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the walk met no placement that fits, dp proves whether there is one: ",
        NothingFits(problem).message()));
  }
  // On from the best, and colder.
  walk.Run(walk.best(), steps, kFirst / 4);
  WalkState best(table);
  best.Reset(walk.best());
  return best.ToPlacement();
}

}  // namespace paceline

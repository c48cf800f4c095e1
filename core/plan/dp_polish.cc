#include "core/plan/dp_polish.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/plan/dp_chain.h"

namespace paceline {
namespace {

constexpr int kWindow = 8;  // layers that a cut may move either way at once
constexpr int kRounds = 12;

// Best prefix of stages that ends at a cut.
struct Prefix {
  double sum = HUGE_VAL;
  double pace = HUGE_VAL;
  double busy = 0;  // without overlap: of the last stage, so far
  int from = -1;    // which cut the last stage starts at
};

class CutPolisher {
 public:
  CutPolisher(const DpTable& table, const Placement& placement)
      : table_(table), placement_(placement) {
    int later = 0;
    later_.resize(placement.size());
    for (size_t s = placement.size(); s-- > 0;) {
      groups_.push_back(MakeGroup(table, placement[s].devices));
      later_[s] = later;
      later += static_cast<int>(placement[s].devices.size());
    }
    std::reverse(groups_.begin(), groups_.end());
    CollectCuts();
  }

  // Of the prefixes at a cut the one of the least sum whose pace is at most
  // `cap`; with cap infinite the one of the least pace.  Empty: there is none.
  Placement Best(double cap);

 private:
  void CollectCuts() {
    cuts_.push_back({0});
    for (size_t s = 0; s + 1 < placement_.size(); ++s) {
      const int at = placement_[s].layers.last;
      std::vector<int> cuts;
      for (int cut = std::max(1, at - kWindow);
           cut <= std::min(table_.layers() - 1, at + kWindow); ++cut) {
        cuts.push_back(cut);
      }
      cuts_.push_back(std::move(cuts));
    }
    cuts_.push_back({table_.layers()});
  }

  TransferCost After(size_t stage, int cut) const {
    if (stage + 1 == placement_.size()) return {};
    PlacedStage left;
    PlacedStage right;
    left.devices = groups_[stage].devices;
    left.shares = groups_[stage].shares;
    right.devices = groups_[stage + 1].devices;
    right.shares = groups_[stage + 1].shares;
    return TransferOf(table_, cut, left, right);
  }

  bool Fits(size_t stage, LayerRange layers) const {
    const DpGroup& group = groups_[stage];
    return group.memory_bytes == HUGE_VAL ||
           table_.StageBytes(layers, static_cast<int>(group.devices.size()),
                             later_[stage]) <= group.memory_bytes;
  }

  Placement PlacementOf(const std::vector<std::vector<Prefix>>& best) const;

  const DpTable& table_;
  const Placement& placement_;
  std::vector<DpGroup> groups_;         // [stages]
  std::vector<int> later_;              // [stages] devices in later ones
  std::vector<std::vector<int>> cuts_;  // [stages + 1]
};

Placement CutPolisher::Best(double cap) {
  const bool overlap = table_.problem().overlap;
  std::vector<std::vector<Prefix>> best(cuts_.size());
  best[0] = {{0, 0, 0, -1}};
  std::vector<double> scratch;
  std::vector<TransferCost> before = {{}};
  for (size_t s = 0; s < placement_.size(); ++s) {
    best[s + 1].resize(cuts_[s + 1].size());
    std::vector<TransferCost> afters;
    for (size_t j = 0; j < cuts_[s + 1].size(); ++j) {
      const int last = cuts_[s + 1][j];
      const TransferCost after = After(s, last);
      afters.push_back(after);
      Prefix& here = best[s + 1][j];
      for (size_t i = 0; i < cuts_[s].size(); ++i) {
        const Prefix& prefix = best[s][i];
        const int first = cuts_[s][i];
        if (first >= last || prefix.pace == HUGE_VAL) continue;
        if (!Fits(s, {first, last})) continue;
        const double seconds = table_.StageSeconds(
            {first, last}, groups_[s].devices, groups_[s].sync, scratch);
        const double pace = std::max(
            prefix.pace, overlap ? std::max(seconds, after.occupied)
                                 : before[i].delay + seconds + after.delay);
        if (pace > cap) continue;
        const double sum = prefix.sum + seconds + after.delay;
        const bool better = cap == HUGE_VAL ? std::pair(pace, sum) <
                                                  std::pair(here.pace, here.sum)
                                            : sum < here.sum;
        if (better) here = {sum, pace, 0, static_cast<int>(i)};
      }
    }
    before = std::move(afters);
  }
  if (best.back()[0].from < 0) return {};
  return PlacementOf(best);
}

Placement CutPolisher::PlacementOf(
    const std::vector<std::vector<Prefix>>& best) const {
  Placement placement = placement_;
  int at = 0;
  for (size_t s = placement.size(); s-- > 0;) {
    const int last = cuts_[s + 1][at];
    at = best[s + 1][at].from;
    placement[s].layers = {cuts_[s][at], last};
    table_.StageSeconds(placement[s].layers, placement[s].devices,
                        groups_[s].sync, placement[s].shares);
  }
  return placement;
}

double PaceOf(const DpTable& table, const Placement& placement) {
  const auto cost = CostOf(table.problem(), placement);
  return cost.ok() ? cost->bottleneck_seconds : HUGE_VAL;
}

}  // namespace

void PolishCuts(const DpTable& table, Placement& placement) {
  double objective = ObjectiveOf(table, placement);
  for (int round = 0; round < kRounds; ++round) {
    CutPolisher polisher(table, placement);
    std::vector<double> caps = {HUGE_VAL};
    if (table.weights().sum > 0) {
      const double pace = PaceOf(table, placement);
      for (const double factor :
           {0.9, 0.95, 0.98, 0.99, 0.995, 1.0, 1.005, 1.02, 1.05, 1.1, 1.5}) {
        caps.push_back(pace * factor);
      }
    }
    Placement best;
    for (const double cap : caps) {
      Placement found = polisher.Best(cap);
      if (found.empty()) continue;
      const double seconds = ObjectiveOf(table, found);
      if (seconds >= objective) continue;
      objective = seconds;
      best = std::move(found);
    }
    if (best.empty()) return;
    placement = std::move(best);
  }
}

}  // namespace paceline

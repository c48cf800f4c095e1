#include "core/plan/search/optimal_pack.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/plan/search/policies.h"

namespace paceline {

DeviceGroup MakeGroup(const CostTable& table, std::vector<int> devices) {
  DeviceGroup group;
  std::sort(devices.begin(), devices.end());
  group.devices = std::move(devices);
  group.sync = table.SyncOf(group.devices);
  table.StageSeconds({0, table.layers()}, group.devices, group.sync,
                     group.shares);
  group.memory_bytes = table.MemoryOf(group.devices);
  return group;
}

GroupPacker::GroupPacker(const CostTable& table)
    : table_(table), compute_(LeastSecondsOf(table).alone) {
  const int layers = table.layers();
  const double total = compute_.back();
  for (int layer = 1; layer <= layers; ++layer) {
    // Layers without work must be placed too.
    const double even = static_cast<double>(layer) / layers;
    compute_[layer] =
        total > 0 ? 0.99 * compute_[layer] / total + 0.01 * even : even;
  }
}

int GroupPacker::AddGroup(std::vector<int> devices) {
  groups_.push_back(MakeGroup(table_, std::move(devices)));
  return static_cast<int>(groups_.size()) - 1;
}

double GroupPacker::ComputeOnly(const DeviceGroup& group, int first,
                                int last) const {
  if (group.devices.size() == 1) {
    return table_.ComputeOnly(first, last, group.devices[0]);
  }
  double rate = 0;
  double most = 0;
  for (const int device : group.devices) {
    const double seconds = table_.ComputeOnly(first, last, device);
    rate += 1 / seconds;
    most = std::max(most, seconds);
  }
  return table_.problem().uneven_shares
             ? 1 / rate
             : most / static_cast<double>(group.devices.size());
}

bool GroupPacker::Holds(const Slot& slot, int first,
                        const TransferRate& before) {
  const DeviceGroup& group = *slot.group;
  const int replicas = static_cast<int>(group.devices.size());
  if (group.memory_bytes != HUGE_VAL &&
      table_.StageBytes({first, slot.last}, replicas, slot.later_devices) >
          group.memory_bytes) {
    return false;
  }
  double busy = table_.StageSeconds({first, slot.last}, group.devices,
                                    group.sync, scratch_);
  double occupied = 0;
  if (first > 0) {
    const TransferCost transfer = before.Of(table_.BytesBefore(first));
    occupied = transfer.occupied;
    if (!table_.problem().overlap) busy += transfer.delay;
  }
  if (!table_.problem().overlap) busy += slot.delay_after_seconds;
  return busy <= slot.pace_seconds &&
         (!table_.problem().overlap || occupied <= slot.pace_seconds);
}

// Returns slot.last when the group can take no layer.
int GroupPacker::SmallestFirst(const Slot& slot) {
  const DeviceGroup& group = *slot.group;
  const int replicas = static_cast<int>(group.devices.size());
  steps_ += replicas;
  const TransferRate before =
      slot.before ? table_.RateOf(*slot.before, group) : TransferRate{};
  // Taking all the rest leaves no boundary before it, so check this first.
  if (slot.least_first == 0 &&
      ComputeOnly(group, 0, slot.last) <= slot.pace_seconds &&
      Holds(slot, 0, before)) {
    return 0;
  }
  if (slot.before == nullptr) return slot.last;
  int low = std::max(slot.least_first, 1);
  int high = slot.last;
  // Find the smallest first layer whose compute fits the pace and whose memory
  // fits.  Both fall with it, except for the boundary's bytes.
  while (low < high) {
    const int middle = (low + high) / 2;
    const bool fits =
        ComputeOnly(group, middle, slot.last) <= slot.pace_seconds &&
        (group.memory_bytes == HUGE_VAL ||
         table_.StageBytes({middle, slot.last}, replicas, slot.later_devices) <=
             group.memory_bytes);
    if (fits) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  // Then count the boundary's own cost: a later cut nearby may be cheap.
  constexpr int kMostTried = 48;
  const int end = std::min(slot.last, low + kMostTried);
  for (int first = low; first < end; ++first) {
    if (Holds(slot, first, before)) return first;
  }
  return slot.last;
}

void GroupPacker::Pack(const GroupOrder& order, double pace_seconds,
                       Packed& packed) {
  const int exactly = table_.problem().stages;
  const size_t usable =
      exactly > 0 ? std::min<size_t>(order.size(), exactly) : order.size();
  packed.stages.clear();
  Slot slot;
  slot.last = table_.layers();
  slot.pace_seconds = pace_seconds;
  const DeviceGroup* right = nullptr;
  for (size_t i = 0; i < usable && slot.last > 0; ++i) {
    slot.group = &groups_[order[i]];
    const bool is_first_stage = i + 1 == usable;
    slot.before = is_first_stage ? nullptr : &groups_[order[i + 1]];
    slot.least_first = exactly > 0 ? static_cast<int>(usable - i) - 1 : 0;
    slot.delay_after_seconds = 0;
    if (right != nullptr) {
      const TransferCost after =
          table_.TransferOf(slot.last, *slot.group, *right);
      slot.delay_after_seconds = after.delay;
      // This transfer is new when a group was passed over.
      if (table_.problem().overlap && after.occupied > pace_seconds) continue;
    }
    if (slot.least_first >= slot.last) break;
    int first = SmallestFirst(slot);
    if (first == slot.last) {
      if (exactly > 0) break;
      continue;
    }
    packed.stages.push_back({order[i], first});
    slot.last = first;
    slot.later_devices += static_cast<int>(slot.group->devices.size());
    right = slot.group;
  }
  packed.left = compute_[slot.last];
  if (exactly > 0 && packed.stages.size() != usable) {
    packed.left = std::max(packed.left, 1e-9);
  }
}

Placement GroupPacker::PlacementOf(const Packed& packed) const {
  Placement placement;
  int last = table_.layers();
  for (const PackedStage& packed_stage : packed.stages) {
    const DeviceGroup& group = groups_[packed_stage.group];
    PlacedStage stage;
    stage.layers = {packed_stage.first, last};
    stage.devices = group.devices;
    table_.StageSeconds(stage.layers, stage.devices, group.sync, stage.shares);
    placement.push_back(std::move(stage));
    last = packed_stage.first;
  }
  std::reverse(placement.begin(), placement.end());
  return placement;
}

namespace {

constexpr int kWindow = 8;  // layers that a cut may move either way at once
constexpr int kRounds = 12;

// The best prefix of stages that ends at a cut.
struct Prefix {
  double sum = HUGE_VAL;
  double pace = HUGE_VAL;
  int from = -1;  // index of the cut where its last stage starts
};

class CutPolisher {
 public:
  CutPolisher(const CostTable& table, const Placement& placement)
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

  // Finds at each cut the prefix of the least sum whose pace is at most `cap`;
  // with an infinite cap the one of the least pace.  Empty: there is none.
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
    return table_.TransferOf(cut, groups_[stage], groups_[stage + 1]);
  }

  bool Fits(size_t stage, LayerRange layers) const {
    const DeviceGroup& group = groups_[stage];
    return group.memory_bytes == HUGE_VAL ||
           table_.StageBytes(layers, static_cast<int>(group.devices.size()),
                             later_[stage]) <= group.memory_bytes;
  }

  Placement PlacementOf(const std::vector<std::vector<Prefix>>& best) const;

  const CostTable& table_;
  const Placement& placement_;
  std::vector<DeviceGroup> groups_;     // [stages]
  std::vector<int> later_;              // [stages] devices in later stages
  std::vector<std::vector<int>> cuts_;  // [stages + 1]
};

Placement CutPolisher::Best(double cap) {
  const bool overlap = table_.problem().overlap;
  std::vector<std::vector<Prefix>> best(cuts_.size());
  best[0] = {{0, 0, -1}};
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
        if (better) here = {sum, pace, static_cast<int>(i)};
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

}  // namespace

void PolishCuts(const CostTable& table, Placement& placement) {
  double objective = ObjectiveOf(table, placement);
  for (int round = 0; round < kRounds; ++round) {
    CutPolisher polisher(table, placement);
    std::vector<double> caps = {HUGE_VAL};
    if (table.weights().sum > 0) {
      const double pace = UntiedCostOf(table, placement).bottleneck_seconds;
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

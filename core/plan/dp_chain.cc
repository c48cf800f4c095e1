#include "core/plan/dp_chain.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace paceline {

DpGroup MakeGroup(const DpTable& table, std::vector<int> devices) {
  DpGroup group;
  std::sort(devices.begin(), devices.end());
  group.devices = std::move(devices);
  group.sync = table.SyncOf(group.devices);
  table.StageSeconds({0, table.layers()}, group.devices, group.sync,
                     group.shares);
  group.memory_bytes = HUGE_VAL;
  for (const int device : group.devices) {
    const double bytes = table.problem().devices[device].memory_bytes;
    if (bytes > 0) group.memory_bytes = std::min(group.memory_bytes, bytes);
  }
  return group;
}

DpPacker::DpPacker(const DpTable& table)
    : table_(table), compute_(table.layers() + 1, 0) {
  const int layers = table.layers();
  double total = 0;
  for (int layer = 1; layer <= layers; ++layer) {
    double least = HUGE_VAL;
    for (int device = 0; device < table.devices(); ++device) {
      least = std::min(least, table.ComputeOnly(layer - 1, layer, device));
    }
    total += least;
    compute_[layer] = total;
  }
  for (int layer = 1; layer <= layers; ++layer) {
    // Layers without work still are to be placed.
    const double even = static_cast<double>(layer) / layers;
    compute_[layer] =
        total > 0 ? 0.99 * compute_[layer] / total + 0.01 * even : even;
  }
}

int DpPacker::AddGroup(std::vector<int> devices) {
  groups_.push_back(MakeGroup(table_, std::move(devices)));
  return static_cast<int>(groups_.size()) - 1;
}

DpPacker::Between DpPacker::WireBetween(const DpGroup& left,
                                        const DpGroup& right) const {
  if (left.devices.size() == 1 && right.devices.size() == 1) {
    const WireCost& wire = table_.Wire(left.devices[0], right.devices[0]);
    return {wire.seconds_per_byte, wire.seconds_per_byte, wire.latency_seconds};
  }
  Between between;
  for (size_t u = 0; u < left.devices.size(); ++u) {
    double port = 0;
    for (size_t v = 0; v < right.devices.size(); ++v) {
      const WireCost& wire = table_.Wire(left.devices[u], right.devices[v]);
      port += right.shares[v] * wire.seconds_per_byte;
      between.latency_seconds +=
          left.shares[u] * right.shares[v] * wire.latency_seconds;
    }
    between.delay_per_byte += left.shares[u] * port;
    between.occupied_per_byte =
        std::max(between.occupied_per_byte, left.shares[u] * port);
  }
  for (size_t v = 0; v < right.devices.size(); ++v) {
    double port = 0;
    for (size_t u = 0; u < left.devices.size(); ++u) {
      port += left.shares[u] *
              table_.Wire(left.devices[u], right.devices[v]).seconds_per_byte;
    }
    between.occupied_per_byte =
        std::max(between.occupied_per_byte, right.shares[v] * port);
  }
  return between;
}

double DpPacker::ComputeOnly(const DpGroup& group, int first, int last) const {
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

bool DpPacker::Holds(const Slot& slot, int first, const Between& between) {
  const DpGroup& group = *slot.group;
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
    const double bytes = table_.BytesBefore(first);
    occupied = bytes * between.occupied_per_byte;
    if (!table_.problem().overlap) {
      busy += bytes * between.delay_per_byte + between.latency_seconds;
    }
  }
  if (!table_.problem().overlap) busy += slot.delay_after_seconds;
  return busy <= slot.pace_seconds &&
         (!table_.problem().overlap || occupied <= slot.pace_seconds);
}

// slot.last when the group can take nothing.
int DpPacker::SmallestFirst(const Slot& slot) {
  const DpGroup& group = *slot.group;
  const int replicas = static_cast<int>(group.devices.size());
  steps_ += replicas;
  const Between between =
      slot.before ? WireBetween(*slot.before, group) : Between{};
  // All the rest has no boundary before it: judged for itself.
  if (slot.least_first == 0 &&
      ComputeOnly(group, 0, slot.last) <= slot.pace_seconds &&
      Holds(slot, 0, between)) {
    return 0;
  }
  if (slot.before == nullptr) return slot.last;
  int low = std::max(slot.least_first, 1);
  int high = slot.last;
  // The smallest first whose compute alone is not too much, and whose memory
  // is not either: both fall with it, but for the boundary's bytes.
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
  // The boundary's own costs: a cut nearby may be cheap.
  constexpr int kMostTried = 48;
  const int end = std::min(slot.last, low + kMostTried);
  for (int first = low; first < end; ++first) {
    if (Holds(slot, first, between)) return first;
  }
  return slot.last;
}

void DpPacker::Pack(const GroupOrder& order, double pace_seconds,
                    Packed& packed) {
  const int exactly = table_.problem().stages;
  const size_t usable =
      exactly > 0 ? std::min<size_t>(order.size(), exactly) : order.size();
  packed.stages.clear();
  Slot slot;
  slot.last = table_.layers();
  slot.pace_seconds = pace_seconds;
  const DpGroup* right = nullptr;
  for (size_t i = 0; i < usable && slot.last > 0; ++i) {
    slot.group = &groups_[order[i]];
    const bool is_first_stage = i + 1 == usable;
    slot.before = is_first_stage ? nullptr : &groups_[order[i + 1]];
    slot.least_first = exactly > 0 ? static_cast<int>(usable - i) - 1 : 0;
    slot.delay_after_seconds = 0;
    if (right != nullptr) {
      const Between after = WireBetween(*slot.group, *right);
      const double bytes = table_.BytesBefore(slot.last);
      slot.delay_after_seconds =
          bytes * after.delay_per_byte + after.latency_seconds;
      // After a group that was passed over.
      if (table_.problem().overlap &&
          bytes * after.occupied_per_byte > pace_seconds) {
        continue;
      }
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

Placement DpPacker::PlacementOf(const Packed& packed) const {
  Placement placement;
  int last = table_.layers();
  for (const PackedStage& packed_stage : packed.stages) {
    const DpGroup& group = groups_[packed_stage.group];
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

double ObjectiveOf(const DpTable& table, const Placement& placement) {
  double sum = 0;
  double pace = 0;
  double delay_before = 0;
  std::vector<double> scratch;
  for (size_t s = 0; s < placement.size(); ++s) {
    const PlacedStage& stage = placement[s];
    const double seconds = table.StageSeconds(
        stage.layers, stage.devices, table.SyncOf(stage.devices), scratch);
    TransferCost after;
    if (s + 1 < placement.size()) {
      after = TransferOf(table, stage.layers.last, stage, placement[s + 1]);
    }
    sum += seconds + after.delay;
    pace = table.problem().overlap
               ? std::max({pace, seconds, after.occupied})
               : std::max(pace, delay_before + seconds + after.delay);
    delay_before = after.delay;
  }
  return table.weights().sum * sum + table.weights().pace * pace;
}

}  // namespace paceline

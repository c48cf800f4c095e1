// A plan as the heuristic side of `dp` sees it: groups of devices in an order,
// and the pace at which they are packed with layers.  Thread-compatible.
#pragma once

#include <limits>
#include <vector>

#include "core/plan/dp_table.h"

namespace paceline {

// The devices of one stage.
struct DpGroup {
  std::vector<int> devices;    // ascending
  std::vector<double> shares;  // [devices] of the whole model: near enough to
                               // choose cuts by
  SyncCost sync;
  double memory_bytes = 0;  // of the smallest; infinity: no bound
};

DpGroup MakeGroup(const DpTable& table, std::vector<int> devices);

// Groups by number, in order of the chain from its LAST stage to its first:
// what a stage keeps in memory depends on those behind it.
using GroupOrder = std::vector<int>;

struct PackedStage {
  int group = 0;
  int first = 0;  // its first layer
};

struct Packed {
  // From the last stage to the first.
  std::vector<PackedStage> stages;
  // Of all compute, what was not placed; 0 when complete.
  double left = 1;
  bool complete() const { return left == 0; }
};

class DpPacker {
 public:
  // `table` outlives this.
  explicit DpPacker(const DpTable& table);

  // The new group's number.
  int AddGroup(std::vector<int> devices);
  const DpGroup& group(int number) const { return groups_[number]; }

  // Gives every group in turn as many layers as it can take while its stage
  // and the transfer before it stay at most at `pace_seconds` and its memory
  // holds them.  Groups that can take none are passed over, those that are
  // not needed stay out.  With an exact number of stages the first so many
  // groups are used.  O(groups x log layers), for replicas times their number.
  void Pack(const GroupOrder& order, double pace_seconds, Packed& packed);

  // The stages of a complete packing, shares as SharesFor gives them.
  Placement PlacementOf(const Packed& packed) const;

  // Groups looked at so far: what was spent.
  double steps() const { return steps_; }
  void Spend(double steps) { steps_ += steps; }

  const DpTable& table() const { return table_; }

 private:
  // Between neighbours, by their nominal shares.
  struct Between {
    double occupied_per_byte = 0;
    double delay_per_byte = 0;
    double latency_seconds = 0;
  };
  struct Slot {
    const DpGroup* group = nullptr;
    const DpGroup* before = nullptr;  // its neighbour towards layer 0
    int last = 0;
    int later_devices = 0;
    int least_first = 0;  // layers below are for the stages still to come
    double delay_after_seconds = 0;
    double pace_seconds = 0;
  };

  Between WireBetween(const DpGroup& left, const DpGroup& right) const;
  double ComputeOnly(const DpGroup& group, int first, int last) const;
  bool Holds(const Slot& slot, int first, const Between& between);
  int SmallestFirst(const Slot& slot);

  const DpTable& table_;
  std::vector<DpGroup> groups_;
  std::vector<double> compute_;  // [layers + 1]: share of [0, l)
  std::vector<double> scratch_;
  double steps_ = 0;
};

// CostOf(...).step_seconds up to rounding.
double ObjectiveOf(const DpTable& table, const Placement& placement);

}  // namespace paceline

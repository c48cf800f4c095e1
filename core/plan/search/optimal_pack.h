// Gives layers to given groups of devices.  The heuristic side of `optimal`
// packs groups in an order at a pace, and then moves the cuts of the placement
// it found.  Thread-compatible.
#pragma once

#include <vector>

#include "core/plan/cost_table.h"

namespace paceline {

// The devices of one stage, ascending.  Their shares are those for the whole
// model, which is close enough for choosing cuts.
struct DeviceGroup : PlacedStage {
  SyncCost sync;
  double memory_bytes = 0;  // of the smallest; infinity: no bound
};

DeviceGroup MakeGroup(const CostTable& table, std::vector<int> devices);

// Group numbers in the order of the chain from its LAST stage to its first,
// because the memory of a stage depends on the stages behind it.
using GroupOrder = std::vector<int>;

struct PackedStage {
  int group = 0;
  int first = 0;  // its first layer
};

struct Packed {
  // From the last stage to the first.
  std::vector<PackedStage> stages;
  // Fraction of all compute that was not placed; 0 when complete.
  double left = 1;
  bool complete() const { return left == 0; }
};

class GroupPacker {
 public:
  // `table` outlives this.
  explicit GroupPacker(const CostTable& table);

  // Returns the new group's number.
  int AddGroup(std::vector<int> devices);
  const DeviceGroup& group(int number) const { return groups_[number]; }

  // Gives every group in turn as many layers as it can take: its stage and the
  // transfer before it stay within `pace_seconds`, and its memory holds them.
  // It passes over groups that can take none, and leaves out groups that are
  // not needed.  With an exact number of stages it uses that many groups, the
  // first ones.  O(groups x log layers), times the number of replicas.
  void Pack(const GroupOrder& order, double pace_seconds, Packed& packed);

  // Returns the stages of a complete packing, with the shares of SharesFor.
  Placement PlacementOf(const Packed& packed) const;

  // Returns the steps spent: the number of groups looked at so far.
  double steps() const { return steps_; }
  void Spend(double steps) { steps_ += steps; }

  const CostTable& table() const { return table_; }

 private:
  struct Slot {
    const DeviceGroup* group = nullptr;
    const DeviceGroup* before = nullptr;  // its neighbour towards layer 0
    int last = 0;
    int later_devices = 0;
    int least_first = 0;  // lower layers are for the stages still to come
    double delay_after_seconds = 0;
    double pace_seconds = 0;
  };

  double ComputeOnly(const DeviceGroup& group, int first, int last) const;
  bool Holds(const Slot& slot, int first, const TransferRate& before);
  int SmallestFirst(const Slot& slot);

  const CostTable& table_;
  std::vector<DeviceGroup> groups_;
  std::vector<double> compute_;  // [layers + 1]: share of [0, l)
  std::vector<double> scratch_;
  double steps_ = 0;
};

// Makes `placement` cheaper or leaves it as it is.  Each round finds the best
// cuts within a few layers of the present ones by dynamic programming; rounds
// go on while they help.  Shares become those of SharesFor; the placement fits
// its memory.  O(stages x window^2 x replicas) a round.
void PolishCuts(const CostTable& table, Placement& placement);

}  // namespace paceline

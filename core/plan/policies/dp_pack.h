// Layers for given groups of devices: the heuristic side of `dp` packs groups
// in an order at a pace, and moves the cuts of what it found.
// Thread-compatible.
#pragma once

#include <vector>

#include "core/plan/cost_table.h"

namespace paceline {

// The devices of one stage, ascending, with their shares of the whole model:
// near enough to choose cuts by.
struct DpGroup : PlacedStage {
  SyncCost sync;
  double memory_bytes = 0;  // of the smallest; infinity: no bound
};

DpGroup MakeGroup(const CostTable& table, std::vector<int> devices);

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
  // The part of all compute that was not placed; 0 when complete.
  double left = 1;
  bool complete() const { return left == 0; }
};

class DpPacker {
 public:
  // `table` outlives this.
  explicit DpPacker(const CostTable& table);

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

  const CostTable& table() const { return table_; }

 private:
  struct Slot {
    const DpGroup* group = nullptr;
    const DpGroup* before = nullptr;  // its neighbour towards layer 0
    int last = 0;
    int later_devices = 0;
    int least_first = 0;  // layers below are for the stages still to come
    double delay_after_seconds = 0;
    double pace_seconds = 0;
  };

  double ComputeOnly(const DpGroup& group, int first, int last) const;
  bool Holds(const Slot& slot, int first, const TransferRate& before);
  int SmallestFirst(const Slot& slot);

  const CostTable& table_;
  std::vector<DpGroup> groups_;
  std::vector<double> compute_;  // [layers + 1]: share of [0, l)
  std::vector<double> scratch_;
  double steps_ = 0;
};

// Leaves `placement` as it is or makes it cheaper: the best cuts within a few
// layers of where they are, by dynamic programming over cuts, repeated while
// that helps.  Shares become those of SharesFor; memory is kept to.
// O(stages x window^2 x replicas) a round.
void PolishCuts(const CostTable& table, Placement& placement);

}  // namespace paceline

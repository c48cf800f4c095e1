// A placement that changes by a stage or two at a time, and its cost: the
// numbers of CostOf and the verdict of CheckMemory, but without O(layers) and a
// new Placement for every try.  For policies that try many placements.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/random.h"
#include "core/plan/cost.h"
#include "core/plan/cost_table.h"
#include "core/plan/stage_memory.h"

namespace paceline {

// The caller sets layers and devices; WalkState fills in the rest.
struct WalkStage : PlacedStage {
  double seconds = 0;  // t
  StageAmounts amounts;
  double least_memory_bytes = 0;  // of its devices; infinity: no bound
};

struct WalkCost {
  double step_seconds = 0;        // PlacementCost's
  double bottleneck_seconds = 0;  // PlacementCost's
  double mean_busy_seconds = 0;   // of the stages
  // Excess bytes over the bytes available, summed over stages; 0: it fits.
  double excess = 0;
  // The stage that bounds the step; if a transfer does, the stage before it.
  int busiest_stage = 0;
};

// Edits change a draft.  Evaluate() returns its cost; Keep() or Undo() ends it.
// Thread-compatible; the table must outlive it.
class WalkState {
 public:
  explicit WalkState(const CostTable& table) : table_(table) {}

  // Starts over.  Only `layers` and `devices` of `stages` are read.
  void Reset(std::vector<WalkStage> stages);

  // The draft.
  int size() const { return static_cast<int>(draft_.placed.size()); }
  const WalkStage& stage(int index) const { return draft_.placed[index]; }
  const std::vector<int>& unused() const { return draft_.unused; }  // ascending

  // Edits.  The caller must leave a valid placement: adjoining ranges, no empty
  // stage.
  void MoveCut(int stage, int first_layer);  // new start of `stage`, >= 1
  void AddDevice(int stage, int device);     // an unused one
  void RemoveDevice(int stage, int device);
  // Makes the layers of `stage` from `first_layer` on a stage of `devices`,
  // which were unused.
  void Split(int stage, int first_layer, std::vector<int> devices);
  // Gives the layers of `stage` to the stage before it (those of stage 0 to the
  // next); its devices become unused.
  void Dissolve(int stage);
  void SwapDevices(int a, int b);  // all devices of both

  // O(stages + changes); a changed stage with m devices takes O(m^2).
  WalkCost Evaluate();
  void Keep();
  void Undo();

  Placement ToPlacement() const;

 private:
  struct Stages {
    std::vector<WalkStage> placed;
    std::vector<TransferCost> after;  // [stages]; the last is not read
    std::vector<int> unused;          // devices, ascending
  };

  // Copies the changes, and ends the draft.
  void Settle(const Stages& from, Stages& to);
  void Touch(int stage);
  void Release(int device);
  void Take(int device);
  void FillStage(WalkStage& stage) const;
  double Excess(const WalkStage& stage, const StagePlace& place) const;

  const CostTable& table_;
  Stages draft_, kept_;
  std::vector<char> touched_;   // [stages]
  bool shape_changed_ = false;  // touched_ does not suffice to undo
  bool unused_changed_ = false;
};

// --- steps ------------------------------------------------------------------

// Returns one stage for each of `devices` in this order, with layers in
// proportion to their speeds, at least one each.  1 <= devices.size() <=
// layers.
std::vector<WalkStage> ProportionalStages(const CostTable& table,
                                          const std::vector<int>& devices);

// Edits the draft of `state`, which costs `now`, by one random step.  Half of
// the steps change the busiest stage; some of those that change devices lay all
// cuts anew.  Keeps the number of stages when the problem gives one, and one
// device a stage without replicas.  False: the drawn step does not apply; the
// draft may be half changed, so the caller must undo it.
bool ProposeMove(const CostTable& table, const WalkCost& now,
                 SplitMix64& random, WalkState& state);

// --- the walk ---------------------------------------------------------------

// A random walk.  It remembers the best of the placements it met that fit.
// Thread-compatible; the table must outlive it.
class Walk {
 public:
  Walk(const CostTable& table, uint64_t seed)
      : table_(table), random_(seed), state_(table) {}

  // Takes random steps from `from` on, each with probability min(1,
  // exp(-increase / temperature)).  The temperature, relative to the cost,
  // falls from the given one; at 0 the walk takes no step that is worse.
  // Excess bytes add to the cost.
  void Run(std::vector<WalkStage> from, int64_t steps, double temperature);

  // From now on excess bytes outweigh nearly all other costs.
  void CountOnlyExcess();

  bool found() const { return best_seconds_ < HUGE_VAL; }
  const std::vector<WalkStage>& best() const { return best_; }

  // Errors: ResourceExhausted  it met no placement that fits; not a proof
  absl::StatusOr<Placement> BestPlacement();

 private:
  double Energy(const WalkCost& cost) const;
  void Take(const WalkCost& cost);
  void Try(double temperature);

  const CostTable& table_;
  SplitMix64 random_;
  WalkState state_;
  // Weight of excess bytes, relative to the cost.
  double excess_weight_ = 4;
  double energy_ = 0;
  WalkCost now_;
  double best_seconds_ = HUGE_VAL;
  std::vector<int> best_devices_;  // in the order of the chain
  std::vector<WalkStage> best_;
};

// Walks from several starts: cold along cheap wires, hot from others, and cold
// again from the best placement; returns the best one.
//
// Errors: ResourceExhausted  it met no placement that fits; not a proof
absl::StatusOr<Placement> BestOfWalks(const CostTable& table, uint64_t seed,
                                      int64_t steps);

}  // namespace paceline

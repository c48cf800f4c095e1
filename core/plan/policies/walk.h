// A placement that changes by a stage or two at a time, and what it costs:
// the numbers of CostOf and the verdict of CheckMemory, without their O(layers)
// and without a new Placement for every try.  For policies that try many.
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

// WalkState fills in all but the layers and the devices.
struct WalkStage : PlacedStage {
  double seconds = 0;  // t
  StageAmounts amounts;
  double least_memory_bytes = 0;  // of its devices; infinity: no bound
};

struct WalkCost {
  double step_seconds = 0;        // PlacementCost's
  double bottleneck_seconds = 0;  // PlacementCost's
  double mean_busy_seconds = 0;   // of the stages
  // Bytes too many over bytes there, summed over stages; 0: it fits.
  double excess = 0;
  // The stage that bounds the step: for a transfer, the one before it.
  int busiest_stage = 0;
};

// Edits go to a draft; Evaluate() says what it costs; Keep() or Undo() end
// it.  Thread-compatible; the tables must outlive it.
class WalkState {
 public:
  explicit WalkState(const CostTable& table) : table_(table) {}

  // Starts over.  `stages` need `layers` and `devices` only.
  void Reset(std::vector<WalkStage> stages);

  // The draft.
  int size() const { return static_cast<int>(draft_.placed.size()); }
  const WalkStage& stage(int index) const { return draft_.placed[index]; }
  const std::vector<int>& unused() const { return draft_.unused; }  // ascending

  // Edits.  The caller leaves a placement: ranges that join, no empty stage.
  void MoveCut(int stage, int first_layer);  // where `stage` begins, >= 1
  void AddDevice(int stage, int device);     // an unused one
  void RemoveDevice(int stage, int device);
  // The stage's tail from `first_layer` on becomes a stage of `devices`, which
  // are unused.
  void Split(int stage, int first_layer, std::vector<int> devices);
  // Layers of `stage` go to the stage before it, or to the one after stage 0;
  // its devices become unused.
  void Dissolve(int stage);
  void SwapDevices(int a, int b);  // all of both

  // O(stages + what changed); of a changed stage with m devices O(m^2).
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

  // Copies what has changed, and ends the draft.
  void Settle(const Stages& from, Stages& to);
  void Touch(int stage);
  void Release(int device);
  void Take(int device);
  void FillStage(WalkStage& stage) const;
  double Excess(const WalkStage& stage, const StagePlace& place) const;

  const CostTable& table_;
  Stages draft_, kept_;
  std::vector<char> touched_;   // [stages]
  bool shape_changed_ = false;  // touched_ does not say what to undo
  bool unused_changed_ = false;
};

// --- steps ------------------------------------------------------------------

// Where to cut `layers` in two so that both halves take about as long, the
// left one on `left`, the right one on `right`: the first layer of the right
// half.  `layers` holds at least two.  O(devices x log layers).
int BalancedCut(const CostTable& table, LayerRange layers,
                const std::vector<int>& left, const std::vector<int>& right);

// The devices, the quickest for the whole chain first; ties by number.
std::vector<int> QuickestFirst(const CostTable& table);

// Stages over `devices`, one each in this order, as long as their speeds say;
// at least one layer each.  1 <= devices.size() <= layers.
std::vector<WalkStage> ProportionalStages(const CostTable& table,
                                          const std::vector<int>& devices);

// Edits the draft of `state` by one random step; half of them are about
// `busiest`.  Keeps the number of stages when the problem asks for one, and one
// device a stage without replicas.  False: the step that was drawn does not
// apply here; the draft may be half changed, undo it.
bool ProposeMove(const CostTable& table, int busiest, SplitMix64& random,
                 WalkState& state);

// --- the walk ---------------------------------------------------------------

// Remembers the best placement that fits of all those that it met.
// Thread-compatible; the table must outlive it.
class Walk {
 public:
  Walk(const CostTable& table, uint64_t seed)
      : table_(table), random_(seed), state_(table) {}

  // Takes random steps from `from` on, each with probability
  // min(1, exp(-increase / temperature)); the temperature, in parts of the
  // cost, falls from the one given.  0: only what is no worse.  What does not
  // fit is charged by how much.
  void Run(std::vector<WalkStage> from, int64_t steps, double temperature);

  // From now on nearly nothing counts but that it fits.
  void CountOnlyExcess();

  bool found() const { return best_seconds_ < HUGE_VAL; }
  const std::vector<WalkStage>& best() const { return best_; }

  // Errors: ResourceExhausted  it met nothing that fits; not a proof
  absl::StatusOr<Placement> BestPlacement();

 private:
  double Energy(const WalkCost& cost) const;
  void Take(const WalkCost& cost);
  void Try(double temperature);

  const CostTable& table_;
  SplitMix64 random_;
  WalkState state_;
  // How much bytes too many weigh, in parts of the cost.
  double excess_weight_ = 4;
  double energy_ = 0;
  int busiest_ = 0;
  double best_seconds_ = HUGE_VAL;
  std::vector<WalkStage> best_;
};

}  // namespace paceline

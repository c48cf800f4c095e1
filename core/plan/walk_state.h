// A placement that changes by a stage or two at a time, and what it costs:
// the numbers of CostOf and the verdict of CheckMemory, without their O(layers)
// and without a new Placement for every try.  For policies that try many.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan/cost.h"
#include "core/plan/layer_range.h"
#include "core/plan/problem.h"
#include "core/plan/stage_memory.h"

namespace paceline {

// Sums over the first layers and numbers of pairs, of one problem.
// Immutable; the problem must outlive it.
class PlanTables {
 public:
  // O(layers x devices measured by layer + devices^2).
  explicit PlanTables(const PlanProblem& problem);

  const PlanProblem& problem() const { return *problem_; }
  int layers() const { return layers_; }
  int devices() const { return devices_; }

  // Sum over layers [0, layer) as `device` runs them.
  double SecondsBefore(int layer, int device) const {
    return seconds_[row_[device]][layer] * scale_[device];
  }
  // The same in two factors: SecondsOfRow(RowOf(d), l) x ScaleOf(d).  Devices
  // that were not measured layer by layer share row 0.
  int rows() const { return static_cast<int>(seconds_.size()); }
  int RowOf(int device) const { return static_cast<int>(row_[device]); }
  double ScaleOf(int device) const { return scale_[device]; }
  double SecondsOfRow(int row, int layer) const { return seconds_[row][layer]; }
  double ParametersBefore(int layer) const { return parameters_[layer]; }
  double FixedBefore(int layer) const { return fixed_[layer]; }
  double KeptBefore(int layer) const { return kept_[layer]; }
  double OutputsBefore(int layer) const { return outputs_[layer]; }
  // Bytes over the boundary before `layer`: none at both ends of the chain.
  double BytesBefore(int layer) const { return bytes_[layer]; }
  double Work(LayerRange layers, int device) const;
  StageAmounts AmountsOf(LayerRange layers) const;

  // [from][to] of a boundary: seconds a byte, there and in training back, and
  // the latencies of the same ways.
  double SecondsPerByte(int from, int to) const {
    return per_byte_[Pair(from, to)];
  }
  double Latency(int from, int to) const { return latency_[Pair(from, to)]; }
  // Of the worse direction, as a ring of replicas sees it.
  double WorstSecondsPerByte(int a, int b) const {
    return worst_per_byte_[Pair(a, b)];
  }
  double WorstLatency(int a, int b) const { return worst_latency_[Pair(a, b)]; }
  // Micro-batches between two synchronisations.
  double SyncEvery() const { return sync_every_; }

 private:
  size_t Pair(int a, int b) const {
    return static_cast<size_t>(a) * static_cast<size_t>(devices_) +
           static_cast<size_t>(b);
  }
  void FillLayers();
  void FillDevices();
  void FillPairs();

  const PlanProblem* problem_;
  int layers_;
  int devices_;
  double sync_every_ = 1;
  std::vector<std::vector<double>> seconds_;  // [rows][layers + 1]
  std::vector<size_t> row_;                   // [devices]
  std::vector<double> scale_;                 // [devices]
  std::vector<double> parameters_, fixed_, kept_, outputs_, bytes_;
  std::vector<double> per_byte_, latency_, worst_per_byte_, worst_latency_;
};

struct WalkStage {
  LayerRange layers;
  std::vector<int> devices;  // ascending

  // Kept by WalkState.
  std::vector<double> shares;
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
  explicit WalkState(const PlanTables& tables) : tables_(tables) {}

  // Starts over.  `stages` need `layers` and `devices` only.
  void Reset(std::vector<WalkStage> stages);

  // The draft.
  int size() const { return static_cast<int>(draft_.size()); }
  const WalkStage& stage(int index) const { return draft_[index]; }
  const std::vector<int>& unused() const { return unused_; }  // ascending

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
  struct Boundary {
    double delay = 0;
    double occupied = 0;
  };

  void Touch(int stage);
  void Release(int device);
  void Take(int device);
  void FillStage(WalkStage& stage) const;
  double SyncSeconds(const WalkStage& stage) const;
  Boundary Between(const WalkStage& left, const WalkStage& right);
  double Excess(const WalkStage& stage, const StagePlace& place) const;

  const PlanTables& tables_;
  std::vector<WalkStage> draft_, kept_;
  std::vector<Boundary> after_, kept_after_;  // [stages]; the last is not read
  std::vector<char> touched_;                 // [stages]
  bool shape_changed_ = false;  // touched_ does not say what to undo
  bool unused_changed_ = false;
  std::vector<int> unused_, kept_unused_;
  std::vector<double> port_;  // scratch
};

}  // namespace paceline

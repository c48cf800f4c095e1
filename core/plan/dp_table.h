// What dp and its helpers ask of a problem many times: cost.h's formulas on
// prefix sums.  Immutable after construction.
//
// Sums over a range come from differences here, so they may differ from
// CostOf's in the last digits: whoever hands a placement out judges it by
// CostOf.
#pragma once

#include <vector>

#include "core/plan/cost.h"
#include "core/plan/problem.h"
#include "core/plan/stage_memory.h"

namespace paceline {

// objective = sum_weight x (sum of stages and transfers)
//           + pace_weight x bottleneck
struct ObjectiveWeights {
  double sum = 0;
  double pace = 1;
};

ObjectiveWeights WeightsOf(const PlanProblem& problem);

// A boundary between two stages.
struct TransferCost {
  double occupied = 0;  // o
  double delay = 0;     // x
};

// Both directions of a pair of devices that count.
struct WireCost {
  double seconds_per_byte = 0;
  double latency_seconds = 0;
};

// A ring all-reduce between the replicas of a stage, per micro-batch.
struct SyncCost {
  double seconds_per_byte = 0;  // of parameters
  double latency_seconds = 0;
};

class DpTable {
 public:
  // `problem` has passed CheckProblem and outlives this.
  // O(layers x devices + devices^2).
  explicit DpTable(const PlanProblem& problem);
  explicit DpTable(PlanProblem&&) = delete;

  const PlanProblem& problem() const { return problem_; }
  int layers() const { return layers_; }
  int devices() const { return devices_; }
  const ObjectiveWeights& weights() const { return weights_; }

  // O(1) each, for first < last.
  double Work(int first, int last, int device) const;
  // The same without the frames: never falls when a range grows.
  double ComputeOnly(int first, int last, int device) const {
    return seconds_[device][last] - seconds_[device][first];
  }
  double ParameterBytes(int first, int last) const {
    return parameters_[last] - parameters_[first];
  }
  // stage_memory.h.  Devices before the stage count where backwards are in
  // halves: with an exact number of stages these are the rest of them, else
  // none are, which is the least that there can be.
  double StageBytes(LayerRange layers, int replicas, int later_devices) const;
  // The same, wherever the stage stands, and without its frames.
  double LeastBytes(LayerRange layers) const;
  // Bytes over the boundary before `layer`; none at both ends of the model.
  double BytesBefore(int layer) const { return bytes_before_[layer]; }
  const WireCost& Wire(int left, int right) const {
    return wires_[left][right];
  }

  // O(devices^2).
  SyncCost SyncOf(const std::vector<int>& devices) const;

  // t of a stage and, in `shares`, SharesFor's answer.  O(devices).
  double StageSeconds(LayerRange layers, const std::vector<int>& devices,
                      const SyncCost& sync, std::vector<double>& shares) const;

  // compute and sync as the problem's overlap says.
  double WithSync(LayerRange layers, double compute_seconds,
                  const SyncCost& sync) const;

 private:
  StageAmounts AmountsOf(LayerRange layers) const;

  const PlanProblem& problem_;
  const int layers_;
  const int devices_;
  const ObjectiveWeights weights_;
  std::vector<std::vector<double>> seconds_;  // [devices][layers + 1]
  std::vector<double> parameters_;            // [layers + 1]
  std::vector<double> fixed_;                 // [layers + 1]
  std::vector<double> kept_;                  // [layers + 1]
  std::vector<double> outputs_;               // [layers + 1]
  std::vector<double> bytes_before_;          // [layers + 1]
  std::vector<std::vector<WireCost>> wires_;  // [devices][devices]
};

// O(left x right).
TransferCost TransferOf(const DpTable& table, int cut, const PlacedStage& left,
                        const PlacedStage& right);

}  // namespace paceline

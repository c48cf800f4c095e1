// Evaluates the cost formula of cost.h from running sums over the layers, in
// O(1) where possible.  Every policy uses it.  Immutable after construction.
//
// The sum over a range is a difference of two running sums, so it may differ
// from a direct sum in the last digits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/plan/cost.h"
#include "core/plan/problem.h"
#include "core/plan/stage_memory.h"

namespace paceline {

// objective = sum x (all stages and transfers) + pace x bottleneck
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

// The cost of a boundary per byte, and its latency.
struct TransferRate {
  double occupied_per_byte = 0;
  double delay_per_byte = 0;
  double latency_seconds = 0;

  TransferCost Of(double bytes) const {
    return {bytes * occupied_per_byte,
            bytes * delay_per_byte + latency_seconds};
  }
};

// Between two devices: the sum of the directions that count, or for a ring of
// replicas the worse direction.
struct WireCost {
  double seconds_per_byte = 0;
  double latency_seconds = 0;
};

// The cost of a ring all-reduce between the replicas of a stage, per
// micro-batch; its bytes are those of the parameters.
using SyncCost = WireCost;

// Returns the rate between `left` and `right` members.  A member is a device,
// or a kind of which its side has several devices:
//   share(side, i)  share of each device of a member
//   count(side, i)  devices of a member
//   wire(u, v)      a WireCost
// O(left x right).
template <typename Share, typename Count, typename Wire>
TransferRate RateBetween(size_t left, size_t right, const Share& share,
                         const Count& count, const Wire& wire) {
  enum { kLeft, kRight };
  TransferRate rate;
  for (size_t u = 0; u < left; ++u) {
    double port = 0;
    double latency = 0;
    for (size_t v = 0; v < right; ++v) {
      const WireCost& each = wire(u, v);
      const double part = count(kRight, v) * share(kRight, v);
      port += part * each.seconds_per_byte;
      latency += part * each.latency_seconds;
    }
    const double part = count(kLeft, u) * share(kLeft, u);
    rate.delay_per_byte += part * port;
    rate.latency_seconds += part * latency;
    rate.occupied_per_byte =
        std::max(rate.occupied_per_byte, share(kLeft, u) * port);
  }
  for (size_t v = 0; v < right; ++v) {
    double port = 0;
    for (size_t u = 0; u < left; ++u) {
      port += count(kLeft, u) * share(kLeft, u) * wire(u, v).seconds_per_byte;
    }
    rate.occupied_per_byte =
        std::max(rate.occupied_per_byte, share(kRight, v) * port);
  }
  return rate;
}

class CostTable {
 public:
  // `problem` has passed CheckProblem and outlives this.
  // O(layers x devices measured by layer + devices^2).
  explicit CostTable(const PlanProblem& problem);
  explicit CostTable(PlanProblem&&) = delete;

  const PlanProblem& problem() const { return problem_; }
  int layers() const { return layers_; }
  int devices() const { return devices_; }
  const ObjectiveWeights& weights() const { return weights_; }

  // Returns W of layers [first, last), first < last.
  double Work(LayerRange layers, int device) const {
    return ComputeOnly(layers.first, layers.last, device) +
           FrameSeconds(problem_, device,
                        (layers.first > 0) + (layers.last < layers_),
                        BytesBefore(layers.first) + BytesBefore(layers.last));
  }
  // Returns W without the frames.  It never falls when a range grows.
  double ComputeOnly(int first, int last, int device) const {
    const Pace& pace = paces_[device];
    const double* const seconds = seconds_.data() + pace.begin;
    return (seconds[last] - seconds[first]) * pace.scale;
  }
  // A device's seconds are those of a row times a factor.  Devices without
  // layer_seconds share row 0.
  int rows() const { return static_cast<int>(seconds_.size()) / (layers_ + 1); }
  int RowOf(int device) const { return paces_[device].begin / (layers_ + 1); }
  double ScaleOf(int device) const { return paces_[device].scale; }
  double SecondsOfRow(int row, int layer) const {
    return seconds_[static_cast<size_t>(row) * (layers_ + 1) + layer];
  }

  // Returns the amounts of layers [0, layer) without recomputing, and the bytes
  // over the boundary before `layer`, which are 0 at both ends of the model.
  const StageAmounts& AmountsBefore(int layer) const { return before_[layer]; }
  double BytesBefore(int layer) const { return before_[layer].boundary; }
  StageAmounts AmountsOf(LayerRange layers) const;
  double ParameterBytes(LayerRange layers) const {
    return before_[layers.last].parameters - before_[layers.first].parameters;
  }
  // Returns the bytes of stage_memory.h.  Where CountsEarlier(): with an exact
  // number of stages all remaining devices count as earlier ones; otherwise
  // none do, which gives the least bytes possible.
  double StageBytes(LayerRange layers, int replicas, int later_devices) const;
  // Returns the least bytes of the layers at any position, without frames.  It
  // never falls when a range grows at its end.
  double LeastBytes(LayerRange layers) const;
  // Returns the memory of the smallest of `devices`; infinity: no bound.
  double MemoryOf(const std::vector<int>& devices) const;

  const WireCost& Wire(int from, int to) const {
    return wires_[static_cast<size_t>(from) * devices_ + to];
  }
  const WireCost& RingWire(int a, int b) const {
    return ring_wires_[static_cast<size_t>(a) * devices_ + b];
  }
  TransferRate RateOf(const PlacedStage& left, const PlacedStage& right) const;
  TransferCost TransferOf(int cut, const PlacedStage& left,
                          const PlacedStage& right) const {
    return RateOf(left, right).Of(BytesBefore(cut));
  }

  // Micro-batches between two synchronisations.
  double SyncEvery() const { return sync_every_; }
  // O(devices^2).
  SyncCost SyncOf(const std::vector<int>& devices) const;

  // Returns t of a stage; stores the shares of SharesFor in `shares`.
  // O(devices).
  double StageSeconds(LayerRange layers, const std::vector<int>& devices,
                      const SyncCost& sync, std::vector<double>& shares) const;
  // Returns t of a stage with its own shares.  O(devices^2).
  double StageSeconds(const PlacedStage& stage) const;

 private:
  struct Pace {
    int begin = 0;  // of the device's row
    double scale = 1;
  };

  double WithSync(LayerRange layers, double compute_seconds,
                  const SyncCost& sync) const;
  void PutSegments();
  void CountSegments(LayerRange layers, StageAmounts& amounts) const;

  const PlanProblem& problem_;
  const int layers_;
  const int devices_;
  const ObjectiveWeights weights_;
  double sync_every_ = 1;
  std::vector<double> seconds_;       // [rows x (layers + 1)]
  std::vector<Pace> paces_;           // [devices]
  std::vector<StageAmounts> before_;  // [layers + 1]
  // Layers of a segment (the last one of a stage may have fewer); 0: no
  // segments.
  const int segment_;
  std::vector<double> inputs_from_;  // [layers + 1]: of segments from there on
  std::vector<double> segment_bytes_;  // [layers + 1]: of the layers before
  // [level][first layer]: bytes of the largest among 2^level whole segments in
  // a row.
  std::vector<std::vector<double>> largest_;
  std::vector<WireCost> wires_;       // [devices x devices]
  std::vector<WireCost> ring_wires_;  // the same
};

// Returns CostOf a valid placement of the table's problem, without its ties.
// O(stages x devices^2 + layers).
PlacementCost UntiedCostOf(const CostTable& table, const Placement& placement);

// Returns the shares that a policy gives `devices`: proportional to 1 / W_d, or
// equal ones without uneven_shares or when some W_d is 0.  O(devices).
std::vector<double> SharesFor(const CostTable& table, LayerRange layers,
                              const std::vector<int>& devices);

}  // namespace paceline

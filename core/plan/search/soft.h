// A placement of a given number of stages whose choices are soft, so that its
// cost has a gradient.  Pure.
//
//   layers       0    1    2    3    4    5    6    7
//   cut 1 weight      .1   .8   .1                       a cut is a weighted
//   cut 2 weight                     .2   .7   .1        mean over layers
//
//   z            stage 0   stage 1   stage 2   left out
//   device 0        .9       .05       .03        .02    each row sums to 1
//   device 1        .1       .7        .1         .1
//
//   cuts      the widths of the stages are a softmax of logits, so that cuts
//             keep their order and each stage has at least one layer.  A cut at
//             position p sits before layer j with weight
//             ~ exp(-(p - j)^2 / (2 width^2)), for every j that leaves the
//             stages on both sides a layer each.  Every amount that depends on
//             the position of a cut becomes a mean under these weights
//   devices   each is a softmax over the stages and "left out"; z is its
//             membership of a stage
//   W, q, t   as in cost.h, with the fraction z of a device: uneven shares make
//             t = 1 / sum(z / W) and q ~ z / W; else t = max(W) / sum(z), q ~ z
//   max       smooth: (sum v^p)^(1/p), the exponential of a log-sum-exp of
//             log v with temperature 1 / p; p is a power of two
//   sync      m - 1 becomes (sum of z_u z_v over pairs) / m, the slowest pair
//             a mean of order 8 under z_u z_v
//   memory    without floor and ceil, and without recomputing.  The excess over
//             a device's memory, relative to that memory, is a penalty weighted
//             by z.  So are pairs of devices in one stage where replicas are
//             not allowed
//
// The formulas are written once, on a Tape, which computes the gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/cost_table.h"
#include "core/plan/search/tape.h"
#include "core/plan/search/walk.h"
#include "core/plan/stage_memory.h"

namespace paceline {

// Overloads for InFlightOf() of stage_memory.h: fractions of devices are not
// rounded.
inline Traced WholeBelow(const Traced& number) { return number; }
inline Traced WholeAbove(const Traced& number) { return number; }

// Degrees of softness.  All are annealed towards hard choices.
struct Softness {
  double cut_width = 1;   // layers
  double membership = 1;  // temperature of the devices' softmax
  int sharpness = 2;      // p = 2^sharpness
  double penalty = 1;     // weight of penalties, relative to the cost
};

// Thread-compatible: Loss() uses the scratch of the object.  The table must
// outlive it.
class Relaxation {
 public:
  // 1 <= stages <= min(layers, devices).
  Relaxation(const CostTable& table, int stages);

  // logits: [stages] of the widths, then [devices][stages + 1] of the
  // memberships, "left out" last.
  size_t size() const;

  // Returns log(step_seconds over a fixed time) + penalties, and puts its
  // derivatives by the logits into `gradient` [size()].
  // O(stages x (devices^2 + cut_width x rows of measurements)).
  double Loss(const std::vector<double>& logits, const Softness& softness,
              std::vector<double>& gradient);

  // Returns the nearest hard placement: each cut before its nearest layer, each
  // device in the stage of its largest membership, each stage with at least one
  // device (exactly one without replicas).
  std::vector<WalkStage> Round(const std::vector<double>& logits);

 private:
  using Vector = std::vector<double>;
  using Numbers = std::vector<Traced>;
  using Amounts = StageAmountsOf<Traced>;

  size_t At(int row, int stage) const {
    return static_cast<size_t>(row) * static_cast<size_t>(stages_) +
           static_cast<size_t>(stage);
  }
  void FillDevices();
  void FillPairs();
  double Feature(int feature, int layer) const;

  // Returns a feature's mean under the weights of a cut; cuts 0 and stages_ are
  // the ends of the chain.
  Traced& Mean(int feature, int cut) {
    return mean_[static_cast<size_t>(feature) * (stages_ + 1) + cut];
  }
  Traced Between(int feature, int stage) {
    return Mean(feature, stage + 1) - Mean(feature, stage);
  }
  Amounts AmountsOf(int stage);
  Numbers Positions(const Numbers& logits) const;
  void Soften(int cut, const Traced& position);
  void PutMemberships(const Numbers& logits);
  void PutShares(int stage);
  void PutTransfers();
  Traced SyncOf(int stage, const Numbers& ring, const Numbers& ring_late);
  void PutTimes();
  Traced Objective() const;
  Traced ReplicaPenalty() const;
  Traced MemoryPenalty();

  const CostTable& table_;
  const int stages_;
  const int devices_;
  const int layers_;

  // Constant after construction; seconds in units of unit_.
  double unit_ = 1;
  double micro_batches_ = 1;
  double ring_per_byte_ = 0;  // of the slowest pair, for each synchronisation
  double ring_latency_ = 0;   // of the slowest pair
  Vector scale_, frame_, frame_per_byte_;  // [devices]
  Vector per_byte_, latency_;              // [from][to]
  Vector ring_bytes8_,
      ring_latency8_;  // pairs over the slowest one, to the 8th

  // Results of the last Loss().  [devices][stages] unless said.
  Softness soft_;
  Tape tape_;
  Numbers mean_;  // [features][stages + 1]
  Numbers z_, share_;
  Numbers count_;           // [stages]: sum of z
  Numbers compute_, time_;  // [stages]
  Numbers port_left_, port_right_;
  Numbers delay_;  // [stages]; delay_[s] is before stage s
};

// --- the descent ---

// Returns random logits: nearly equal widths, memberships with a small
// preference.
std::vector<double> RandomLogits(const Relaxation& relaxation, int stages,
                                 uint64_t seed);

// Changes `logits` by `steps` steps of Adam under annealed softness.
void Descend(const CostTable& table, int steps, Relaxation& relaxation,
             std::vector<double>& logits);

}  // namespace paceline

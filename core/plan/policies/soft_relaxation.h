// A placement of a given number of stages with its choices made soft, so that
// its cost has a gradient.  Pure.
//
//   cuts      SoftCuts: all that depends on where a cut is becomes a mean
//   devices   each is a softmax over the stages and "left out"; z is its
//             membership of a stage
//   W, q, t   as in cost.h, with z as a part of a device: uneven shares make
//             t = 1 / sum(z / W) and q ~ z / W; else t = max(W) / sum(z), q ~ z
//   max       smooth: (sum v^p)^(1/p), the exponential of a log-sum-exp of
//             log v with temperature 1 / p; p is a power of two
//   sync      m - 1 becomes (sum of z_u z_v over pairs) / m, the slowest pair
//             a mean of order 8 under z_u z_v
//   memory    without floor and ceil; what is too much, in parts of what is
//             there, is charged under z.  So are pairs of devices in one stage
//             where replicas are not allowed
//
// The gradient is written by hand: each XBack undoes X, in reverse order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/cost_table.h"
#include "core/plan/policies/soft_cuts.h"
#include "core/plan/policies/walk.h"

namespace paceline {

// How soft.  All are annealed towards hard choices.
struct Softness {
  double cut_width = 1;   // layers
  double membership = 1;  // temperature of the devices' softmax
  int sharpness = 2;      // p = 2^sharpness
  double penalty = 1;     // of what is not allowed, in parts of the cost
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

  // log(step_seconds over a fixed time) + penalties, and its derivatives by
  // the logits into `gradient` [size()].
  // O(stages x (devices^2 + cut_width x rows of measurements)).
  double Loss(const std::vector<double>& logits, const Softness& softness,
              std::vector<double>& gradient);

  // The placement that the logits lean to: each cut before its nearest layer,
  // each device where its membership is largest, each stage at least one device
  // (exactly one without replicas).
  std::vector<WalkStage> Round(const std::vector<double>& logits);

 private:
  using Vector = std::vector<double>;

  size_t At(int row, int stage) const {
    return static_cast<size_t>(row) * static_cast<size_t>(stages_) +
           static_cast<size_t>(stage);
  }
  bool Uneven() const { return table_.problem().uneven_shares; }
  // In training each transfer goes both ways: the links' table are symmetric.
  bool BothWays() const { return table_.problem().training; }
  void FillDevices();
  void FillPairs();

  void Memberships(const double* logits);
  void Work();
  void Shares(int stage);
  void Transfers();
  void Syncs();
  void Objective();
  void ReplicaPenalty();
  void MemoryPenalty();

  void ObjectiveBack();
  void SyncsBack();
  void TransfersBack();
  void SharesBack(int stage);
  void WorkBack();
  void MembershipsBack(double* gradient) const;

  // into [devices][stages] += links [devices][devices] x values
  void Multiply(const Vector& links, const Vector& values, Vector& into) const;

  const CostTable& table_;
  const int stages_;
  const int devices_;
  SoftCuts cuts_;

  // Constant after construction; seconds in units of unit_.
  double unit_ = 1;
  double micro_batches_ = 1;
  double ring_per_byte_ = 0;  // of the slowest pair, for each synchronisation
  double ring_latency_ = 0;   // of the slowest pair
  Vector scale_, frame_, frame_per_byte_;  // [devices]
  Vector per_byte_, per_byte_turned_;      // [from][to], [to][from]
  Vector latency_, latency_turned_;        // the same
  Vector ring_bytes8_,
      ring_latency8_;  // pairs over the slowest one, to the 8th

  // The last Loss() left these.  [devices][stages] unless said.
  Softness soft_;
  double loss_ = 0;
  Vector member_;  // [devices][stages + 1]
  Vector z_, to_z_, work_, to_work_, share_, to_share_;
  Vector ahead_, behind_, late_ahead_, late_behind_;  // links x shares
  Vector ring_, ring_late_;                           // pairs x z
  Vector port_left_, port_right_, to_left_, to_right_;
  Vector pushed_, pulled_;        // what TransfersBack multiplies
  Vector count_;                  // [stages]: sum of z
  Vector compute_, sync_, time_;  // [stages]
  Vector to_compute_, to_sync_, to_time_;
  Vector busy_, delay_, to_delay_;  // [stages]; delay_[s] is before s
  Vector to_mean_;                  // as SoftCuts::At
  double bottleneck_ = 0;
  double objective_ = 0;
};

// --- the descent (soft.cc) --------------------------------------------------

// Logits of chance: nearly equal widths, memberships that lean a little.
std::vector<double> RandomLogits(const Relaxation& relaxation, int stages,
                                 uint64_t seed);

// Changes `logits` by `steps` steps of Adam under annealed softness.
void Descend(const CostTable& table, int steps, Relaxation& relaxation,
             std::vector<double>& logits);

// Memberships are made those of `placed`, hard; then the cuts alone descend:
// they were at home among devices that rounding has changed.
void SettleCuts(const CostTable& table, int steps,
                const std::vector<WalkStage>& placed, Relaxation& relaxation,
                std::vector<double>& logits);

}  // namespace paceline

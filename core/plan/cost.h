// Defines the cost of a placement.  Every policy minimises it; the simulator's
// event times are compared with it.  Pure.
//
// Stage s holds layers [i, j) on devices D with shares q (sum 1).
//   W_d    = seconds of its layers on d, and of its frames: each boundary it
//            has (before i when i > 0, after j when j < layers) costs one frame
//            forward and, in training, one back
//   sync   = 2 (m - 1) / m |w| / B + 2 (m - 1) L in training with m = |D| > 1:
//            ring all-reduce at the lowest bandwidth and the highest latency
//            between two of D (Patarasuk and Yuan 2009), spread over
//            micro_batches_per_sync
//   t_s    = max over d of q_d W_d, with sync: the larger of both where they
//            overlap, else the sum (SyncOverlaps)
// The boundary between stages on U and V, b bytes:
//   o      = max over u of q_u sum over v of q_v c(u, v), and the same for v:
//            how long a port is busy.  c(u, v) = b / B(u, v), in training
//            + b / B(v, u): activations one way and gradients the other share
//            the ports, because each end usually has a second boundary
//   x      = sum over u, v of q_u q_v (c(u, v) + latencies): how long a frame
//            is on its way
// Bottleneck: the largest t and o; without overlap the largest sum of t_s and
// the x before and after it.
// A step of M micro-batches takes sum(t) + sum(x) + (M - 1) bottleneck, and the
// seconds of its ties (TieSeconds).  An endless stream is judged by the
// bottleneck alone.
//
// Memory: core/plan/stage_memory.h.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/problem.h"

namespace paceline {

struct PlacedStage {
  LayerRange layers;
  std::vector<int> devices;    // ascending, at least one
  std::vector<double> shares;  // [devices], positive, together 1

  friend bool operator==(const PlacedStage&, const PlacedStage&) = default;
};

// Stages in the order of the chain.
using Placement = std::vector<PlacedStage>;

struct PlacementCost {
  std::vector<double> stage_seconds;     // [stages]: t
  std::vector<double> transfer_seconds;  // [stages - 1]: x
  double bottleneck_seconds = 0;
  // one step; endless: one micro-batch, the bottleneck
  double step_seconds = 0;
  std::vector<double> memory_bytes;  // [devices]; 0 where none is used
};

// Returns the seconds that frames cost `device` when its stage has `boundaries`
// boundaries, with `bytes` over all of them one way.
inline double FrameSeconds(const PlanProblem& problem, int device,
                           int boundaries, double bytes) {
  const Device& on = problem.devices[device];
  return (problem.training ? 2 : 1) *
         (boundaries * on.frame_seconds + bytes * on.frame_seconds_per_byte);
}

// Returns the seconds of [first, last) on `device`, without frames.
double LayerSeconds(const PlanProblem& problem, LayerRange layers, int device);

// Returns the seconds a step that ties take in training.  Each tie whose ends
// are on two stages sends its gradient to the owner and its value back, over
// the slowest pair of their devices.  Nothing hides this time: the gate waits
// for the gradient, and the next forward for the value.
double TieSeconds(const PlanProblem& problem, const Placement& placement);

enum class DeviceHolds { kOneStage, kSeveralStages };

// Checks that `placement` is one of `problem`: it has every layer once and
// every device at most once.  With kSeveralStages a device may hold several
// stages, if it is their only one.
//
// Errors: InvalidArgument  layers missing or twice, a device unknown or twice,
// shares that are not positive or do not sum to 1.
absl::Status CheckPlacement(const PlanProblem& problem,
                            const Placement& placement, DeviceHolds holds);

// Returns the cost of `placement`, whether it fits the memory or not.
// `problem` has passed CheckProblem.  O(stages x devices + boundaries x
// devices^2 + layers).
//
// Errors: as CheckPlacement with kOneStage
absl::StatusOr<PlacementCost> CostOf(const PlanProblem& problem,
                                     const Placement& placement);

// Errors: ResourceExhausted  a device needs more memory than it has: names the
// device, its layers, both numbers and the difference.
absl::Status CheckMemory(const PlanProblem& problem, const Placement& placement,
                         const PlacementCost& cost);

// Returns step_seconds of CostOf; infinity: `placement` is none, or does not
// fit the memory.
double SecondsIfItFits(const PlanProblem& problem, const Placement& placement);

}  // namespace paceline

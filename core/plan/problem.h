// A planning problem: layers, devices, links and the objective.  Values and a
// check.
//
// Seconds and bytes are those of ONE micro-batch unless the comment says
// otherwise.  Layers and devices are numbered from 0 in the order given.  Ties
// break by these numbers, so a caller that wants the same plan every time must
// give them in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/model/description.h"

namespace paceline {

struct LayerCost {
  std::string name;
  double forward_seconds = 0;   // on a device of speed 1
  double backward_seconds = 0;  // the same; not counted without training
  double output_bytes = 0;      // to the next layer; the gradient has as many
  // Bytes of the output in memory, where a codec changes its size on the wire;
  // 0: output_bytes.
  double decoded_bytes = 0;
  double parameter_bytes = 0;  // one copy, borrowed ones included
  double borrowed_bytes = 0;   // of these, from another layer (TieCost)
  // in addition: data, and weights that no step changes
  double frozen_bytes = 0;
  double kept_bytes = 0;  // kept from forward to backward

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

struct Device {
  std::string name;
  double speed = 1;  // a layer takes its seconds / speed
  // [layers] seconds measured on this device: forward + backward, or forward
  // only when planning inference; empty: computed from speed.
  std::vector<double> layer_seconds;
  double memory_bytes = 0;  // 0: not known, no bound
  int machine = 0;          // devices of one machine are near each other
  // Cost to this device's compute thread of sending or receiving one frame: a
  // fixed part, and a part for each byte.
  double frame_seconds = 0;
  double frame_seconds_per_byte = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

struct LinkCost {
  double bytes_per_second = 0;  // infinity: free; 0: there is no link
  double latency_seconds = 0;

  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

// A parameter that two layers share.  Once a step, the user's stage sends its
// gradient to the owner's stage, which sends the value back.
struct TieCost {
  int owner = 0;  // layer, the lower
  int user = 0;   // layer
  double bytes = 0;

  friend bool operator==(const TieCost&, const TieCost&) = default;
};

struct PlanProblem {
  std::vector<LayerCost> layers;
  std::vector<Device> devices;
  // [from][to]; need not be symmetric, the diagonal is not read.
  std::vector<std::vector<LinkCost>> links;

  // Micro-batches of a step.  0: an endless stream, where only the bottleneck
  // counts.
  int64_t micro_batches = 0;
  bool training = true;  // false: forward only, nothing comes back

  // Transfers and the replicas' synchronisation run beside compute; false:
  // they stop it.
  bool overlap = true;
  // False: the synchronisation stops compute even where transfers do not:
  // replicas that agree on every step exchange their gradients after its last
  // backward.
  bool sync_overlaps = true;
  // Micro-batches between two synchronisations of replicas; 0: micro_batches,
  // or 1 for an endless stream.
  int64_t micro_batches_per_sync = 0;

  // A device that holds a stage needs memory for parameter_copies x its
  // parameters (the parameter, its gradient, the optimizer's state), for the
  // activations of the micro-batches in flight, for two frames a boundary, and
  // for the reserve (snapshots held for others, the runtime itself).
  // stage_memory.h counts it, in the same way as EstimateBytes() of plan.h does
  // for a job.
  double parameter_copies = 2;
  // of these, for owned parameters alone: optimizer's state, bf16 casts
  double owner_copies = 0;
  double reserved_bytes = 0;  // of every device that is used
  bool keeps_all = false;     // gpipe: every micro-batch of the step is kept
  // pipedream: each micro-batch in flight but one has a copy of the parameters
  bool stashes = false;
  double version_copies = 1;   // size of such a copy / that of the parameters
  bool same_versions = false;  // vertical sync: as many copies on all stages
  bool splits = false;         // zero-bubble: backwards in halves, no replicas
  // Layers of a recomputed segment; segments are counted from the first layer
  // of a stage.  A stage keeps only the input of each segment, and has all
  // activations of one segment at a time.  0: no recomputing, everything is
  // kept.
  int segment_layers = 0;
  double input_bytes = 0;  // of the first layer's input

  std::vector<TieCost> ties = {};

  int stages = 0;  // exactly this many; 0: any number
  bool replicas = true;
  // A replica's share of the micro-batches is proportional to its speed;
  // false: all have the same.
  bool uneven_shares = true;

  friend bool operator==(const PlanProblem&, const PlanProblem&) = default;
};

inline bool SyncOverlaps(const PlanProblem& problem) {
  return problem.overlap && problem.sync_overlaps;
}

// Errors: InvalidArgument  `what` is negative or not finite
absl::Status CheckAmount(absl::string_view what, double value);

inline constexpr int64_t kMaxPlannedMicroBatches = int64_t{1} << 20;

// Errors; each names the layer, device or pair and says how to correct it:
//   InvalidArgument     no layers; a number that is negative or not finite
//                       (an infinite bandwidth is allowed); a speed of 0;
//                       layer_seconds or links of the wrong size; a pair of
//                       devices without a link in one or both directions;
//                       more than kMaxPlannedMicroBatches; more stages than
//                       layers, or than devices; a tie between layers that are
//                       not there or in the wrong order; more borrowed than
//                       there is
//   FailedPrecondition  no devices
absl::Status CheckProblem(const PlanProblem& problem);

// Sets keeps_all, stashes and splits for a schedule of core/schedule.
void CountMemoryOf(absl::string_view schedule, PlanProblem& problem);

}  // namespace paceline

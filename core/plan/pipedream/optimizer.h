// The cost model and the two-level planning of PipeDream's released optimizer,
// so that results can be compared with it.  Pure.
//
// A stage (a, b] holds the nodes of state b that are not in state a.  On m
// devices at B bytes a second it takes
//   t = (C + 4 (m - 1) / m W / B) / m
// with C its seconds and W its parameter bytes.  This is the released
// optimizer's formula; that of Narayanan et al. 2019, section 3.1, has 2 for 4,
// and the larger of both for the sum.  With transfers counted, a stage takes at
// least 2 x / (B m), for the x bytes over the boundary before it and for those
// over the one after it.  Transfers of the first stage of a row and of the end
// of the graph do not count.  A row of stages takes as long as its slowest one.
//
// A run of states on M machines, each holding the same row of stages, takes
//   (row + 4 (M - 1) / M W / B) / M
// and, with transfers counted, at least 2 x / (B M) of the boundaries before
// and after it.  Two oddities of the released formula are kept: the first run's
// synchronisation is divided by the devices of a machine, and its transfers do
// not count.  A plan takes as long as its longest run: this bottleneck is in
// seconds a mini-batch of an endless stream.
//
// A stage fits when (outputs + parameters) x versions are within the memory of
// a device: versions = ceil(devices after it / its replicas) + 1, the stash of
// the paper's section 3.3.
//
// We correct four points, and plans never get worse by it.  Stages lie between
// states of which one is inside the other (the released optimizer also
// subtracts unrelated states).  Only bytes that a node outside needs cross a
// boundary.  The last stage is memory-bound too (the released optimizer leaves
// out the 1 of the versions), and versions count the devices of all machines
// after it.  Devices are left out only where that is faster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/machines.h"
#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/pipedream/state_space.h"
#include "core/plan/problem.h"

namespace paceline {

struct PipedreamRequest {
  Machines machines;
  bool replicas = true;          // false: one device a stage
  bool count_transfers = false;  // activations and gradients at boundaries
};

struct PipedreamStage {
  LayerRange nodes;          // of PipedreamAnswer::node_order
  std::vector<int> devices;  // replicas, ascending; device i of machine j of
                             // n devices each is n j + i
  int machines = 1;          // machines that hold this stage
  double one_device_seconds = 0;  // its compute, forward and backward
  double seconds = 0;             // compute and synchronisation, a mini-batch
  double transfer_seconds = 0;    // of its boundaries, if counted
  int64_t versions = 1;           // kept copies of weights and outputs
  double memory_bytes = 0;        // of each device

  friend bool operator==(const PipedreamStage&,
                         const PipedreamStage&) = default;
};

struct PipedreamAnswer {
  std::vector<PipedreamStage> stages;
  std::vector<int> node_order;    // nodes of the profile, stage by stage
  double bottleneck_seconds = 0;  // a mini-batch
  double one_machine_seconds = 0;
  double speed_up = 1;               // one machine / bottleneck
  double data_parallel_seconds = 0;  // the whole graph on every device
  double lower_bound_seconds = 0;    // one machine / available devices
  int devices_used = 0;
  std::string shape;  // replicas of each stage: "13-2-1"
  std::string why;    // for people
};

// The inner level of two has at most this many devices; a single level may have
// four times as many.
inline constexpr int kMostInnerDevices = 64;

// Returns an optimal plan under the formula above, in memory and time, except
// for rounding; same arguments, same answer.  With s states a row on n devices
// takes O(s^2 n^2).  A single level is one row.  An outer level of N machines
// needs a row for each state where a run can end, and with a memory bound for
// each number of devices after it.  The published profiles take at most 0.1 s
// of one core on 4x4 and 16 (2026-11-30).
//
// Errors:
//   InvalidArgument    CheckMachines'; too many devices in a level
//   ResourceExhausted  no stages fit the memory: names the node that is hardest
//                      to place and its excess bytes, or the bytes of the whole
//                      and those available
absl::StatusOr<PipedreamAnswer> PlanPipedream(const GraphProfile& graph,
                                              const StateSpace& space,
                                              const PipedreamRequest& request);

}  // namespace paceline

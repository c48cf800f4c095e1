// The two levels of the pipedream cost model: the best stages between two
// states on the devices of a machine, and which machines hold which run of
// states. Internal to core/plan/pipedream.
//
// A stage (a, b] of state b without state a, on m devices at B bytes a second:
//   t = (C + 4 (m - 1) / m W / B) / m, C its seconds and W its parameter bytes
// (the released optimizer's formula; that of Narayanan et al. 2019, section
// 3.1, has 2 for 4 and the larger of both for the sum).  With transfers
// counted, a stage costs no less than 2 x / (B m), x the bytes over the
// boundary before it and those over the one after it; the first stage of a row
// is not asked, nor is the end of the graph.  A row costs what its largest
// stage does.
//
// A stage fits when (outputs + parameters) x versions are within the memory of
// a device: versions = ceil(devices after it / its replicas) + 1, the stash of
// the paper's section 3.3.  (The released optimizer leaves out the 1 and so
// never bounds the last stage.)
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/pipedream/state_space.h"

namespace paceline {

struct RowOptions {
  double bytes_per_second = 0;  // between two of the devices
  int devices = 1;
  bool replicas = true;
  bool count_transfers = false;
  double memory_bytes = 0;  // of a device; 0: no bound
};

// Where the row's devices stand in the whole pipeline: so many machines hold
// the same row, and so many devices come after it.
struct RowPlace {
  int machines = 1;
  int later_devices = 0;
};

// State `last` without state `first`.
struct RowStage {
  int first = 0;
  int last = 0;
  int replicas = 1;      // in one machine
  int rest_devices = 0;  // of the row, after this stage
};

// Copies of weights and outputs that a stage keeps.
int64_t VersionsOf(const RowPlace& place, int replicas, int rest_devices);

struct LevelOptions {
  RowOptions row;               // inside a machine
  int machines = 1;             // 1: there is only the inner level
  double bytes_per_second = 0;  // between machines
};

// State `last` without state `first`, on as many machines, each of which holds
// the same row of stages.
struct PipedreamRun {
  int first = 0;
  int last = 0;
  int machines = 1;
  std::vector<RowStage> stages;  // of each of the machines
};

struct LevelAnswer {
  double seconds = 0;  // infinite: no plan fits
  std::vector<PipedreamRun> runs;
};

// The synchronisation of a run's parameters between its machines, and twice the
// bytes over the boundary at `state`, in seconds before division by machines.
double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines);
double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state);

// The most bytes, one version of each, that `devices` of `memory_bytes` hold
// in any stages when `later_devices` come after them: a stage on m devices with
// n after it keeps at least 1 + n / m versions, so that m devices hold no more
// than m stages of one device would.
double MostHeldBytes(double memory_bytes, int later_devices, int devices);

// The best of all plans, to the last digits; of equal ones one on the most
// machines.  A dynamic programme over (state, machines behind it), from the
// last state to the first; it is repeated with a higher bound on the seconds
// until there is a plan below the bound, because a low bound leaves few runs to
// look at.
LevelAnswer SolveLevels(const StateSpace& space, const LevelOptions& options);

}  // namespace paceline

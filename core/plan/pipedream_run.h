// A run of states on some machines, each of which holds the same row of stages:
// what planning over machines has in common.  Internal to core/plan.  Values
// and pure functions.
#pragma once

#include <vector>

#include "core/plan/pipedream_row.h"
#include "core/plan/state_space.h"

namespace paceline {

struct LevelOptions {
  RowOptions row;               // inside a machine
  int machines = 1;             // 1: there is only the inner level
  double bytes_per_second = 0;  // between machines
};

// State `last` without state `first`, on as many machines.
struct PipedreamRun {
  int first = 0;
  int last = 0;
  int machines = 1;
  std::vector<RowStage> stages;  // of each of the machines
};

// The synchronisation of a run's parameters between its machines, and twice its
// boundary bytes over their links, in seconds before division by machines.
double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines);
double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state);

// What a row on each of `machines` has behind it when `rest_machines` come
// after them, in devices a machine, rounded up: replicas and devices of the row
// are whole numbers, so that no more counts for VersionsOf().
int LaterDevices(const LevelOptions& options, int rest_machines, int machines);

// The most bytes, one version of each, that `devices` of `memory_bytes` hold
// in any stages when `later_devices` come after them: a stage on m devices with
// n after it keeps at least 1 + n / m versions, so that m devices hold no more
// than what m stages of one device would.
double MostHeldBytes(double memory_bytes, int later_devices, int devices);

}  // namespace paceline

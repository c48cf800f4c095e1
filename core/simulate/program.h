// Who runs what: the placement as workers with instruction lists.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/cost.h"
#include "core/schedule/instruction.h"
#include "core/schedule/route.h"

namespace paceline {

// Workers are numbered in the order in which the placement names their
// devices.
struct Program {
  int stages = 0;
  int micro_batches = 0;
  bool training = true;
  // The lists are a stream of all steps, and this many micro-batches are one;
  // 0: the lists are one step.
  int streamed_step = 0;
  std::vector<int> device_of;                // [workers]
  std::vector<std::vector<int>> workers_of;  // [stages][replicas]
  std::vector<RouteTable> route;             // [stages]
  std::vector<InstructionList> lists;        // [workers]

  int workers() const { return static_cast<int>(device_of.size()); }
  int ReplicaOf(int stage, int micro_batch) const {
    return route[stage].ReplicaOf(micro_batch);
  }
  int WorkerOf(int stage, int micro_batch) const {
    return workers_of[stage][ReplicaOf(stage, micro_batch)];
  }
};

struct ProgramRequest {
  absl::string_view schedule;
  int micro_batches = 1;  // of a step
  int steps = 1;
  bool training = true;
};

// Without replicas MakeSchedule's lists; of an asynchronous schedule one for
// all steps, since there is no flush between them.  With replicas each runs its
// own micro-batches in ascending order; under 1f1b a replica has at most
// floor(devices of later stages / replicas) + 1 in flight, as core/plan/cost.h
// counts, unless shares are so uneven that this would deadlock: then it goes
// backward earlier.
//
// `placement` has passed the simulator's checks.
// Errors: InvalidArgument  MakeSchedule's; a schedule that is not made for
//                          replicas.
absl::StatusOr<Program> MakeProgram(const Placement& placement,
                                    const ProgramRequest& request);

}  // namespace paceline

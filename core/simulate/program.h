// Turns the placement into workers with instruction lists, and counts the
// seconds and bytes of its stages.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"
#include "core/simulate/simulation.h"

namespace paceline {

// One worker of one stage.
struct ReplicaWork {
  int stage = 0;
  std::vector<int> micro_batches;  // ascending
  int in_flight = 1;  // forwards ahead of their backwards, at least 1
};

// The order of each worker: forward while fewer than its in_flight are on their
// way, else backward; forwards and backwards each in ascending order.
//
// Found by a dry run, so that it cannot deadlock: where everyone would wait,
// the lowest micro-batch that could go backward does so out of turn.  It always
// exists: of the lowest micro-batch that is not done everywhere, all lower ones
// are done, so it is the next of its worker, forward or backward.
//
//   workers    any order; each (stage, micro-batch) belongs to one of them
// O(stages x micro-batches), and O(workers) for each time out of turn.
// Returns [workers].
std::vector<InstructionList> OrderReplicas(
    const std::vector<ReplicaWork>& workers, int stages, int micro_batches,
    bool training);

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

// Without replicas MakeSchedule's lists; of an asynchronous schedule one for
// all steps, since there is no flush between them.  With replicas each runs its
// own micro-batches in ascending order; under 1f1b a replica has at most
// ceil(devices of later stages / replicas) + 1 in flight, as core/plan/cost.h
// counts, unless shares are so uneven that this would deadlock: then it goes
// backward earlier.
//
// All but the lists, of one step; replicas, route: [stages].
Program ProgramOfReplicas(const std::vector<int>& replicas,
                          std::vector<RouteTable> route, int micro_batches,
                          bool training);

// The lists of one step on stages of which some have replicas; `program` has
// all but these.
// Errors: as MakeProgram
absl::StatusOr<std::vector<InstructionList>> ListsOfReplicas(
    const Program& program, absl::string_view schedule);

// `placement` has passed the simulator's checks.
// Errors: InvalidArgument  MakeSchedule's; a schedule that is not made for
//                          replicas.
absl::StatusOr<Program> MakeProgram(const PlanProblem& problem,
                                    const Placement& placement,
                                    const SimulationOptions& options);

struct StageWork {
  double output_bytes = 0;     // of a frame to the next stage, and back
  double kept_bytes = 0;       // of a micro-batch; 0 without training
  double parameter_bytes = 0;  // one copy
  // The parameters, always there, and of one segment (StageAmounts::once).
  double fixed_bytes = 0;
  // A backward in halves keeps the gradient of each layer's output between
  // them.
  double split_bytes = 0;
  // [replicas], of a micro-batch.  Where a device was measured, its seconds are
  // split as the layer's own are.
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // Its first half, I, takes half the time of a layer with parameters and all
  // of another's.
  std::vector<double> input_seconds;
  std::vector<double> optimizer_seconds;  // of an update
};

// optimizer_seconds: [stages], on a device of speed 1; empty: none.
std::vector<StageWork> WeighStages(
    const PlanProblem& problem, const Placement& placement,
    const std::vector<double>& optimizer_seconds);

}  // namespace paceline

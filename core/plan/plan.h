// Which layers form which stage, and who holds it.  Values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/inputs.h"
#include "core/plan/layer_range.h"

namespace paceline {

struct StageOfPlan {
  LayerRange layers;
  WorkerId worker;
};

struct Plan {
  std::vector<StageOfPlan> stages;
  std::string why;  // for people
};

// A worker as the planner sees it.
struct PlannerWorker {
  WorkerId worker;
  std::string name;
  int64_t memory_bytes = 0;  // 0: not known, no bound
  std::string machine_id;
};

// `equal`: stages whose layer counts differ by at most one, the longer ones
// first.
// Errors: InvalidArgument  fewer layers than stages, or stages < 1.
absl::StatusOr<std::vector<LayerRange>> CutEqually(int layers, int stages);

// cuts: first layers of stages 1, 2, ...; ascending, inside (0, layers).
// Errors: InvalidArgument  names the cut that is not.
absl::StatusOr<std::vector<LayerRange>> CutAt(int layers,
                                              const std::vector<int>& cuts);

// Bytes that a worker needs to train `ranges` of a model: parameters, summed
// gradients, optimizer state, the activations of the micro-batches in flight,
// and for each boundary of a range an activation and a gradient on their way.
// LibTorch itself and its scratch memory are not counted.  INT64_MAX when the
// sum does not fit.
//
// micro_batches_kept: one for each range, from ScheduleBounds.
int64_t EstimateBytes(const ModelDescription& model, const TrainSpec& train,
                      const std::vector<LayerRange>& ranges,
                      const std::vector<int>& micro_batches_kept);

// Places spec.pipeline on `workers`.  Same arguments, same plan.
//
// pipeline.cuts, when given, decide over everything else: their stages go to
// the workers in the order given.  Else pipeline.policy cuts and places, from
// what was measured (inputs.h), with one worker a stage; pipeline.stages 0
// lets it choose how many, and so whom to leave out.  With fewer workers than
// stages, the layers are cut equally and neighbouring stages share a worker;
// the stages of two workers differ by at most one, the first ones have more.
//
// Errors:
//   InvalidArgument    the spec asks for what no mesh could do: more stages
//                      than layers, bad cuts, sizes below 1, no such schedule
//                      or policy
//   FailedPrecondition no workers
//   ResourceExhausted  a worker has less memory than its stages need: says
//                      which, and both numbers
absl::StatusOr<Plan> MakePlan(const JobSpec& spec,
                              const ModelDescription& model,
                              const std::vector<PlannerWorker>& workers,
                              const Measurements& measurements = {});

// Whether MakePlan could succeed on `workers`, without the time that a good
// plan takes.  Errors: as MakePlan.
absl::Status CheckPlannable(const JobSpec& spec, const ModelDescription& model,
                            const std::vector<PlannerWorker>& workers,
                            const Measurements& measurements = {});

}  // namespace paceline

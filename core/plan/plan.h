// A plan: the layers of each stage and the worker that holds it.  Values and
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/inputs.h"
#include "core/plan/problem.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"

namespace paceline {

// One worker's part in a stage.  Neighbours in a list with the same layers are
// replicas of one stage.
struct StageOfPlan {
  LayerRange layers;
  WorkerId worker;
  double share = 1;  // of the stage's micro-batches
};

// Returns each entry's stage number, counted from 0: [stages.size()].
std::vector<int> StageNumbers(const std::vector<StageOfPlan>& stages);

// Returns the routes of every stage, by the shares of its replicas.
std::vector<RouteTable> RoutesOf(const std::vector<StageOfPlan>& stages);

// The bytes that a worker of a plan is predicted to need: EstimateBytes(), and
// DataBytes() if it reads the data.
struct WorkerBytes {
  WorkerId worker;
  int64_t bytes = 0;
};

struct Plan {
  std::vector<StageOfPlan> stages;
  std::string why;  // for people
  std::vector<WorkerBytes> memory = {};
  // The policy has proved that no plan on these workers is better.
  bool exact = false;
};

// Returns a worker's bytes in plan.memory; 0 where the plan does not list it.
int64_t BytesOn(const Plan& plan, WorkerId worker);

// A worker as the planner sees it.
struct PlannerWorker {
  WorkerId worker;
  std::string name;
  int64_t memory_bytes = 0;  // 0: not known, no bound
  std::string machine_id;
  double slowness = 1;  // as InputWorker::slowness
};

// Cuts into stages whose layer counts differ by at most one, the longer ones
// first.
// Errors: InvalidArgument  fewer layers than stages, or stages < 1.
absl::StatusOr<std::vector<LayerRange>> CutEqually(int layers, int stages);

// cuts: first layers of stages 1, 2, ...; ascending, inside (0, layers).
// Errors: InvalidArgument  a cut is out of order or range: the error names it.
absl::StatusOr<std::vector<LayerRange>> CutAt(int layers,
                                              const std::vector<int>& cuts);

// The most that a stage keeps at a time: ScheduleBounds of one stage.
struct StageKeeps {
  int micro_batches = 0;  // from forward to backward
  int split = 0;          // of these, between the halves of their backward
  int versions = 1;       // of the parameters
};

// A stage of an inference job keeps only its parameters and frames.
inline constexpr StageKeeps kInferenceKeeps = {0, 0, 0};

// Returns the entry of each stage of `bounds`.
std::vector<StageKeeps> KeepsOfStages(const ScheduleBounds& bounds);

// Returns an entry for each worker of a training job whose stages have several
// workers, by the order of micro-batches in core/simulate/program.h.
// Neighbours with the same layers are replicas.
std::vector<StageKeeps> KeepsOfReplicas(const JobSpec& spec,
                                        const std::vector<LayerRange>& stages);

// Returns the bytes that a worker needs to train `ranges` of a model:
// parameters, summed gradients, optimizer state, older versions of the
// parameters, the activations of the micro-batches in flight, the gradients of
// layers' outputs that wait for the second half of a backward, and for each
// boundary of a range an activation and a gradient in transit.  The memory of
// LibTorch itself and its scratch memory are not counted.  INT64_MAX when the
// sum does not fit.
//
// With train.activation_checkpointing, each micro-batch in flight keeps only
// the inputs of segments; one micro-batch also has all activations of the
// largest segment.  bf16 halves the activations, keeps layers' inputs twice,
// and adds a copy of the parameters in two bytes each.
//
// A teacher (train.distill) adds its weights and one layer's activations.
//
// keeps: one for each range.
int64_t EstimateBytes(const ModelDescription& model, const TrainSpec& train,
                      const std::vector<LayerRange>& ranges,
                      const std::vector<StageKeeps>& keeps,
                      Precision precision = Precision::kF32);

// Says why a policy gives each stage of a training job one worker even where
// pipeline.replicate allows several; empty: it may give several.
std::string WhyNoReplicas(const JobSpec& spec, const ModelDescription& model,
                          int64_t workers);

// Places spec.pipeline on `workers`.  Same arguments, same plan.
//
// pipeline.cuts, when given, override everything else: their stages go to the
// workers that pipeline.workers names, or are dealt out in order.  Without
// cuts, pipeline.policy cuts and places by the measurements (inputs.h), with
// one worker a stage; with pipeline.stages 0 it also chooses the number of
// stages, and so which workers to leave out.  With fewer workers than stages,
// neighbouring stages share a worker: the policy gives every worker a range of
// layers, and CutFurther() (cut.h) cuts these ranges into stages.  Three cases
// are dealt out in order instead: `equal`, cuts of the job's own, and plans for
// which memory allows nothing else.  Then the numbers of stages of two workers
// differ by at most one, and the first workers have more.
//
// When a worker lacks the memory for the stages dealt to it, another worker
// gets them.  When no order of the workers fits, the planner tries again on
// those with the most memory, with fewer of them each time, and `why` says so.
// It never drops workers that the job names.
//
// interleaved-1f1b uses as many workers as can have the same number of stages
// each, at least two where there are two stages.  Stages are dealt out in turn,
// and cut so that the longest takes least (pipeline.policy is not used).
// pipedream never puts two stages on a worker.
//
// Errors:
//   InvalidArgument    no mesh could run the spec: more stages than layers, bad
//                      cuts, sizes below 1, no such schedule or policy, a
//                      number of micro-batches that the schedule does not
//                      support; pipedream with fewer workers than stages
//   FailedPrecondition no workers, or not those that the job names
//   ResourceExhausted  a worker has less memory than its stages need: names the
//                      worker, both numbers, and the plan that would fit if the
//                      job did not say how to cut
absl::StatusOr<Plan> MakePlan(const JobSpec& spec,
                              const ModelDescription& model,
                              const std::vector<PlannerWorker>& workers,
                              const Measurements& measurements = {});

// Checks whether MakePlan could succeed on `workers`, without the time that a
// good plan takes.  Errors: as MakePlan.
absl::Status CheckPlannable(const JobSpec& spec, const ModelDescription& model,
                            const std::vector<PlannerWorker>& workers,
                            const Measurements& measurements = {});

}  // namespace paceline

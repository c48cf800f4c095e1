// Which layers form which stage, and who holds it.  Values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/model/precision.h"
#include "core/plan/inputs.h"
#include "core/plan/problem.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"

namespace paceline {

// Neighbours in a list with the same layers are one stage's replicas.
struct StageOfPlan {
  LayerRange layers;
  WorkerId worker;
  double share = 1;  // of the stage's micro-batches
};

// [stages.size()]: which stage each of them belongs to.
std::vector<int> StageNumbers(const std::vector<StageOfPlan>& stages);

// Returns the routes of every stage, by the shares of its replicas.
std::vector<RouteTable> RoutesOf(const std::vector<StageOfPlan>& stages);

// A worker of a plan is predicted to need so much, by EstimateBytes(); one that
// reads the data, DataBytes() more.
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

// Returns a worker's bytes in plan.memory; 0 where it does not say.
int64_t BytesOn(const Plan& plan, WorkerId worker);

// A worker as the planner sees it.
struct PlannerWorker {
  WorkerId worker;
  std::string name;
  int64_t memory_bytes = 0;  // 0: not known, no bound
  std::string machine_id;
  double slowness = 1;  // as InputWorker::slowness
};

// `equal`: stages whose layer counts differ by at most one, the longer ones
// first.
// Errors: InvalidArgument  fewer layers than stages, or stages < 1.
absl::StatusOr<std::vector<LayerRange>> CutEqually(int layers, int stages);

// cuts: first layers of stages 1, 2, ...; ascending, inside (0, layers).
// Errors: InvalidArgument  names the cut that is not.
absl::StatusOr<std::vector<LayerRange>> CutAt(int layers,
                                              const std::vector<int>& cuts);

// A stage keeps at most so much at a time: ScheduleBounds of one stage.
struct StageKeeps {
  int micro_batches = 0;  // from forward to backward
  int split = 0;          // of these, between the halves of their backward
  int versions = 1;       // of the parameters
};

// The entry of each stage of `bounds`.
// Of an inference job: the parameters, and frames.
inline constexpr StageKeeps kInferenceKeeps = {0, 0, 0};

std::vector<StageKeeps> KeepsOfStages(const ScheduleBounds& bounds);

// Where stages of a job that trains have several workers: of each worker, as
// core/simulate/program.h orders its micro-batches.  Neighbours with the same
// layers are replicas.
std::vector<StageKeeps> KeepsOfReplicas(const JobSpec& spec,
                                        const std::vector<LayerRange>& stages);

// Bytes that a worker needs to train `ranges` of a model: parameters, summed
// gradients, optimizer state, older versions of the parameters, the activations
// of the micro-batches in flight, the gradients of layers' outputs that wait
// for the second half of a backward, and for each boundary of a range an
// activation and a gradient on their way. LibTorch itself and its scratch
// memory are not counted.  INT64_MAX when the sum does not fit.
//
// With train.activation_checkpointing, of each micro-batch in flight the inputs
// of segments, and besides all of one segment, the largest, of one micro-batch.
// bf16: half of the activations but layers' inputs, which are kept twice, and a
// copy of the parameters in two bytes each.
//
// A teacher (train.distill) has its weights and one layer's activations
// besides.
//
// keeps: one for each range.
int64_t EstimateBytes(const ModelDescription& model, const TrainSpec& train,
                      const std::vector<LayerRange>& ranges,
                      const std::vector<StageKeeps>& keeps,
                      Precision precision = Precision::kF32);

// Says why a policy gives no stage of a job that trains to several of so many
// workers, even where pipeline.replicate allows it; empty: it may.
std::string WhyNoReplicas(const JobSpec& spec, const ModelDescription& model,
                          int64_t workers);

// Places spec.pipeline on `workers`.  Same arguments, same plan.
//
// pipeline.cuts, when given, decide over everything else: their stages go to
// the workers that pipeline.workers names, or are dealt out in order.  Else
// pipeline.policy cuts and places, from what was measured (inputs.h), with one
// worker a stage; pipeline.stages 0 lets it choose how many, and so whom to
// leave out.  With fewer workers than stages, neighbouring stages share a
// worker: the policy cuts and places what each of the workers, all of them,
// computes, and that is cut further into stages (cut_further.h).  `equal`, and
// stages that the job cuts itself, are dealt out in order instead: the stages
// of two workers differ by at most one, the first ones have more; so they are
// where memory allows only that.
//
// Stages that are dealt out go to other workers where those whose turn it is
// lack the memory.  Where no order of the workers fits, the job is planned
// again on those with the most memory, with fewer of them each time, and `why`
// says so; workers that the job names stay.
//
// interleaved-1f1b: as many workers as have the same number of stages each, at
// least two where there are two stages; stages are dealt out in turn, and cut
// so that the longest takes least (pipeline.policy is not asked).  pipedream:
// never two stages on a worker.
//
// Errors:
//   InvalidArgument    the spec asks for what no mesh could do: more stages
//                      than layers, bad cuts, sizes below 1, no such schedule
//                      or policy, micro-batches that the schedule is not made
//                      for; pipedream with fewer workers than stages
//   FailedPrecondition no workers, or not those that the job names
//   ResourceExhausted  a worker has less memory than its stages need: says
//                      which, both numbers, and what would fit if the job did
//                      not say how to cut
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

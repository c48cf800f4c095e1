// Functions that read a worker's part out of its order.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/cluster/run_order.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "worker/pipeline/link.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/pipeline/stage_runner.h"

namespace paceline {

// The pipeline as `self` sees it: of replicated stages one worker, which is
// `self` where it is a replica.  Numbers these workers in order of their first
// stage: the result has one entry a stage, as ScheduleRequest::worker_of wants
// it.
std::vector<int> WorkerIndexOfStage(const RunOrder& order, WorkerId self);

// Stages of the plan that `self` holds, ascending.
std::vector<int> StagesOf(const RunOrder& order, WorkerId self);

// The parameters that two layers of the model share, and the stages of these.
std::vector<Tie> TiesOf(const RunOrder& order, const ModelDescription& model);

// Options for the interpreter and for the engine of one stage.  The order has
// passed CheckOrder; `self` holds a stage.
StageRunnerOptions RunnerOptions(const RunOrder& order,
                                 const ModelDescription& model, WorkerId self);
EngineOptions EngineOptionsOf(const RunOrder& order,
                              const ModelDescription& model, int stage);

// Returns `self`'s turns in its stage: all of them if it shares no stage.
Turns TurnsOf(const RunOrder& order, WorkerId self);

// Checks the spec of an order, to run or to measure layers.  The coordinator
// did so when it was submitted, and all that computes trusts it.
//
// Errors: InvalidArgument  the first of what CheckJobSpec() found
absl::Status CheckSpecOfOrder(const JobSpec& spec);

// Checks what the coordinator could have sent wrong: stages that do not cover
// the model's layers, none for `self`, no threads, a schedule without a flush
// over a cut between two layers that share a parameter, replicas of different
// layers, without a route, or of a stage that shares a parameter with another.
absl::Status CheckOrder(const RunOrder& order, const ModelDescription& model,
                        WorkerId self);

// The same for an order with a round group: one stage that holds the whole
// model, and this worker among those who may take part.  Returns which of them
// it is.
absl::StatusOr<MemberId> CheckGroupOrder(const RunOrder& order,
                                         const ModelDescription& model,
                                         WorkerId self);

// The data plane's part of an order that CheckOrder accepted.  Its bounds are
// those that the checker proves for one batch, doubled for activations so that
// a forward-only batch may start while the one before still travels.
absl::StatusOr<RunWiring> MakeRunWiring(const RunOrder& order,
                                        const ModelDescription& model,
                                        WorkerId self);

// Predicts, as the planner does, the most bytes of tensors that the worker's
// stages take.
absl::StatusOr<int64_t> PredictBytes(const RunOrder& order,
                                     const ModelDescription& model,
                                     WorkerId self);

// The same once the data is open, of which `data_bytes` are kept.
// Errors: ResourceExhausted  more than `memory_bytes`; 0: not known
absl::StatusOr<int64_t> PredictWithData(int64_t predicted_bytes,
                                        const JobSpec& spec, int64_t data_bytes,
                                        int64_t memory_bytes);

// Bytes that results of rounds may take that wait for the compute thread,
// beyond those that are predicted: half of what is left of `memory_bytes` (0:
// not known), at most 256 MiB.
size_t UnappliedBytes(int64_t memory_bytes, int64_t predicted_bytes);

}  // namespace paceline

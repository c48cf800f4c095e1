// Estimates the time of a run: simulates its plan with what was measured.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/cost.h"
#include "core/plan/inputs.h"
#include "core/simulate/simulation.h"

namespace paceline {

// A stage of a run and its worker; neighbours with the same layers are
// replicas.
struct EstimateStage {
  LayerRange layers;
  int worker = 0;    // index into the workers
  double share = 1;  // of the stage's micro-batches, in any unit
};

struct RunEstimate {
  // Inference: of all micro-batches; 0 where their number is not known.
  double step_seconds = 0;
  double samples_per_second = 0;
  double bubble_share = 0;
  // By the stages given: forward and backward of a micro-batch, as the clock
  // will show it.
  std::vector<double> stage_seconds;
  // By the stages given, for a micro-batch: the measured (or predicted) time of
  // their layers, at the worker's share of a core; with the update where every
  // micro-batch has one.  Nothing that a pipeline adds, such as frames.
  std::vector<double> layer_seconds;
  std::string bound;      // what sets the pace, for people; empty: not known
  std::string source;     // PlanInputs::source
  bool measured = false;  // PlanInputs::measured
  // A round group's; why: empty where the job itself gives the number.
  int shards = 0;
  std::string shards_why;
};

// The stages in this order, with replicas grouped and their shares together 1.
Placement PlacementOf(const std::vector<EstimateStage>& stages);

// Simulates some steps of the job; the micro-batches of very long steps are
// not all simulated but carried on at the rate of the last ones.
//
// Errors: InvalidArgument  as Simulate
absl::StatusOr<RunEstimate> EstimateRun(
    const JobSpec& spec, const ModelDescription& model,
    const std::vector<EstimateStage>& stages,
    const std::vector<InputWorker>& workers, const Measurements& measurements);

// The simulator's options for a placement of what `inputs` describe; changes
// inputs.problem from a planner's view to a simulator's: where a quota stops a
// device, its times become CPU times at full speed, and the quota is simulated.
SimulationOptions OptionsFor(const JobSpec& spec, const Placement& placement,
                             PlanInputs& inputs);

}  // namespace paceline

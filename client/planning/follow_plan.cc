#include "client/planning/follow_plan.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "core/simulate/estimate.h"

namespace paceline {
namespace {

// A plan for a mesh knows its devices; that of a profile file or a playground
// may have made them up.
bool IsOfAMesh(const PlanFile& plan) { return !plan.facts.empty(); }

absl::Status HasReplicas(const std::string& name, const PlanFile& plan,
                         size_t stage, const JobSpec& spec) {
  std::vector<std::string> workers;
  for (const int device : plan.placement[stage].devices) {
    workers.push_back(Printable(plan.problem.devices[device].name));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--plan ", name, ": stage ", stage, " has ", workers.size(),
      " replicas (", absl::StrJoin(workers, ", "), "): ",
      IsInference(spec)
          ? "a job has one worker for each stage"
          : "replicas train with the rolling server only, which is not there "
            "yet",
      "; make the plan again with 'paceline plan ... --no-replicas'"));
}

}  // namespace

absl::StatusOr<std::string> FollowPlan(const std::string& name,
                                       const PlanFile& plan, JobSpec& spec) {
  const std::string model =
      ModelKey(spec.model, spec.data.shape, spec.data.classes);
  if (plan.model != model) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--plan ", name, " is of ",
        plan.model.empty() ? "no model of ours" : Printable(plan.model),
        ", the job is of ", model, ": make one with 'paceline plan -f'"));
  }
  if (!spec.pipeline.cuts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--plan ", name,
        " cuts the model, and so does the job's pipeline.cuts: leave one "
        "out"));
  }
  std::vector<int32_t> cuts;
  std::vector<std::string> workers;
  for (size_t s = 0; s < plan.placement.size(); ++s) {
    const PlacedStage& stage = plan.placement[s];
    if (stage.devices.size() > 1) return HasReplicas(name, plan, s, spec);
    if (s > 0) cuts.push_back(stage.layers.first);
    workers.push_back(plan.problem.devices[stage.devices.front()].name);
  }
  spec.pipeline.cuts = std::move(cuts);
  spec.pipeline.stages = static_cast<int32_t>(plan.placement.size());
  if (!IsOfAMesh(plan)) {
    return absl::StrCat("--plan ", name,
                        " was not made for a mesh: of it only the cuts are "
                        "followed, and stages go to the workers in the order "
                        "of 'node list'");
  }
  spec.pipeline.workers = std::move(workers);
  return "";
}

SimulatedPlan SimulationOf(const PlanFile& plan) {
  SimulatedPlan simulated;
  simulated.placement = plan.placement;
  if (plan.facts.empty()) {
    simulated.problem = plan.problem;
    simulated.options.schedule = plan.schedule;
    simulated.options.micro_batch_samples = plan.micro_batch;
    return simulated;
  }
  JobSpec spec;
  spec.pipeline.schedule = plan.schedule;
  spec.train.micro_batch = plan.micro_batch;
  PlanInputs inputs;
  inputs.problem = plan.problem;
  inputs.facts = plan.facts;
  simulated.options = OptionsFor(spec, plan.placement, inputs);
  simulated.problem = std::move(inputs.problem);
  simulated.planned = plan.problem;
  return simulated;
}

}  // namespace paceline

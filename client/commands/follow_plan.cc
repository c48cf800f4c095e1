#include "client/commands/follow_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"
#include "core/model/description.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "core/simulate/estimate.h"

namespace paceline {
namespace {

// A plan for a mesh knows its devices; that of a profile file or of simulated
// machines may have made them up.
bool IsOfAMesh(const PlanFile& plan) { return !plan.facts.empty(); }

absl::Status HasReplicas(const std::string& name, const PlanFile& plan,
                         size_t stage, const JobSpec& spec) {
  std::vector<std::string> workers;
  for (const int device : plan.placement[stage].devices) {
    workers.push_back(Printable(plan.problem.devices[device].name));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--plan ", name, ": stage ", stage, " has ", workers.size(),
      " replicas (", absl::StrJoin(workers, ", "),
      IsInference(spec)
          ? "), but was not made for a mesh, whose workers would hold them"
          : "): replicas train with the rolling server only, which is not "
            "there "
            "yet",
      "; make the plan again with 'paceline plan ... --no-replicas'"));
}

// With a plan's cuts a job is another one than that which was checked.
// known: what was wrong before.
absl::Status CheckCuts(const std::string& name,
                       const std::vector<SpecProblem>& known,
                       const JobSpec& spec) {
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    const bool is_old =
        std::any_of(known.begin(), known.end(), [&](const SpecProblem& old) {
          return old.path == problem.path && old.why == problem.why;
        });
    if (is_old) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--plan ", name, " has cuts [", absl::StrJoin(spec.pipeline.cuts, ", "),
        "]: ", problem.path, " ", problem.why));
  }
  return absl::OkStatus();
}

// Says which shared layers a fresh plan of the job would count and this plan
// does not; empty where there are none.
absl::StatusOr<std::string> UncountedTies(const std::string& name,
                                          const PlanFile& plan,
                                          const JobSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  if (plan.problem.layers.size() != model.layers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--plan ", name, " is of ", plan.problem.layers.size(),
                     " layers, the job's model has ", model.layers.size(),
                     ": make one with 'paceline plan -f'"));
  }
  std::string text;
  if (IsInference(spec)) return text;
  for (const TieCost& tie : TiesOf(model)) {
    const std::vector<TieCost>& counted = plan.problem.ties;
    if (std::find(counted.begin(), counted.end(), tie) != counted.end()) {
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "" : "; ", "--plan ", name,
                    " does not count what layers ", tie.owner, " and ",
                    tie.user,
                    " send each other, as they share parameters: "
                    "plan again to have that counted");
  }
  return text;
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
  std::vector<int32_t> replicas;
  std::vector<double> shares;
  for (size_t s = 0; s < plan.placement.size(); ++s) {
    const PlacedStage& stage = plan.placement[s];
    if (stage.devices.size() > 1 && !(IsInference(spec) && IsOfAMesh(plan))) {
      return HasReplicas(name, plan, s, spec);
    }
    if (s > 0) cuts.push_back(stage.layers.first);
    replicas.push_back(static_cast<int32_t>(stage.devices.size()));
    for (const int device : stage.devices) {
      workers.push_back(plan.problem.devices[device].name);
    }
    shares.insert(shares.end(), stage.shares.begin(), stage.shares.end());
  }
  const bool shared = workers.size() > plan.placement.size();
  const std::vector<SpecProblem> known = CheckJobSpec(spec);
  spec.pipeline.cuts = std::move(cuts);
  spec.pipeline.stages = static_cast<int32_t>(plan.placement.size());
  PACELINE_RETURN_IF_ERROR(CheckCuts(name, known, spec));
  PACELINE_ASSIGN_OR_RETURN(const std::string ties,
                            UncountedTies(name, plan, spec));
  if (!IsOfAMesh(plan)) {
    return absl::StrCat(ties, ties.empty() ? "" : "; ", "--plan ", name,
                        " was not made for a mesh: of it only the cuts are "
                        "followed, and stages go to the workers in the order "
                        "of 'node list'");
  }
  spec.pipeline.workers = std::move(workers);
  if (shared) {
    spec.pipeline.replicas = std::move(replicas);
    spec.pipeline.shares = std::move(shares);
  }
  return ties;
}

std::vector<std::string> KeysOfAPlan(const std::vector<std::string>& sets) {
  std::vector<std::string> decided;
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    if (key == "pipeline.stages" || key == "pipeline.policy") {
      decided.push_back(key);
    }
  }
  return decided;
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

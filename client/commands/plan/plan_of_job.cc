#include "client/commands/plan/plan_of_job.h"

#include <cstddef>
#include <iterator>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/base/status_macros.h"
#include "core/plan/cost.h"
#include "core/plan/plan.h"
#include "core/schedule/traits.h"

namespace paceline {
namespace {

// Neighbouring stages on one device count as one run of layers: cutting it
// further changes nothing of what the device computes.
absl::StatusOr<PlanAnswer> AnswerForStages(PlanProblem problem,
                                           const Placement& stages) {
  Placement runs;
  std::vector<size_t> run_of;  // [stages]
  for (const PlacedStage& stage : stages) {
    if (runs.empty() || runs.back().devices != stage.devices) {
      runs.push_back(stage);
    }
    runs.back().layers.last = stage.layers.last;
    run_of.push_back(runs.size() - 1);
  }
  if (runs.size() == stages.size()) return AnswerFor(problem, stages);
  problem.stages = 0;
  PACELINE_ASSIGN_OR_RETURN(PlanAnswer answer, AnswerFor(problem, runs));
  const PlacementCost of_runs = answer.cost;
  answer.placement = stages;
  answer.cost.stage_seconds.clear();
  answer.cost.transfer_seconds.clear();
  for (size_t s = 0; s < stages.size(); ++s) {
    const size_t run = run_of[s];
    const int device = stages[s].devices.front();
    const double all = LayerSeconds(problem, runs[run].layers, device);
    const double mine = LayerSeconds(problem, stages[s].layers, device);
    answer.cost.stage_seconds.push_back(
        all > 0 ? of_runs.stage_seconds[run] * mine / all : 0);
    if (s == 0) continue;
    const bool crosses = run_of[s - 1] != run;
    answer.cost.transfer_seconds.push_back(
        crosses ? of_runs.transfer_seconds[run - 1] : 0);
  }
  return answer;
}

// From stages whose workers are numbered as devices, from 1.
Placement AsPlacement(const std::vector<StageOfPlan>& stages) {
  Placement placement;
  for (const StageOfPlan& stage : stages) {
    if (placement.empty() || placement.back().layers != stage.layers) {
      placement.push_back({stage.layers, {}, {}});
    }
    PlacedStage& placed = placement.back();
    const auto device = static_cast<int>(stage.worker.value - 1);
    const auto at =
        absl::c_lower_bound(placed.devices, device) - placed.devices.begin();
    placed.devices.insert(placed.devices.begin() + at, device);
    placed.shares.insert(placed.shares.begin() + at, stage.share);
  }
  for (PlacedStage& placed : placement) {
    const double sum = absl::c_accumulate(placed.shares, 0.0);
    for (double& share : placed.shares) share /= sum;
  }
  return placement;
}

}  // namespace

absl::StatusOr<PlanAnswer> AnswerOfJob(const std::string& policy,
                                       const PlanQuestion& question,
                                       const PlanOptions& options) {
  const MeshJob& job = *question.job;
  JobSpec spec = job.spec;
  PipelineSpec& pipeline = spec.pipeline;
  if (!policy.empty()) {
    pipeline.policy = policy;
    pipeline.cuts.clear();
    pipeline.workers.clear();
    pipeline.replicas.clear();
    pipeline.shares.clear();
  }
  if (options.stages.has_value()) pipeline.stages = *options.stages;
  if (options.replicas) pipeline.replicate = "allowed";
  if (options.no_replicas) pipeline.replicate = "never";
  // Costs are of one run of layers a worker, where nothing is interleaved.
  if (ScheduleTraitsOf(pipeline.schedule).deals) pipeline.schedule = "1f1b";
  std::vector<PlannerWorker> workers;
  for (const MemberInput& member : job.workers) {
    const InputWorker& worker = member.worker;
    workers.push_back({WorkerId{std::ssize(workers) + 1}, worker.name,
                       worker.memory_bytes, worker.machine_id});
  }
  PACELINE_ASSIGN_OR_RETURN(
      const Plan plan, MakePlan(spec, job.model, workers, job.measurements));
  PACELINE_ASSIGN_OR_RETURN(
      PlanAnswer answer,
      AnswerForStages(question.inputs.problem, AsPlacement(plan.stages)));
  answer.exact = answer.exact || plan.exact;
  answer.why = plan.why;
  for (const auto& [worker, bytes] : plan.memory) {
    answer.cost.memory_bytes[worker.value - 1] =
        static_cast<double>(bytes) + options.reserve_bytes;
  }
  return answer;
}

}  // namespace paceline

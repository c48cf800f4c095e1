#include "core/plan/shared_plan.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/counted.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"
#include "core/plan/cost.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/plan/stage_memory.h"

namespace paceline {
namespace {

// Gives each holder all it has as one stage.
Placement RunsOf(const SharedStages& shared) {
  Placement runs;
  for (size_t s = 0; s < shared.stages.size(); ++s) {
    const auto holder = static_cast<size_t>(shared.holder_of[s]);
    if (holder == runs.size()) {
      runs.push_back({shared.stages[s], {shared.holder_of[s]}, {1}});
    }
    runs.back().layers.last = shared.stages[s].last;
  }
  return runs;
}

std::string HoldersText(const PlanProblem& problem,
                        const Placement& placement) {
  std::string text;
  for (size_t s = 0; s < placement.size();) {
    const int device = placement[s].devices.front();
    size_t end = s + 1;
    while (end < placement.size() && placement[end].devices.front() == device) {
      ++end;
    }
    absl::StrAppend(&text, s == 0 ? "" : ", ", problem.devices[device].name,
                    end - s == 1 ? " holds stage " : " holds stages ", s);
    if (end - s > 1) absl::StrAppend(&text, "..", end - 1);
    s = end;
  }
  return text;
}

// Each counts its stages after it and before it, whoever holds them.
absl::Status PutMemory(const PlanProblem& problem, PlanAnswer& answer) {
  const int stages = static_cast<int>(answer.placement.size());
  std::vector<double>& memory = answer.cost.memory_bytes;
  memory.assign(problem.devices.size(), 0);
  for (int s = 0; s < stages; ++s) {
    const PlacedStage& stage = answer.placement[s];
    double& bytes = memory[stage.devices.front()];
    // A reserve is a device's, not a stage's.
    if (bytes > 0) bytes -= problem.reserved_bytes;
    bytes += StageBytes(problem, stage.layers, {1, s, stages - 1 - s});
  }
  for (size_t d = 0; d < memory.size(); ++d) {
    const Device& device = problem.devices[d];
    if (device.memory_bytes == 0 || memory[d] <= device.memory_bytes) continue;
    return ResourceExhausted(
        "device ", device.name, " has ", BytesTextOfSum(device.memory_bytes),
        ", its stages together need ", BytesTextOfSum(memory[d]), ": ",
        BytesTextOfSum(memory[d] - device.memory_bytes),
        " too much; use more devices, fewer stages or a smaller micro-batch");
  }
  return absl::OkStatus();
}

// From an answer of runs to one of all stages.
absl::Status PutStages(const PlanProblem& problem, const Placement& runs,
                       const SharedStages& shared, PlanAnswer& answer) {
  const PlacementCost of_runs = answer.cost;
  answer.placement.clear();
  answer.cost.stage_seconds.clear();
  answer.cost.transfer_seconds.clear();
  for (size_t s = 0; s < shared.stages.size(); ++s) {
    const int run = shared.holder_of[s];
    const int device = runs[run].devices.front();
    answer.placement.push_back({shared.stages[s], {device}, {1}});
    const double all = LayerSeconds(problem, runs[run].layers, device);
    const double mine = LayerSeconds(problem, shared.stages[s], device);
    answer.cost.stage_seconds.push_back(
        all > 0 ? of_runs.stage_seconds[run] * mine / all : 0);
    if (s == 0) continue;
    const bool crosses = shared.holder_of[s - 1] != run;
    answer.cost.transfer_seconds.push_back(
        crosses ? of_runs.transfer_seconds[run - 1] : 0);
  }
  return PutMemory(problem, answer);
}

absl::Status CheckShared(const PlanProblem& problem, int stages) {
  const int layers = static_cast<int>(problem.layers.size());
  if (stages > layers) {
    return InvalidArgument(Counted(stages, "stage"), " of ",
                           Counted(layers, "layer"),
                           ": a layer cannot be cut, use fewer stages");
  }
  if (problem.stashes && problem.training) {
    return InvalidArgument("pipedream needs a worker for each stage, got ",
                           stages, " stages on ", problem.devices.size(),
                           ": use fewer stages, or pipeline.schedule 1f1b");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanAnswer> AnswerForShared(const PlanProblem& problem,
                                           const SharedStages& shared,
                                           absl::string_view why) {
  PlanProblem runs = problem;
  runs.stages = 0;
  runs.replicas = false;
  // The memory of runs is not that of their stages.
  for (Device& device : runs.devices) device.memory_bytes = 0;
  PACELINE_RETURN_IF_ERROR(CheckProblem(runs));
  PACELINE_RETURN_IF_ERROR(
      CheckShared(problem, static_cast<int>(shared.stages.size())));
  const Placement held = RunsOf(shared);
  PACELINE_ASSIGN_OR_RETURN(PlanAnswer answer, AnswerFor(runs, held));
  PACELINE_RETURN_IF_ERROR(PutStages(problem, held, shared, answer));
  answer.why = std::string(why);
  if (held.size() < shared.stages.size()) {
    absl::StrAppend(&answer.why, "; fewer workers than stages: ",
                    HoldersText(problem, answer.placement));
  }
  return answer;
}

absl::StatusOr<PlanAnswer> SolveShared(absl::string_view policy,
                                       const PlanProblem& problem, int stages,
                                       const PolicyOptions& options) {
  PlanProblem runs = problem;
  runs.stages = 0;
  runs.replicas = false;
  PACELINE_RETURN_IF_ERROR(CheckProblem(runs));
  PACELINE_RETURN_IF_ERROR(CheckShared(problem, stages));
  const int layers = static_cast<int>(problem.layers.size());
  const int devices = static_cast<int>(problem.devices.size());
  // Such stages are dealt out as those of a job.
  PACELINE_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                            CutEqually(layers, stages));
  const SharedStages equal = {ranges, SpreadStages(stages, devices)};
  if (policy == "equal") {
    return AnswerForShared(
        problem, equal, "equal: as many layers each, as many stages a worker");
  }
  runs.stages = std::min(devices, layers);
  absl::StatusOr<PlanAnswer> answer = SolvePlan(policy, runs, options);
  if (answer.ok()) {
    const Placement held = answer->placement;
    SharedStages shared = CutFurther(runs, held, stages);
    const absl::Status fits = PutStages(problem, held, shared, *answer);
    if (fits.ok()) {
      absl::StrAppend(&answer->why, " Fewer workers than stages: ",
                      HoldersText(problem, answer->placement), ".");
      return answer;
    }
    answer = fits;
  }
  if (!absl::IsResourceExhausted(answer.status())) return answer;
  absl::StatusOr<PlanAnswer> dealt = AnswerForShared(
      problem, equal,
      absl::StrCat("what ", policy, " chooses does not fit, equal stages do"));
  return dealt.ok() ? dealt : answer;
}

}  // namespace paceline

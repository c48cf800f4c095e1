#include "coordinator/dealing_note.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/schedule/traits.h"

namespace paceline {
namespace {

bool CouldTakePart(const JobSpec& spec, const Candidate& candidate) {
  const Registration& has = candidate.member->registration;
  const bool free =
      !candidate.job.assigned() && !candidate.measuring && !candidate.drained;
  const bool cores =
      has.cores == 0 || spec.threads <= kMostThreadsACore * int64_t{has.cores};
  const bool capable =
      spec.cpu_capability == "auto" ||
      CapabilityRank(has.cpu_capability) >= CapabilityRank(spec.cpu_capability);
  return free && cores && capable;
}

}  // namespace

std::string DealingNote(const JobSpec& spec, const Plan& plan,
                        const std::vector<Candidate>& candidates) {
  const PipelineSpec& pipeline = spec.pipeline;
  if (!ScheduleTraitsOf(pipeline.schedule).deals || !pipeline.workers.empty()) {
    return "";
  }
  std::set<WorkerId> used;
  for (const StageOfPlan& stage : plan.stages) used.insert(stage.worker);
  std::vector<std::string> idle;
  for (const Candidate& candidate : candidates) {
    if (used.contains(candidate.member->id)) continue;
    if (!CouldTakePart(spec, candidate)) continue;
    idle.push_back(candidate.member->registration.name);
  }
  if (idle.empty()) return "";
  const size_t all = used.size() + idle.size();
  const std::string whom = absl::StrCat(
      idle.size() == 1 ? "worker " : "workers ", absl::StrJoin(idle, ", "),
      idle.size() == 1 ? " gets" : " get", " no stage: ");
  if (pipeline.stages == 0 && pipeline.cuts.empty()) {
    return absl::StrCat(
        whom, "interleaved-1f1b wants two layers for each worker, and the ",
        "micro-batches of a batch (train.batch / train.micro_batch, ",
        spec.train.batch / spec.train.micro_batch,
        ") to be a multiple of the workers");
  }
  const int layers = plan.stages.back().layers.last;
  if (2 * static_cast<int>(all) > layers) {
    return absl::StrCat(whom,
                        "interleaved-1f1b gives each worker at least two "
                        "stages, and the model's ",
                        layers, " layers are too few for that on ", all,
                        " workers");
  }
  return absl::StrCat(
      whom, "interleaved-1f1b gives each worker as many stages, at least two, ",
      "and ", plan.stages.size(),
      plan.stages.size() == 1 ? " stage does" : " stages do",
      " not divide so among ", all, " workers; --set pipeline.stages=", 2 * all,
      " or another multiple of ", all, " has all of them work");
}

}  // namespace paceline

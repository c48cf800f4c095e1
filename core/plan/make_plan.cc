#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/plan/cut.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// The index of each stage's worker: runs whose lengths differ by at most one,
// the longer ones first.  stages, workers >= 1.
std::vector<int> SpreadStages(int stages, int workers) {
  const int used = std::min(stages, workers);
  std::vector<int> worker_of;
  for (int worker = 0; worker < used; ++worker) {
    worker_of.insert(worker_of.end(), stages / used + (worker < stages % used),
                     worker);
  }
  return worker_of;
}

// Errors: InvalidArgument  sizes below 1, or more micro-batches than a number
// of them can say.
absl::StatusOr<int> CountMicroBatches(const TrainSpec& train) {
  if (train.batch < 1 || train.micro_batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.batch is ", train.batch, ", train.micro_batch ",
                     train.micro_batch, ", both must be at least 1"));
  }
  const int64_t count = (train.batch - 1) / train.micro_batch + 1;
  if (count > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", train.batch, " in micro-batches of ", train.micro_batch,
        " has ", count, " of them: use larger micro-batches"));
  }
  return static_cast<int>(count);
}

// The stages of one worker, with what they keep.
struct Load {
  std::vector<int> stages;
  std::vector<LayerRange> ranges;
  std::vector<int> micro_batches_kept;
};

std::vector<Load> LoadsOf(const Cut& cut, const std::vector<int>& worker_of,
                          const ScheduleBounds& bounds) {
  std::vector<Load> loads(worker_of.back() + 1);
  for (size_t stage = 0; stage < worker_of.size(); ++stage) {
    Load& load = loads[worker_of[stage]];
    load.stages.push_back(static_cast<int>(stage));
    load.ranges.push_back(cut.stages[stage]);
    load.micro_batches_kept.push_back(bounds.kept_micro_batches[stage]);
  }
  return loads;
}

// "stage 2", "stages 2..3".
std::string StagesText(const std::vector<int>& stages) {
  if (stages.size() == 1) return absl::StrCat("stage ", stages.front());
  return absl::StrCat("stages ", stages.front(), "..", stages.back());
}

std::string Counted(size_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

absl::Status CheckMemory(const PlannerWorker& worker, const Load& load,
                         int64_t need_bytes) {
  if (worker.memory_bytes <= 0 || need_bytes <= worker.memory_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "worker ", worker.name, " has ", BytesText(worker.memory_bytes), " (",
      worker.memory_bytes, " bytes) of memory, its ", StagesText(load.stages),
      " would need ", BytesText(need_bytes), " (", need_bytes,
      " bytes): use more workers, a smaller train.micro_batch, or other "
      "pipeline.cuts"));
}

std::string LayerCountsText(const std::vector<LayerRange>& ranges) {
  return absl::StrJoin(ranges, "+",
                       [](std::string* out, const LayerRange& range) {
                         absl::StrAppend(out, range.last - range.first);
                       });
}

// "equal: 7 layers in 3 stages (3+2+2) on 2 workers; fewer workers than
// stages: a holds stages 0..1 (1.5 MiB), b holds stage 2 (800.0 KiB)".
std::string Explain(const Cut& cut, const ModelDescription& model,
                    const std::vector<PlannerWorker>& workers,
                    const std::vector<Load>& loads,
                    const std::vector<int64_t>& need_bytes) {
  std::string why = absl::StrCat(
      cut.why, ": ", Counted(model.layers.size(), "layer"), " in ",
      Counted(cut.stages.size(), "stage"), " (", LayerCountsText(cut.stages),
      ") on ", Counted(loads.size(), "worker"), ";");
  if (loads.size() < cut.stages.size()) {
    absl::StrAppend(&why, " fewer workers than stages:");
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    absl::StrAppend(&why, i == 0 ? " " : ", ", workers[i].name, " holds ",
                    StagesText(loads[i].stages), " (", BytesText(need_bytes[i]),
                    ")");
  }
  return why;
}

absl::StatusOr<ScheduleBounds> BoundsOf(const JobSpec& spec, int stages,
                                        const std::vector<int>& worker_of) {
  PACELINE_ASSIGN_OR_RETURN(const int micro_batches,
                            CountMicroBatches(spec.train));
  PACELINE_ASSIGN_OR_RETURN(const Schedule schedule,
                            MakeSchedule({.name = spec.pipeline.schedule,
                                          .stages = stages,
                                          .micro_batches = micro_batches,
                                          .training = true,
                                          .worker_of = worker_of}));
  return CheckSchedule(schedule);
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const JobSpec& spec,
                              const ModelDescription& model,
                              const std::vector<PlannerWorker>& workers) {
  PACELINE_ASSIGN_OR_RETURN(const Cut cut, ChooseCut(spec.pipeline, model));
  if (workers.empty()) {
    return absl::FailedPreconditionError(
        "no workers to place stages on: start one, or wait until one is back");
  }
  const int stages = static_cast<int>(cut.stages.size());
  const std::vector<int> worker_of =
      SpreadStages(stages, static_cast<int>(workers.size()));
  PACELINE_ASSIGN_OR_RETURN(const ScheduleBounds bounds,
                            BoundsOf(spec, stages, worker_of));

  const std::vector<Load> loads = LoadsOf(cut, worker_of, bounds);
  std::vector<int64_t> need_bytes;
  for (size_t i = 0; i < loads.size(); ++i) {
    need_bytes.push_back(EstimateBytes(model, spec.train, loads[i].ranges,
                                       loads[i].micro_batches_kept));
    PACELINE_RETURN_IF_ERROR(
        CheckMemory(workers[i], loads[i], need_bytes.back()));
  }

  Plan plan;
  for (int stage = 0; stage < stages; ++stage) {
    plan.stages.push_back(
        {cut.stages[stage], workers[worker_of[stage]].worker});
  }
  plan.why = Explain(cut, model, workers, loads, need_bytes);
  return plan;
}

}  // namespace paceline

#include "client/views.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace paceline {

std::string ResultName(const JobView& job) {
  return IsInference(job.spec) ? "predictions" : "weights";
}

const FlowTimes* ResultFlow(const JobView& job) {
  const int last = StageCount(job) - 1;
  for (const JobWorkerView& worker : job.workers) {
    if (!worker.flow.has_value() || worker.flow->micro_batches == 0) continue;
    for (const PlacementView& stage : worker.stages) {
      if (stage.stage == last) return &*worker.flow;
    }
  }
  return nullptr;
}

std::optional<double> TestAccuracy(const JobView& job) {
  if (job.evaluations.empty()) return std::nullopt;
  return job.evaluations.back().accuracy;
}

int StageCount(const JobView& job) {
  int stages = 0;
  for (const JobWorkerView& worker : job.workers) {
    for (const PlacementView& stage : worker.stages) {
      stages = std::max(stages, stage.stage + 1);
    }
  }
  if (stages > 0) return stages;
  if (!job.spec.pipeline.cuts.empty()) {
    return static_cast<int>(job.spec.pipeline.cuts.size()) + 1;
  }
  return job.spec.pipeline.stages;
}

std::string StagesText(int stages) {
  if (stages <= 0) return "stages not chosen yet";
  return absl::StrCat(stages, stages == 1 ? " stage" : " stages");
}

}  // namespace paceline

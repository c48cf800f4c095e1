#include "client/views.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paceline {

std::string ResultName(const JobView& job) {
  return IsInference(job.spec) ? "predictions" : "weights";
}

std::optional<FlowTimes> ResultFlow(const JobView& job) {
  const int last = StageCount(job) - 1;
  std::optional<FlowTimes> sum;
  double weighted_p50 = 0;
  for (const JobWorkerView& worker : job.workers) {
    if (!worker.flow.has_value() || worker.flow->micro_batches == 0) continue;
    const FlowTimes& flow = *worker.flow;
    for (const PlacementView& stage : worker.stages) {
      if (stage.stage != last) continue;
      weighted_p50 +=
          static_cast<double>(flow.micro_batches) * flow.latency_p50;
      if (!sum.has_value()) {
        sum = flow;
        continue;
      }
      sum->micro_batches += flow.micro_batches;
      sum->samples += flow.samples;
      sum->first_unix_us = std::min(sum->first_unix_us, flow.first_unix_us);
      sum->last_unix_us = std::max(sum->last_unix_us, flow.last_unix_us);
      sum->latency_p99 = std::max(sum->latency_p99, flow.latency_p99);
      sum->latency_max = std::max(sum->latency_max, flow.latency_max);
    }
  }
  if (sum.has_value()) {
    sum->latency_p50 = weighted_p50 / static_cast<double>(sum->micro_batches);
  }
  return sum;
}

double ShareOf(const std::vector<PlacementView>& stages, size_t i) {
  double sum = 0;
  for (const PlacementView& stage : stages) {
    if (stage.stage == stages[i].stage) sum += stage.share;
  }
  return sum > 0 ? stages[i].share / sum : 1;
}

std::string ShareText(const std::vector<PlacementView>& stages, size_t i) {
  const double share = ShareOf(stages, i);
  if (share >= 1) return "";
  return absl::StrFormat(", %.1f %% of the micro-batches", 100 * share);
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

std::string ScheduleText(const JobSpec& spec) {
  if (IsDataParallel(spec)) {
    const int32_t shards = spec.aggregation.shards;
    return absl::StrCat(
        "data parallel (", spec.aggregation.mode, ", ", spec.aggregation.rule,
        shards > 1 ? absl::StrCat(", shards: ", shards) : "", ")");
  }
  return IsInference(spec) ? "forward only" : spec.pipeline.schedule;
}

std::string StagesText(int stages) {
  if (stages <= 0) return "stages not chosen yet";
  return absl::StrCat(stages, stages == 1 ? " stage" : " stages");
}

}  // namespace paceline

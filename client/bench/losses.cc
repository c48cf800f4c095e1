#include "client/bench/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/schedule/asynchronous.h"

namespace paceline {
namespace {

// What all workers together measured.
struct Window {
  int64_t first_us = 0;
  int64_t last_us = 0;
  int64_t micro_batches = 0;
  int64_t samples = 0;
  double seconds = 0;
};

absl::StatusOr<Window> WindowOf(const JobView& job) {
  Window window;
  for (const JobWorkerView& worker : job.workers) {
    if (!worker.flow.has_value() || worker.flow->micro_batches == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", job.id, ": worker ", worker.name,
                       " has not said how its micro-batches passed"));
    }
    const FlowTimes& flow = *worker.flow;
    if (window.first_us == 0 || flow.first_unix_us < window.first_us) {
      window.first_us = flow.first_unix_us;
    }
    window.last_us = std::max(window.last_us, flow.last_unix_us);
    window.micro_batches = std::max(window.micro_batches, flow.micro_batches);
    window.samples = std::max(window.samples, flow.samples);
    window.seconds = std::max(window.seconds, flow.seconds);
  }
  // Batches of training need no common clock.
  if (IsInference(job.spec)) {
    window.seconds =
        static_cast<double>(window.last_us - window.first_us) / 1e6;
  }
  if (window.seconds <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.id, " took no time: more micro-batches are needed"));
  }
  return window;
}

std::vector<const PlacementView*> StagesInOrder(const JobView& job) {
  std::vector<const PlacementView*> stages;
  for (const JobWorkerView& worker : job.workers) {
    for (const PlacementView& stage : worker.stages) stages.push_back(&stage);
  }
  std::sort(stages.begin(), stages.end(),
            [](const PlacementView* a, const PlacementView* b) {
              return a->stage < b->stage;
            });
  return stages;
}

double ShareOf(const std::vector<CpuShare>& shares, const std::string& worker) {
  for (const CpuShare& entry : shares) {
    if (entry.worker == worker && entry.share > 0) return entry.share;
  }
  return 1;
}

// Compute that took longer than its CPU time asks for, as far as the threads
// that move frames can have taken the rest.
double Stolen(const FlowTimes& flow, double share) {
  const double longer = flow.compute - flow.compute_cpu / share;
  return std::clamp(longer, 0.0, flow.other_cpu / share);
}

}  // namespace

double PipelineBound(double one_seconds,
                     const std::vector<double>& stage_seconds,
                     const std::vector<int64_t>& worker_of,
                     double micro_batches) {
  double once = 0;
  double longest = 0;
  std::map<int64_t, double> loads;
  for (size_t i = 0; i < stage_seconds.size(); ++i) {
    once += stage_seconds[i];
    longest = std::max(longest, loads[worker_of[i]] += stage_seconds[i]);
  }
  if (longest <= 0) return 0;
  if (std::isinf(micro_batches)) return one_seconds / longest;
  return one_seconds * micro_batches / (once + (micro_batches - 1) * longest);
}

absl::StatusOr<BenchBaseline> BaselineOf(const JobView& job) {
  PACELINE_ASSIGN_OR_RETURN(const Window window, WindowOf(job));
  if (!job.estimate.has_value() || job.estimate->stage_seconds.size() != 1 ||
      job.workers.size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.id, " has no estimate of one stage to compare with"));
  }
  const auto count = static_cast<double>(window.micro_batches);
  return BenchBaseline{window.seconds / count,
                       job.workers[0].flow->data / count,
                       job.estimate->stage_seconds.front()};
}

namespace {

// Adds what the workers lost, in seconds.
BenchLosses SecondsLost(const JobView& job, const Window& window,
                        const std::vector<CpuShare>& shares) {
  BenchLosses lost;
  for (const JobWorkerView& worker : job.workers) {
    const FlowTimes& flow = *worker.flow;
    lost.fill += flow.fill;
    if (IsInference(job.spec)) {
      lost.fill += static_cast<double>(flow.first_unix_us - window.first_us +
                                       window.last_us - flow.last_unix_us) /
                   1e6;
    }
    lost.imbalance += flow.starved + flow.blocked + flow.data;
    lost.transfer +=
        flow.in_flight + Stolen(flow, ShareOf(shares, worker.name));
  }
  return lost;
}

// Micro-batches between two times at which the pipeline is empty.
double MicroBatchesTogether(const JobView& job, const Window& window) {
  if (IsInference(job.spec)) return static_cast<double>(window.micro_batches);
  if (IsAsynchronous(job.spec.pipeline.schedule)) {
    return std::numeric_limits<double>::infinity();
  }
  const TrainSpec& train = job.spec.train;
  return static_cast<double>((train.batch + train.micro_batch - 1) /
                             train.micro_batch);
}

}  // namespace

absl::StatusOr<BenchRow> RowOf(const JobView& job, const BenchBaseline& one,
                               const std::vector<CpuShare>& shares) {
  PACELINE_ASSIGN_OR_RETURN(const Window window, WindowOf(job));
  const std::vector<const PlacementView*> stages = StagesInOrder(job);
  if (!job.estimate.has_value() ||
      job.estimate->stage_seconds.size() != stages.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.id, " has no estimate of its stages"));
  }
  BenchRow row;
  row.stages = static_cast<int>(stages.size());
  row.policy = job.spec.pipeline.policy;
  if (!IsInference(job.spec)) row.schedule = job.spec.pipeline.schedule;
  row.workers = static_cast<int>(job.workers.size());
  row.plan = absl::StrJoin(
      stages, ", ", [](std::string* out, const PlacementView* stage) {
        absl::StrAppend(out, "[", stage->first_layer, ",", stage->last_layer,
                        ") ", stage->worker_name);
      });
  const auto count = static_cast<double>(window.micro_batches);
  row.seconds = window.seconds;
  row.throughput = static_cast<double>(window.samples) / row.seconds;
  row.speedup = one.seconds * count / row.seconds;
  std::vector<int64_t> worker_of;
  for (const PlacementView* stage : stages) {
    worker_of.push_back(stage->worker_id);
  }
  row.bound = PipelineBound(one.predicted, job.estimate->stage_seconds,
                            worker_of, MicroBatchesTogether(job, window));
  BenchLosses lost = SecondsLost(job, window, shares);
  // One worker waits for the loader too.
  lost.imbalance = std::max(0.0, lost.imbalance - one.data * count);
  const double all = row.seconds * row.workers;
  row.losses.fill = lost.fill / all;
  row.losses.imbalance = lost.imbalance / all;
  row.losses.transfer = lost.transfer / all;
  row.losses.unexplained = 1 - row.speedup / row.workers - row.losses.fill -
                           row.losses.imbalance - row.losses.transfer;
  const FlowTimes* const flow = ResultFlow(job);
  if (IsInference(job.spec) && flow != nullptr) {
    row.latency_p50 = flow->latency_p50;
    row.latency_p99 = flow->latency_p99;
  }
  return row;
}

}  // namespace paceline

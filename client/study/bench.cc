#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/study/study.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"

namespace paceline {

namespace {

JobSpec ForInference(JobSpec spec, const BenchOptions& options) {
  spec.kind = kInferKind;
  spec.infer.micro_batch = options.micro_batch;
  spec.infer.samples = options.micro_batch * options.micro_batches;
  spec.infer.outputs = false;
  spec.train = paceline::ForInference(spec.infer, spec.train.seed);
  spec.data.test_samples = std::max(spec.data.test_samples, spec.infer.samples);
  return spec;
}

JobSpec ForTraining(JobSpec spec, const BenchOptions& options) {
  spec.train.micro_batch = options.micro_batch;
  spec.train.batch = options.micro_batch * options.micro_batches;
  spec.train.steps = options.steps;
  spec.train.evaluate_every = 0;
  spec.data.train_samples = std::max(spec.data.train_samples, spec.train.batch);
  spec.data.test_samples = 0;
  return spec;
}

}  // namespace

JobSpec BenchSpec(JobSpec spec, const BenchOptions& options,
                  const BenchCase& one) {
  spec = options.train ? ForTraining(std::move(spec), options)
                       : ForInference(std::move(spec), options);
  spec.name =
      absl::StrCat("bench-", spec.model.name, "-", one.stages, "-", one.policy);
  spec.pipeline.schedule =
      one.schedule.empty() ? PipelineSpec().schedule : one.schedule;
  spec.pipeline.cuts.clear();
  spec.pipeline.workers.clear();
  // Beside streams, which it is for, other schedules are run as they are.
  const bool has_streams =
      absl::c_any_of(options.schedules, [](const std::string& name) {
        return ScheduleTraitsOf(name).asynchronous;
      });
  if (has_streams && !ScheduleTraitsOf(one.schedule).asynchronous) {
    spec.pipeline.vertical_sync = false;
  }
  spec.pipeline.stages = one.stages;
  spec.pipeline.policy = one.policy;
  if (one.stages > 1 || options.paired == 0) return spec;
  spec.infer.samples = spec.infer.micro_batch * options.paired;
  if (options.train) {
    spec.train.steps = options.paired;
  } else {
    spec.train = paceline::ForInference(spec.infer, spec.train.seed);
  }
  return spec;
}

std::vector<TrialJob> BenchJobs(const JobSpec& spec,
                                const BenchOptions& options,
                                const std::vector<BenchCase>& cases) {
  std::vector<TrialJob> jobs;
  // Round by round, each with a worker alone to compare with: machines that
  // others use too are now faster, now slower.
  for (int round = 0; round < options.tries; ++round) {
    size_t alone = 0;
    const auto add = [&](size_t trial, bool again) {
      jobs.push_back({.trial = trial,
                      .repeat = round,
                      .spec = BenchSpec(spec, options, cases[trial]),
                      .against = alone,
                      .only_compares = again});
    };
    for (size_t c = 0; c < cases.size(); ++c) {
      if (cases[c].stages == 1) alone = c;
      add(c, /*again=*/false);
      if (c != alone && options.paired > 0) add(alone, /*again=*/true);
    }
  }
  return jobs;
}

std::vector<BenchRow> MedianRows(const std::vector<TrialJob>& jobs) {
  std::map<size_t, std::vector<BenchRow>> tries;
  for (const TrialJob& job : jobs) {
    if (job.row.has_value()) tries[job.trial].push_back(*job.row);
  }
  std::vector<BenchRow> rows;
  for (auto& [trial, of_case] : tries) {
    absl::c_sort(of_case, [](const BenchRow& a, const BenchRow& b) {
      return std::tie(a.speedup, a.throughput) <
             std::tie(b.speedup, b.throughput);
    });
    rows.push_back(of_case[(of_case.size() - 1) / 2]);
  }
  return rows;
}

std::string CaseText(const BenchCase& one) {
  return absl::StrCat(Counted(one.stages, "stage"), ", ", one.policy,
                      one.schedule.empty() ? "" : ", ", one.schedule);
}

int64_t EnoughMicroBatches(int64_t micro_batches, double seconds) {
  constexpr double kMost = 1 << 16;
  if (!(seconds > 0) || seconds > 2 * kShortBenchSeconds) return micro_batches;
  return static_cast<int64_t>(std::min(
      std::ceil(micro_batches * (2 * kShortBenchSeconds / seconds)), kMost));
}

std::vector<BenchCase> BenchCases(const BenchOptions& options, int workers) {
  std::vector<int> stages = options.stages;
  if (stages.empty()) stages = {1, workers};
  std::vector<std::string> policies = options.policies;
  if (policies.empty()) policies = {"optimal"};
  std::vector<std::string> schedules = options.schedules;
  if (!options.train) schedules = {""};
  if (schedules.empty()) schedules = {"1f1b"};
  // Those without a flush, where every micro-batch is an update, are compared
  // with such a worker.
  std::stable_partition(schedules.begin(), schedules.end(),
                        [](const std::string& name) {
                          return !ScheduleTraitsOf(name).asynchronous;
                        });
  std::vector<BenchCase> cases;
  for (size_t i = 0; i < schedules.size(); ++i) {
    const std::string& schedule = schedules[i];
    const bool first =
        i == 0 || ScheduleTraitsOf(schedule).asynchronous !=
                      ScheduleTraitsOf(schedules[i - 1]).asynchronous;
    // One stage has no policy but who holds it, and no bubbles.
    if (first) {
      cases.push_back({1, policies.front(),
                       !options.train || ScheduleTraitsOf(schedule).asynchronous
                           ? schedule
                           : std::string("1f1b")});
    }
    for (const int count : stages) {
      if (count == 1) continue;
      for (const std::string& policy : policies) {
        cases.push_back({count, policy, schedule});
      }
    }
  }
  return cases;
}

namespace {

std::string Percent(double share) {
  return absl::StrFormat("%.1f", 100 * share);
}

std::string Milliseconds(double seconds) {
  return seconds > 0 ? absl::StrFormat("%.1f", 1e3 * seconds) : "-";
}

}  // namespace

std::string RenderBench(const std::vector<BenchRow>& rows) {
  Table table({">stages", "policy", "schedule", ">workers", ">samples/s",
               ">speedup", ">bound", ">of bound %", ">p50 ms", ">p99 ms",
               ">fill %", ">imbalance %", ">transfer %", ">slowdown %",
               ">other %", "plan"});
  for (const BenchRow& row : rows) {
    table.AddRow(row.stages, row.policy,
                 row.schedule.empty() ? "-" : row.schedule, row.workers,
                 absl::StrFormat("%.4g", row.throughput),
                 absl::StrFormat("%.2f", row.speedup),
                 absl::StrFormat("%.2f", row.bound),
                 row.bound > 0 ? Percent(row.speedup / row.bound) : "-",
                 Milliseconds(row.latency_p50), Milliseconds(row.latency_p99),
                 Percent(row.losses.fill), Percent(row.losses.imbalance),
                 Percent(row.losses.transfer), Percent(row.losses.slowdown),
                 Percent(row.losses.unexplained), row.plan);
  }
  return table.Render();
}

Document BenchDocument(const BenchOptions& options,
                       const std::vector<BenchRow>& rows) {
  return Document{{"model", options.model},
                  {"micro_batch", options.micro_batch},
                  {"micro_batches", options.micro_batches},
                  {"rows", ListOf(rows, RowDocument)}};
}

namespace {

struct DecidedKey {
  const char* key;       // one that ends with '.' stands for all below it
  const char* in_infer;  // what to do instead; null: the key counts there
  const char* in_train;
};

constexpr char kMicroBatch[] = "use --micro-batch";
constexpr char kMicroBatches[] = "use --micro-batches";
constexpr char kSteps[] = "use --steps";
constexpr char kForward[] = "nothing is trained: use 'bench train'";
constexpr char kTraining[] = "nothing is inferred: use 'bench infer'";
constexpr char kBenchKind[] = "use 'bench infer' or 'bench train'";
constexpr char kModel[] = "use --model";
constexpr char kName[] = "jobs are called by their case";
constexpr char kPolicy[] = "use --policy";
constexpr char kPlaced[] = "use --policy, which cuts and places";

// The first that fits counts.
constexpr DecidedKey kDecided[] = {
    {"kind", kBenchKind, kBenchKind},
    {"name", kName, kName},
    {"model.name", kModel, kModel},
    {"pipeline.stages", "use --stages", "use --stages"},
    {"pipeline.policy", kPolicy, kPolicy},
    {"pipeline.schedule", kForward, "use --schedule"},
    {"pipeline.vertical_sync", kForward, nullptr},
    {"pipeline.cuts", kPlaced, kPlaced},
    {"pipeline.workers", kPlaced, kPlaced},
    {"infer.micro_batch", kMicroBatch, kTraining},
    {"infer.samples", kMicroBatches, kTraining},
    {"infer.", "predictions are not kept", kTraining},
    {"train.micro_batch", kMicroBatch, kMicroBatch},
    {"train.batch", kMicroBatches, kMicroBatches},
    {"train.steps", kForward, kSteps},
    {"train.epochs", kForward, kSteps},
    {"train.evaluate_every", kForward, "the time of evaluation is not counted"},
    {"train.seed", nullptr, nullptr},
    {"train.", kForward, nullptr},
    {"data.test_samples", kMicroBatches, "the test set is not read"},
};

bool Fits(const DecidedKey& decided, const std::string& key) {
  return absl::EndsWith(decided.key, ".") ? absl::StartsWith(key, decided.key)
                                          : key == decided.key;
}

}  // namespace

absl::Status CheckBenchSets(const std::vector<std::string>& sets, bool train) {
  std::vector<std::string> problems;
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    for (const DecidedKey& decided : kDecided) {
      if (!Fits(decided, key)) continue;
      const char* const instead = train ? decided.in_train : decided.in_infer;
      if (instead != nullptr) {
        problems.push_back(
            absl::StrCat("--set ", Printable(set),
                         ": the bench decides that itself: ", instead));
      }
      break;
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument(absl::StrJoin(problems, "\n"));
}

}  // namespace paceline

#include "client/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/watch.h"
#include "client/render/text.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"
#include "core/rpc/convert.h"
#include "core/schedule/traits.h"

namespace paceline {

namespace {

// Below that, periods of quotas and what else a machine does decide.
constexpr double kShortSeconds = 2;

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

JobSpec ForBench(JobSpec spec, const BenchOptions& options) {
  spec.pipeline.schedule = PipelineSpec().schedule;
  spec.pipeline.cuts.clear();
  spec.pipeline.workers.clear();
  return options.train ? ForTraining(std::move(spec), options)
                       : ForInference(std::move(spec), options);
}

class Bench {
 public:
  Bench(const CommandContext& context, JobSpec spec,
        const BenchOptions& options)
      : context_(context),
        spec_(ForBench(std::move(spec), options)),
        options_(options) {}

  absl::Status Run(const LoadModelWeights& load) {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                              LiveWorkers(context_.client));
    if (live.empty()) {
      return absl::ResourceExhaustedError(
          "no worker is attached: start one, or wait until one is back");
    }
    const std::vector<BenchCase> cases =
        BenchCases(options_, static_cast<int>(live.size()));
    // Nothing is measured for a bench that cannot be finished.
    for (const BenchCase& one : cases) {
      for (const SpecProblem& problem : CheckJobSpec(SpecOf(one))) {
        return InvalidArgument(problem.path, ": ", problem.why);
      }
    }
    PACELINE_RETURN_IF_ERROR(LookForFiles(context_, spec_, load));
    if (options_.profile) {
      PACELINE_RETURN_IF_ERROR(
          TakeProfile(context_, spec_, {.timeout = options_.timeout}).status());
    }
    PACELINE_ASSIGN_OR_RETURN(shares_, MeasuredShares(context_.client));
    PACELINE_RETURN_IF_ERROR(TryToPlace(cases));
    tries_.resize(cases.size());
    // Round by round, each with a worker alone to compare with: machines that
    // others use too are now faster, now slower.
    for (int i = 0; i < options_.tries; ++i) {
      PACELINE_RETURN_IF_ERROR(RunRound(cases));
    }
    return absl::OkStatus();
  }

  const BenchOptions& options() const { return options_; }

  // The median try of each case by speed-up (of one worker alone: by
  // throughput); without those that were not run.
  std::vector<BenchRow> Rows() const {
    std::vector<BenchRow> rows;
    for (std::vector<BenchRow> tries : tries_) {
      if (tries.empty()) continue;
      std::sort(tries.begin(), tries.end(),
                [](const BenchRow& a, const BenchRow& b) {
                  return std::tie(a.speedup, a.throughput) <
                         std::tie(b.speedup, b.throughput);
                });
      rows.push_back(tries[(tries.size() - 1) / 2]);
    }
    return rows;
  }

 private:
  // The coordinator tries every case before the first job runs. It refuses here
  // what no spec alone shows, such as stages that cannot be dealt out to these
  // workers.
  absl::Status TryToPlace(const std::vector<BenchCase>& cases) {
    for (const BenchCase& one : cases) {
      v1::SubmitJobRequest request;
      *request.mutable_spec() = ToProto(SpecOf(one));
      request.set_dry_run(true);
      const auto answer = context_.client.SubmitJob(request);
      const absl::Status& placed = answer.status();
      if (placed.ok()) {
        if (options_.lengthen) {
          options_.micro_batches = EnoughMicroBatches(
              options_.micro_batches, answer->estimate().step_seconds());
          spec_ = ForBench(spec_, options_);
        }
        continue;
      }
      return absl::Status(
          placed.code(),
          absl::StrCat("nothing was run: ", one.stages,
                       one.stages == 1 ? " stage, " : " stages, ", one.policy,
                       one.schedule.empty() ? "" : ", ", one.schedule, ": ",
                       placed.message()));
    }
    return absl::OkStatus();
  }

  absl::Status RunRound(const std::vector<BenchCase>& cases) {
    size_t alone = 0;  // the case of one worker that the present one is against
    for (size_t c = 0; c < cases.size(); ++c) {
      PACELINE_ASSIGN_OR_RETURN(const v1::Job job, RunJob(cases[c]));
      if (cases[c].stages == 1) {
        alone = c;
        PACELINE_ASSIGN_OR_RETURN(baseline_, BaselineOf(job));
      }
      BenchBaseline against = baseline_;
      if (cases[c].stages > 1 && options_.paired > 0) {
        PACELINE_ASSIGN_OR_RETURN(const v1::Job after, RunJob(cases[alone]));
        PACELINE_ASSIGN_OR_RETURN(baseline_, BaselineOf(after));
        against = MeanOf(against, baseline_);
      }
      PACELINE_RETURN_IF_ERROR(TakeRow(job, against, tries_[c]));
    }
    return absl::OkStatus();
  }

  absl::Status TakeRow(const v1::Job& job, const BenchBaseline& against,
                       std::vector<BenchRow>& tries) {
    PACELINE_ASSIGN_OR_RETURN(BenchRow row, RowOf(job, against, shares_));
    context_.console.Note(
        absl::StrFormat("%d %s, %s%s%s: %.3f samples/s, %.2fx", row.stages,
                        row.stages == 1 ? "stage" : "stages", row.policy,
                        row.schedule.empty() ? "" : ", ", row.schedule,
                        row.throughput, row.speedup));
    if (row.seconds < kShortSeconds) {
      context_.console.Note(
          absl::StrFormat("  that took %.2f s only, which says little: raise "
                          "--micro-batches%s",
                          row.seconds, options_.train ? " or --steps" : ""));
    }
    tries.push_back(std::move(row));
    return absl::OkStatus();
  }

  JobSpec SpecOf(const BenchCase& one) const {
    JobSpec spec = spec_;
    spec.name = absl::StrCat("bench-", spec.model.name, "-", one.stages, "-",
                             one.policy);
    if (!one.schedule.empty()) spec.pipeline.schedule = one.schedule;
    // Beside streams, which it is for, other schedules are run as they are.
    const bool has_streams =
        std::any_of(options_.schedules.begin(), options_.schedules.end(),
                    [](const std::string& name) {
                      return ScheduleTraitsOf(name).asynchronous;
                    });
    if (has_streams && !ScheduleTraitsOf(one.schedule).asynchronous) {
      spec.pipeline.vertical_sync = false;
    }
    spec.pipeline.stages = one.stages;
    spec.pipeline.policy = one.policy;
    if (one.stages == 1 && options_.paired > 0) {
      spec.infer.samples = spec.infer.micro_batch * options_.paired;
      if (options_.train) {
        spec.train.steps = options_.paired;
      } else {
        spec.train = paceline::ForInference(spec.infer, spec.train.seed);
      }
    }
    return spec;
  }

  absl::StatusOr<v1::Job> RunJob(const BenchCase& one) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = ToProto(SpecOf(one));
    PACELINE_ASSIGN_OR_RETURN(const v1::SubmitJobResponse submitted,
                              context_.client.SubmitJob(request));
    PACELINE_ASSIGN_OR_RETURN(
        const WatchResult watched,
        WatchJob(context_, submitted.id(), options_.timeout));
    if (watched.end != WaitEnd::kDone) {
      const bool late = watched.end == WaitEnd::kTimedOut;
      const std::string what = absl::StrCat(
          late ? "timed out" : "interrupted", " while job ", submitted.id(),
          " ran; it goes on: stop it with: ", context_.program, " job stop ",
          submitted.id());
      return late ? absl::DeadlineExceededError(what)
                  : absl::CancelledError(what);
    }
    // The job's last heartbeats are recorded when it has ended.
    PACELINE_ASSIGN_OR_RETURN(v1::Job job,
                              context_.client.GetJob(submitted.id(), 0, 0));
    if (StateOf(job) != JobState::kSucceeded) {
      return absl::AbortedError(absl::StrCat(
          "job ", job.id(), ": ", JobStateName(StateOf(job)), ": ", job.why()));
    }
    if (!options_.keep_jobs) {
      PACELINE_RETURN_IF_ERROR(context_.client.DeleteJob(job.id()));
    }
    return job;
  }

  const CommandContext& context_;
  JobSpec spec_;
  BenchOptions options_;
  std::vector<CpuShare> shares_;
  BenchBaseline baseline_;                    // the newest
  std::vector<std::vector<BenchRow>> tries_;  // by case
};

ExitCode ExitCodeOf(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return kExitTimedOut;
  if (absl::IsCancelled(status)) return kExitInterrupted;
  if (absl::IsAborted(status)) return kExitFailed;
  return SubmitExitCodeFor(status);
}

}  // namespace

absl::StatusOr<std::vector<CpuShare>> MeasuredShares(ControlClient& client) {
  PACELINE_ASSIGN_OR_RETURN(const Measurements known,
                            client.ListMeasurements(""));
  std::vector<CpuShare> shares;
  for (const auto& [key, profile] : known.profiles) {
    shares.push_back({key.device, profile.cpu_share});
  }
  return shares;
}

int64_t EnoughMicroBatches(int64_t micro_batches, double seconds) {
  constexpr double kMost = 1 << 16;
  if (!(seconds > 0) || seconds > 2 * kShortSeconds) return micro_batches;
  return static_cast<int64_t>(std::min(
      std::ceil(micro_batches * (2 * kShortSeconds / seconds)), kMost));
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

ExitCode BenchCommand(const CommandContext& context, JobSpec spec,
                      const BenchOptions& options,
                      const LoadModelWeights& load) {
  Bench bench(context, std::move(spec), options);
  const absl::Status status = bench.Run(load);
  const std::vector<BenchRow> rows = bench.Rows();
  if (!rows.empty() || status.ok()) {
    context.console.Print(RenderBench(rows),
                          BenchDocument(bench.options(), rows));
  }
  if (status.ok()) return kExitOk;
  ReportError(context.console, status);
  return ExitCodeOf(status);
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
constexpr char kKind[] = "use 'bench infer' or 'bench train'";
constexpr char kModel[] = "use --model";
constexpr char kName[] = "jobs are called by their case";
constexpr char kPolicy[] = "use --policy";
constexpr char kPlaced[] = "use --policy, which cuts and places";

// The first that fits counts.
constexpr DecidedKey kDecided[] = {
    {"kind", kKind, kKind},
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
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace paceline

#include "coordinator/jobs/job_text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/job/job_keys.h"
#include "core/optim/step_gate.h"
#include "core/schedule/schedule.h"

namespace paceline {

std::string StagesOf(const JobRecord& record, WorkerId worker) {
  const std::vector<int> numbers = StageNumbers(record.stages);
  std::vector<int> stages;
  for (size_t i = 0; i < record.stages.size(); ++i) {
    if (record.stages[i].worker == worker) stages.push_back(numbers[i]);
  }
  return absl::StrCat(stages.size() == 1 ? "stage " : "stages ",
                      absl::StrJoin(stages, ", "));
}

std::string AtStep(const JobRecord& record) {
  const char* const unit = IsInference(record.spec) ? "micro-batch" : "step";
  const std::string at = absl::StrCat("at ", unit, " ", record.job.step());
  return record.job.steps() == 0 ? at
                                 : absl::StrCat(at, " of ", record.job.steps());
}

std::string FourDecimals(double value) {
  return std::isnan(value) ? "nan" : absl::StrFormat("%.4f", value);
}

std::string EvaluationText(const JobSpec& spec,
                           const v1::EvaluationRecord& evaluation) {
  const std::string after =
      IsInference(spec) ? ""
                        : absl::StrCat("after step ", evaluation.step(), " ");
  return absl::StrCat("accuracy ", FourDecimals(evaluation.accuracy()),
                      ", loss ", FourDecimals(evaluation.loss()), " ", after,
                      "over ", Counted(evaluation.samples(), "sample"));
}

std::string ResultName(const JobSpec& spec) {
  return IsInference(spec) ? "predictions" : "weights";
}

std::string SkipReason(const v1::StepRecord& step) {
  return step.samples() == 0 ? "no samples" : "gradient not finite";
}

std::string PreparingText(const JobRecord& record,
                          const std::map<WorkerId, Instant>& since,
                          absl::Duration bound, Instant now) {
  // By the number of whole bounds that they have taken, longest first.
  std::map<int64_t, std::vector<std::string>, std::greater<>> names;
  for (const v1::JobWorker& worker : record.job.workers()) {
    const auto found = since.find(WorkerId{worker.id()});
    if (found == since.end() || now - found->second < bound) continue;
    absl::Duration rest;
    names[absl::IDivDuration(now - found->second, bound, &rest)].push_back(
        worker.name());
  }
  std::vector<std::string> parts;
  for (const auto& [bounds, workers] : names) {
    parts.push_back(absl::StrCat(
        workers.size() == 1 ? "worker " : "workers ",
        absl::StrJoin(workers, ", "), workers.size() == 1 ? " has" : " have",
        " been preparing for ", absl::ToInt64Seconds(bounds * bound),
        " s (reading data?)"));
  }
  return Sentence(parts);
}

std::string JobsText(const std::set<JobId>& jobs) {
  return absl::StrCat(
      jobs.size() == 1 ? "job " : "jobs ",
      absl::StrJoin(jobs, ", ", [](std::string* out, const JobId& job) {
        absl::StrAppend(out, job.value);
      }));
}

std::string Sentence(const std::vector<std::string>& parts) {
  std::string sentence;
  for (absl::string_view part : parts) {
    if (!absl::EndsWith(part, "..")) absl::ConsumeSuffix(&part, ".");
    if (part.empty()) continue;
    absl::StrAppend(&sentence, sentence.empty() ? "" : "; ", part);
  }
  return sentence;
}

std::vector<const v1::JobWorker*> LastStageOf(const JobRecord& record) {
  std::vector<const v1::JobWorker*> workers;
  for (const StageOfPlan& stage : record.stages) {
    if (stage.layers != record.stages.back().layers) continue;
    for (const v1::JobWorker& worker : record.job.workers()) {
      if (WorkerId{worker.id()} == stage.worker) workers.push_back(&worker);
    }
  }
  return workers;
}

int64_t MicroBatchesOf(const JobRecord& record) {
  if (!IsInference(record.spec)) return 0;
  const int64_t each = record.spec.infer.micro_batch;
  return (record.job.total_samples() + each - 1) / each;
}

int64_t MostSteps(const JobRecord& record) {
  const int64_t steps =
      IsInference(record.spec)
          ? MicroBatchesOf(record)
          : std::max(record.spec.train.steps, record.job.steps());
  return steps > 0 ? steps : std::numeric_limits<int64_t>::max();
}

bool HasTurn(const JobRecord& record, WorkerId worker) {
  const int64_t micro_batches = MicroBatchesOf(record);
  if (micro_batches == 0) return true;
  const int64_t first = record.job.predicted_base().through();
  const std::vector<int> numbers = StageNumbers(record.stages);
  const std::vector<RouteTable> routes = RoutesOf(record.stages);
  int replica = 0;
  for (size_t i = 0; i < record.stages.size(); ++i) {
    replica = i > 0 && numbers[i] == numbers[i - 1] ? replica + 1 : 0;
    if (record.stages[i].worker != worker) continue;
    if (routes[numbers[i]].NextOf(replica, first) < micro_batches) return true;
  }
  return false;
}

std::string LostReplicaText(const JobRecord& record, WorkerId worker) {
  if (IsInference(record.spec) || IsDataParallel(record.spec)) return "";
  const std::vector<int> numbers = StageNumbers(record.stages);
  for (size_t i = 0; i < record.stages.size(); ++i) {
    const auto replicas = absl::c_count(numbers, numbers[i]);
    if (record.stages[i].worker != worker || replicas == 1) continue;
    return absl::StrCat(
        "; it was one of ", replicas, " replicas of stage ", numbers[i],
        ": the others go on after the last step that any of them has applied");
  }
  return "";
}

bool Holds(const JobRecord& record, WorkerId worker, int layer) {
  return absl::c_any_of(record.stages, [&](const StageOfPlan& stage) {
    return stage.worker == worker && stage.layers.first <= layer &&
           layer < stage.layers.last;
  });
}

bool HoldsLast(const JobRecord& record, WorkerId worker) {
  return !record.stages.empty() &&
         Holds(record, worker, record.stages.back().layers.last - 1);
}

v1::JobWorker* FindWorker(JobRecord& record, WorkerId id) {
  for (v1::JobWorker& worker : *record.job.mutable_workers()) {
    if (WorkerId{worker.id()} == id) return &worker;
  }
  return nullptr;
}

bool AllAtLeast(const JobRecord& record, v1::RunState::Phase phase) {
  return absl::c_all_of(record.job.workers(), [&](const v1::JobWorker& worker) {
    const bool stopped = worker.run().phase() == v1::RunState::PHASE_STOPPED;
    return (stopped ? v1::RunState::PHASE_RUNNING : worker.run().phase()) >=
               phase ||
           (phase == v1::RunState::PHASE_DONE &&
            !HasTurn(record, WorkerId{worker.id()}));
  });
}

std::string PhaseOf(const JobRecord& record) {
  if (record.state() != v1::JOB_STATE_RUNNING) return "";
  if (!AllAtLeast(record, v1::RunState::PHASE_RUNNING)) return "preparing";
  const bool trained =
      record.job.steps() > 0 && record.job.step() >= record.job.steps();
  if (trained || AllAtLeast(record, v1::RunState::PHASE_DONE)) return "saving";
  return IsInference(record.spec) ? "predicting" : "training";
}

std::vector<v1::StageDrift> DriftOf(const JobRecord& record) {
  std::vector<v1::StageDrift> drifts;
  const v1::RunEstimate& estimate = record.job.estimate();
  const std::vector<int> numbers = StageNumbers(record.stages);
  for (int i = 0; i < static_cast<int>(record.stages.size()); ++i) {
    v1::StageDrift& drift = drifts.emplace_back();
    drift.set_stage(numbers[i]);
    drift.set_worker_id(record.stages[i].worker.value);
    if (i < estimate.stage_seconds_size()) {
      drift.set_predicted_seconds(estimate.stage_seconds(i));
    }
    if (i < estimate.layer_seconds_size()) {
      drift.set_layer_seconds(estimate.layer_seconds(i));
    }
    if (i >= record.job.stage_times_size()) continue;
    const v1::StageTime& time = record.job.stage_times(i);
    if (time.micro_batches() == 0) continue;
    drift.set_measured_seconds(time.seconds() /
                               static_cast<double>(time.micro_batches()));
  }
  return drifts;
}

double MeasuredStepSeconds(const JobRecord& record) {
  const v1::Job& job = record.job;
  return job.timed_steps() == 0
             ? 0
             : job.timed_seconds() / static_cast<double>(job.timed_steps());
}

absl::Status NoSuchJob(JobId id) {
  return NotFound("there is no job ", id.value,
                  "; paceline job list shows all");
}

absl::Status ToStatus(const std::vector<SpecProblem>& problems,
                      absl::string_view between) {
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument(absl::StrJoin(
      problems, between, [](std::string* out, const SpecProblem& problem) {
        absl::StrAppend(out, problem.path, problem.path.empty() ? "" : ": ",
                        problem.why);
      }));
}

absl::Status CheckSpec(const JobSpec& spec) {
  return ToStatus(CheckJobSpec(spec), "; ");
}

absl::StatusOr<ModelDescription> Describe(const JobSpec& spec) {
  return DescribeModel(spec);
}

// --- advice -----------------------------------------------------------------

namespace {

constexpr char kSubmit[] = "paceline job submit FILE";

}  // namespace

std::string SubmitAgain() {
  return absl::StrCat("submit it again with: ", kSubmit);
}

std::string AdviceAfter(const absl::Status& error, const JobSpec& spec) {
  // The message of a full disk already names the action.
  if (absl::StrContains(error.message(), "make room")) {
    return absl::StrCat("do that first, then: ", kSubmit);
  }
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return SubmitAgain();
    case absl::StatusCode::kResourceExhausted:
      return absl::StrCat(
          "the same job would run out of it too: take ",
          RemediesFor(spec, {"a smaller train.micro_batch",
                             "a smaller infer.micro_batch",
                             "more pipeline.stages", "more aggregation.shards",
                             "train.activation_checkpointing stage"}),
          ", or give the worker more, and only then: ", kSubmit);
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return "that looks like a fault of Paceline's own, and the same job "
             "would "
             "meet it again: please report it with what 'paceline job logs' "
             "says";
    default:
      return absl::StrCat(
          "the same job would fail the same way: put that right first, then: ",
          kSubmit);
  }
}

std::string AdviceAfterSaving(const absl::Status& error, const JobSpec& spec) {
  if ((!absl::IsResourceExhausted(error) && !absl::IsInternal(error)) ||
      absl::StrContains(error.message(), "make room")) {
    return AdviceAfter(error, spec);
  }
  return absl::StrCat(
      "make room or put that right on the coordinator's machine first, then: ",
      kSubmit);
}

Skips SkipsOf(const JobRecord& record) {
  if (!ScheduleTraitsOf(record.spec.pipeline.schedule).asynchronous) {
    return {record.job.skipped_steps(),
            record.job.step() - record.job.resumed().step(), false};
  }
  Skips worst{0, 0, true};
  for (const v1::StageTime& stage : record.job.stage_times()) {
    if (stage.versions().skipped_updates() <= worst.skipped) continue;
    worst.skipped = stage.versions().skipped_updates();
    worst.of = stage.versions().updates();
  }
  return worst;
}

std::string SkippedText(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  if (skips.skipped == 0) return "";
  return absl::StrCat(skips.skipped, " of ", skips.of,
                      skips.updates   ? " updates of a stage were"
                      : skips.of == 1 ? " step was"
                                      : " steps were",
                      " skipped");
}

std::string UnreadableText(const JobRecord& record) {
  const v1::Unreadable& unreadable = record.job.unreadable();
  const int samples =
      unreadable.train().numbers_size() + unreadable.test().numbers_size();
  if (samples == 0) return "";
  return absl::StrCat(
      "workers could not read ", samples,
      samples == 1 ? " sample, which was" : " samples, which were",
      " left out");
}

std::string WhyUnreadable(const JobRecord& record) {
  const v1::Unreadable& unreadable = record.job.unreadable();
  for (const bool trains : {true, false}) {
    const auto& split = trains ? unreadable.train() : unreadable.test();
    const int64_t most = MostUnreadable(split.of());
    if (split.numbers_size() <= most) continue;
    return absl::StrCat("at least ", split.numbers_size(), " of ", split.of(),
                        trains ? " training" : " test",
                        " samples cannot be read, and a job may do without ",
                        most, " of them: 'paceline job logs ",
                        record.id().value, "' names them");
  }
  return "";
}

bool MostlySkipped(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  return 2 * skips.skipped > skips.of;
}

std::string WhyMostlySkipped(const JobRecord& record) {
  const Skips skips = SkipsOf(record);
  const bool all = skips.skipped >= skips.of;
  std::string reason;
  if (!IsDataParallel(record.spec)) {
    reason = all ? "no gradient was finite (NaN or infinity)"
                 : "most gradients were not finite (NaN or infinity)";
  } else {
    reason = absl::StrCat(
        all ? "no round had" : "most rounds did not have",
        " enough parts that could be used, or what the rule made of them was "
        "not finite (NaN or infinity); 'paceline job events' says whose parts "
        "were left out");
  }
  const int64_t in_row = LongestSkipRun(record.job);
  return absl::StrCat(all ? "nothing was learnt, and the weights are what they "
                            "were at the beginning: "
                      : in_row >= kMostSkippedInRow
                          ? absl::StrCat("the training has diverged: ", in_row,
                                         " steps in a row were skipped: ")
                          : "more was skipped than learnt, and the weights are "
                            "not worth keeping: ",
                      reason);
}

std::string AdviceAfterSkips(const JobSpec& spec) {
  if (IsInference(spec)) return AdviceAfter(DataLoss(""), spec);
  std::string advice = "the same job would fail the same way: ";
  if (IsDataParallel(spec)) {
    absl::StrAppend(&advice,
                    spec.faults.empty() ? "" : "leave its `faults` out, or ",
                    "take another aggregation.rule or a smaller min_parts, ");
  }
  absl::StrAppend(&advice, "lower train.learning_rate.base");
  if (spec.train.clip_norm == 0 &&
      !ScheduleTraitsOf(spec.pipeline.schedule).asynchronous) {
    absl::StrAppend(&advice, ", set train.clip_norm=1");
  }
  if (spec.precision != "fp32") {
    absl::StrAppend(&advice, ", take precision=fp32");
  }
  if (spec.pipeline.codec != "fp32" && !IsDataParallel(spec)) {
    absl::StrAppend(&advice, ", take pipeline.codec=fp32");
  }
  return absl::StrCat(advice, ", then: ", kSubmit);
}

std::string ResumeHint(const JobRecord& record) {
  int64_t sound = record.job.resumed().step();
  for (const v1::Checkpoint& each : record.job.checkpoints()) {
    const int64_t step = each.cut().step();
    if (!IsBroken(record.job, step)) sound = std::max(sound, step);
  }
  if (sound == 0) return "";
  return absl::StrCat("; or, to go on from step ", sound,
                      ": paceline job resume ", record.id().value);
}

std::string AdviceAfterSkips(const JobRecord& record) {
  const std::string hint = ResumeHint(record);
  return absl::StrCat(
      AdviceAfterSkips(record.spec), hint,
      hint.empty() ? "" : " --set train.learning_rate.base=RATE");
}

namespace {

int64_t NotFinite(const JobRecord& record) {
  return record.job.predicted().not_finite() -
         record.job.unreadable().test().numbers_size();
}

}  // namespace

std::string NotFiniteText(const JobRecord& record) {
  const int64_t broken = NotFinite(record);
  if (broken <= 0) return "";
  return absl::StrCat(broken, " of ", record.job.total_samples(),
                      " predictions are not finite (NaN or infinity)");
}

std::string WhyNotFinite(const JobRecord& record) {
  if (2 * NotFinite(record) > record.job.total_samples()) {
    return absl::StrCat(NotFiniteText(record),
                        ": the weights are broken, or those of another model");
  }
  if (record.job.broken_step() == 0 ||
      record.job.broken_step() < record.job.steps()) {
    return "";
  }
  return absl::StrCat("the training has diverged: after the last step, ",
                      record.job.broken_step(),
                      ", the loss over the test set is not finite");
}

}  // namespace paceline

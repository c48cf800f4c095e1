#include "coordinator/mesh/job_progress.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "coordinator/jobs/job_group.h"
#include "coordinator/jobs/job_text.h"
#include "core/base/errors.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/optim/step_gate.h"
#include "core/rpc/convert/report_convert.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// samples_per_second covers the records of this time.
constexpr int64_t kRateWindowMs = 2000;
// It covers at most this many, even if a worker's clock stands still.
constexpr size_t kMostRates = 4096;
// The newest steps, which may still get records; older ones are closed.
constexpr size_t kMostCounted = 4096;
// The runs of skipped steps in a job that get their own events.
constexpr int kMostSkipEvents = 100;

// Bounds a worker's count or time, so that sums of kMostRates of them, and
// differences, do not overflow.
int64_t Bounded(int64_t number) {
  return std::clamp<int64_t>(number, 0, int64_t{1} << 50);
}

// Adds another worker's part of the batch.
void AddPart(const v1::StepRecord& part, v1::StepRecord& step) {
  const int64_t samples = Bounded(part.loss_samples());
  if (samples == 0) return;
  const int64_t before = Bounded(step.loss_samples());
  const auto all = static_cast<double>(before + samples);
  step.set_loss((step.loss() * static_cast<double>(before) +
                 part.loss() * static_cast<double>(samples)) /
                all);
  step.set_loss_samples(before + samples);
}

// Adds the unreadable samples of another worker or attempt.  One more than a
// job may lose is enough.
void Unite(const v1::UnreadableSamples& more, v1::UnreadableSamples& all) {
  // A worker repeats its whole list in each report.
  if (absl::c_all_of(more.numbers(), [&](int32_t number) {
        return absl::c_binary_search(all.numbers(), number);
      })) {
    return;
  }
  std::set<int32_t> numbers(all.numbers().begin(), all.numbers().end());
  numbers.insert(more.numbers().begin(), more.numbers().end());
  all.set_of(more.of());
  all.mutable_numbers()->Assign(numbers.begin(), numbers.end());
  const int64_t most = MostUnreadable(all.of()) + 1;
  if (all.numbers_size() > most) {
    all.mutable_numbers()->Truncate(static_cast<int>(most));
  }
}

void AddRate(JobEntry& job, const Rate& rate) {
  ProgressState& progress = job.progress;
  // A clock that was set back would make the window empty.
  if (!progress.recent.empty() &&
      progress.recent.back().unix_ms - rate.unix_ms >= kRateWindowMs) {
    progress.recent.clear();
  }
  progress.recent.push_back(rate);
  while (progress.recent.size() > kMostRates ||
         (progress.recent.size() > 2 &&
          progress.recent.back().unix_ms - progress.recent[1].unix_ms >=
              kRateWindowMs)) {
    progress.recent.pop_front();
  }
}

void CountStep(MeshState& mesh, JobEntry& job, const v1::StepRecord& step,
               Moment moment) {
  JobRecord& record = job.record;
  const bool newest = step.step() > record.job.recorded_step();
  record.job.set_recorded_step(
      std::max(record.job.recorded_step(), step.step()));
  record.job.set_step(std::max(record.job.step(), step.step()));
  AddRate(job, {step.step(), Bounded(step.samples()), Bounded(step.unix_ms())});
  record.job.set_skipped_steps(record.job.skipped_steps() + step.skipped());
  const bool streams =
      ScheduleTraitsOf(record.spec.pipeline.schedule).asynchronous;
  if (streams ? step.unapplied() : step.skipped()) {
    AddSkip(step.step(), record.job);
  }
  if (!newest) return;
  if (step.skipped()) {
    if (record.job.skipping_since() > 0) return;
    record.job.set_skipping_since(step.step());
    if (++job.progress.skip_runs > kMostSkipEvents) return;
    mesh.AddEvent(job, moment, "skipping", "steps are skipped from step ",
                  step.step(), " on: ", SkipReason(step),
                  job.progress.skip_runs == kMostSkipEvents
                      ? "; later ones are only counted"
                      : "");
  } else if (record.job.skipping_since() > 0) {
    const int64_t skipped = step.step() - record.job.skipping_since();
    record.job.set_skipping_since(0);
    if (job.progress.skip_runs > kMostSkipEvents) return;
    mesh.AddEvent(job, moment, "applying", "steps apply again from step ",
                  step.step(), " on, after ", skipped,
                  skipped == 1 ? " that was skipped" : " that were skipped");
  }
}

// Adds an event with the number of steps, which was unknown before the data was
// opened.
void NoteWalk(MeshState& mesh, JobEntry& job, int64_t steps, Moment moment) {
  const JobSpec& spec = job.record.spec;
  if (IsInference(spec) || spec.train.steps > 0 ||
      TrainSamplesOf(spec.data) > 0) {
    return;
  }
  for (const std::string& note : WalkNotes(spec.train, 0, steps)) {
    mesh.AddEvent(job, moment, "warning", note);
  }
}

void TakeUnreadable(MeshState& mesh, JobEntry& job, const v1::JobWorker& part,
                    const v1::Unreadable& said, Moment moment) {
  if (!said.has_train() && !said.has_test()) return;
  v1::Job& record = job.record.job;
  if (!record.has_unreadable()) {
    mesh.AddEvent(job, moment, "unreadable", "worker ", part.name(),
                  " cannot read all samples of the data set and leaves "
                  "them out: 'paceline job logs ",
                  job.record.id().value, "' names them");
  }
  Unite(said.train(), *record.mutable_unreadable()->mutable_train());
  Unite(said.test(), *record.mutable_unreadable()->mutable_test());
  const std::string why = WhyUnreadable(job.record);
  if (!why.empty()) {
    mesh.FailJob(job, why, AdviceAfter(DataLoss(why), job.record.spec), moment);
  }
}

// Workers that read the same files send the same notes.
void TakeNotes(MeshState& mesh, JobEntry& job, const v1::RunState& run,
               Moment moment) {
  auto& notes = *job.record.job.mutable_notes();
  for (const std::string& note : run.notes()) {
    if (notes.size() >= kMaxNotes || absl::c_linear_search(notes, note)) {
      continue;
    }
    *notes.Add() = note;
    mesh.AddEvent(job, moment, "warning", note);
  }
}

void TakeFlow(JobEntry& job, Moment moment) {
  ProgressState& progress = job.progress;
  if (!IsInference(job.record.spec)) return;
  // Counts the micro-batches that any replica of the last stage finished.
  int64_t micro_batches = job.record.job.predicted_base().through();
  int64_t samples = 0;
  for (const v1::JobWorker* const last : LastStageOf(job.record)) {
    micro_batches += last->run().flow().micro_batches();
    samples += last->run().flow().samples();
  }
  micro_batches = std::min(micro_batches, MostSteps(job.record));
  if (micro_batches <= job.record.job.step()) return;
  const int64_t before = progress.recent.empty() ? 0 : progress.flow_samples;
  job.record.job.set_step(micro_batches);
  progress.flow_samples = samples;
  AddRate(job, {micro_batches, Bounded(samples - before), moment.unix_ms});
}

// The predictions are durable up to the newest mark that all replicas of the
// last stage have passed.
void TakeMarks(JobEntry& job, WorkerId worker, const v1::RunState& run) {
  if (!HoldsLast(job.record, worker)) return;
  v1::Job& record = job.record.job;
  const int64_t total = MicroBatchesOf(job.record);
  std::map<int64_t, v1::PredictedMark>& own = job.progress.marks[worker];
  for (const v1::PredictedMark& mark : run.predicted()) {
    if (mark.through() > record.predicted().through() &&
        mark.through() <= total) {
      own[mark.through()] = mark;
    }
  }
  for (auto newest = own.rbegin(); newest != own.rend(); ++newest) {
    v1::PredictedMark sum = record.predicted_base();
    sum.set_through(newest->first);
    bool have_all_passed = true;
    for (const v1::JobWorker* const last : LastStageOf(job.record)) {
      const WorkerId id{last->id()};
      const auto passed = job.progress.marks[id].find(newest->first);
      if (passed == job.progress.marks[id].end()) {
        have_all_passed = have_all_passed && !HasTurn(job.record, id);
        continue;
      }
      sum.set_labels(sum.labels() + passed->second.labels());
      sum.set_correct(sum.correct() + passed->second.correct());
      sum.set_loss(sum.loss() + passed->second.loss());
      sum.set_not_finite(sum.not_finite() + passed->second.not_finite());
    }
    if (!have_all_passed) continue;
    record.mutable_predicted()->Swap(&sum);
    for (auto& [id, marks] : job.progress.marks) {
      marks.erase(marks.begin(),
                  marks.upper_bound(record.predicted().through()));
    }
    return;
  }
}

// A report has the totals of the run so far for its worker's stages.
void TakeTimes(JobRecord& record, WorkerId worker, const v1::RunState& run) {
  const std::vector<int> numbers = StageNumbers(record.stages);
  const int stages = static_cast<int>(record.stages.size());
  for (const v1::StageTime& time : run.stage_times()) {
    for (int i = 0; i < stages; ++i) {
      if (numbers[i] != time.stage() || record.stages[i].worker != worker) {
        continue;
      }
      while (record.job.stage_times_size() < stages) {
        record.job.add_stage_times();
      }
      *record.job.mutable_stage_times(i) = time;
      if (time.stage() > 0) continue;
      record.job.set_timed_seconds(run.step_seconds());
      record.job.set_timed_steps(run.timed_steps());
    }
  }
}

}  // namespace

bool TakeRecords(MeshState& mesh, JobEntry& job, const Member& member,
                 v1::Heartbeat& heartbeat, Moment moment) {
  for (v1::LogLine& line : *heartbeat.mutable_logs()) {
    line.set_source(member.registration.name());
    mesh.actions.writes.records[job.record.id()].logs.emplace_back(
        member.incarnation(), std::move(line));
  }
  // Steps of an earlier attempt, or after the job's end, do not count.
  if (mesh.FindRunning(FenceOf(heartbeat.run())) != &job) return false;
  if (heartbeat.steps().empty()) return true;
  for (const v1::StepRecord& part : heartbeat.steps()) {
    TakeStep(mesh, job, member.id, part, moment);
  }
  if (LongestSkipRun(job.record.job) >= kMostSkippedInRow) {
    mesh.FailJob(job, WhyMostlySkipped(job.record),
                 AdviceAfterSkips(job.record), moment);
    return false;
  }
  mesh.Put(job);
  return true;
}

// Workers that share a batch report their own parts, each in the order of the
// steps.  A record that is repeated after a lost acknowledgement counts once.
void TakeStep(MeshState& mesh, JobEntry& job, WorkerId worker,
              const v1::StepRecord& part, Moment moment) {
  ProgressState& progress = job.progress;
  if (part.step() > MostSteps(job.record)) return;
  int64_t& told = progress.told[worker];
  if (part.step() <= std::max(told, progress.counted_through)) return;
  told = part.step();
  const auto [found, is_new] = progress.counted.try_emplace(told, part);
  v1::StepRecord& step = found->second;
  if (is_new) {
    CountStep(mesh, job, step, moment);
  } else {
    AddPart(part, step);
  }
  if (told == job.record.job.recorded_step()) {
    job.record.job.set_loss(step.loss());
  }
  mesh.actions.writes.records[job.record.id()].steps.push_back(step);
  if (progress.counted.size() <= kMostCounted) return;
  progress.counted_through = progress.counted.begin()->first;
  progress.counted.erase(progress.counted.begin());
}

void TakeRun(MeshState& mesh, JobEntry& job, WorkerId worker,
             const v1::RunState& run, Moment moment) {
  v1::Job& record = job.record.job;
  v1::JobWorker& part = *FindWorker(job.record, worker);
  TakeUnreadable(mesh, job, part, run.unreadable(), moment);
  if (HasEnded(job.record.state())) return;
  const v1::RunState::Phase before = part.run().phase();
  *part.mutable_run() = run;
  part.mutable_run()->clear_member();
  part.mutable_run()->clear_names();
  part.mutable_run()->clear_notes();
  part.mutable_run()->clear_unreadable();  // they are in the job
  part.mutable_run()->set_phase(before);
  if (run.has_flow()) TakeFlow(job, moment);
  TakeTimes(job.record, worker, run);
  // Only workers that read the data know its size.
  const bool reads = Holds(job.record, worker, 0);
  const bool was_unknown = record.steps() == 0;
  const int64_t asked = job.record.spec.train.steps;
  if (reads && (asked == 0 || run.steps() <= asked)) {
    if (was_unknown && run.steps() > 0)
      NoteWalk(mesh, job, run.steps(), moment);
    record.set_steps(std::max(record.steps(), run.steps()));
  }
  if (!IsInference(job.record.spec)) {
    record.set_step(
        std::max(record.step(), std::min(run.step(), MostSteps(job.record))));
  }
  TakeNotes(mesh, job, run, moment);
  const bool counts =
      reads && run.total_samples() > 0 && record.total_samples() == 0;
  const bool infers = IsInference(job.record.spec);
  const bool names = reads && !infers && record.names().classes().empty() &&
                     !run.names().classes().empty();
  if (counts) record.set_total_samples(run.total_samples());
  if (counts || names) *record.mutable_names() = run.names();
  if (infers ? counts : names || (was_unknown && record.steps() > 0)) {
    mesh.OpenWeights(job, moment);
    // The job has failed if its predictions have no layout.
    if (HasEnded(job.record.state())) return;
  }
  TakeMarks(job, worker, run);
  if (run.phase() == v1::RunState::PHASE_PREPARING) {
    job.progress.preparing_since.try_emplace(worker, moment.now);
  } else {
    job.progress.preparing_since.erase(worker);
  }
  mesh.Put(job);
}

void TakeEvaluation(MeshState& mesh, JobEntry& job,
                    const v1::EvaluationRecord& evaluation, Moment moment) {
  if (evaluation.step() > MostSteps(job.record)) return;
  mesh.actions.writes.records[job.record.id()].evaluations.push_back(
      evaluation);
  if (evaluation.step() <= job.record.job.evaluated_step()) return;
  job.record.job.set_evaluated_step(evaluation.step());
  job.record.job.set_accuracy(evaluation.accuracy());
  SetBroken(evaluation, job.record.job);
  mesh.AddEvent(job, moment, "evaluated",
                EvaluationText(job.record.spec, evaluation));
}

void OnAllDone(MeshState& mesh, JobEntry& job, Moment moment) {
  const JobRecord& record = job.record;
  if (MostlySkipped(record)) {
    mesh.FailJob(job, WhyMostlySkipped(record), AdviceAfterSkips(record),
                 moment);
    return;
  }
  const std::string why = WhyNotFinite(record);
  if (!why.empty()) {
    mesh.FailJob(job, why, AdviceAfterSkips(record), moment);
    return;
  }
  job.saving = true;
  if (IsInference(record.spec)) {
    const v1::PredictedMark& all = record.job.predicted();
    const auto sum = EvaluationOf(/*step=*/0, all.labels(), all.loss(),
                                  static_cast<double>(all.correct()));
    if (sum.has_value()) TakeEvaluation(mesh, job, *sum, moment);
  }
  mesh.actions.weights.push_back(
      {Actions::Weights::Kind::kSave, record.fence(), {}});
  mesh.AddEvent(job, moment, "saving",
                IsInference(record.spec)
                    ? "the last stage has handed its predictions over"
                : job.group.has_value()
                    ? "a member has handed the weights over"
                    : "all stages have handed their weights over");
}

double SamplesPerSecond(const JobEntry& job) {
  const ProgressState& progress = job.progress;
  if (progress.recent.size() < 2) return job.record.job.samples_per_second();
  int64_t samples = 0;
  for (const Rate& rate : progress.recent) samples += rate.samples;
  samples -= progress.recent.front().samples;  // done before the window began
  const int64_t ms =
      progress.recent.back().unix_ms - progress.recent.front().unix_ms;
  return ms <= 0 ? 0 : 1000.0 * static_cast<double>(samples) / ms;
}

}  // namespace paceline

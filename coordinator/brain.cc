#include "coordinator/brain.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/advice.h"
#include "coordinator/job_text.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "core/cluster/registration.h"
#include "core/model/aggregation.h"
#include "core/rpc/convert.h"
#include "core/rpc/report_convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Of records, for samples_per_second.
constexpr int64_t kRateWindowMs = 2000;
// And at most so many, whatever a worker's clock does.
constexpr size_t kMostRates = 4096;
// Steps that may come in another order than they were made in.
constexpr size_t kMostCounted = 4096;
// Runs of skipped steps that get events of their own, in a job.
constexpr int kMostSkipRuns = 100;

// A count or a time of a worker, so that kMostRates of them can be added and
// any two taken from each other.
int64_t Bounded(int64_t number) {
  return std::clamp<int64_t>(number, 0, int64_t{1} << 50);
}

}  // namespace

Brain::Brain(const BrainPolicy& policy, StoredState stored, Moment start)
    : policy_(policy),
      start_(start.now),
      membership_(policy.membership, start.now),
      drained_(std::move(stored.drained)),
      term_(stored.term + 1),
      next_job_(stored.next_job) {
  actions_.writes.term = term_;
  for (const auto& [id, registration] : stored.workers) {
    membership_.Restore(id, registration);
  }
  measured_ = std::move(stored.measurements);
  for (auto& [id, record] : stored.jobs) {
    Job& job = jobs_[id];
    job.record = std::move(record);
    job.restored = true;
    job.counted_through = job.record.job.recorded_step();
    job.kept = stored.views[id];
    if (HasEnded(job.record.state())) {
      ++ended_[job.record.state()];
      continue;
    }
    open_.insert(id);
    if (job.record.state() != JobState::kRunning) continue;
    for (const v1::JobWorker& worker : job.record.job.workers()) {
      if (!worker.let_go()) busy_[WorkerId{worker.id()}] = id;
    }
    OpenWeights(job, start);
    if (IsDataParallel(job.record.spec)) {
      RestoreGroup(job, start);
    }
  }
}

// --- workers ----------------------------------------------------------------

absl::StatusOr<AttachVerdict> Brain::OnAttach(
    const v1::Registration& registration, StreamId stream, Moment moment) {
  PACELINE_RETURN_IF_ERROR(CheckRegistration(registration));
  PACELINE_ASSIGN_OR_RETURN(
      const AttachVerdict verdict,
      membership_.OnAttach(registration, stream, moment.now));
  actions_.writes.workers[verdict.id] = registration;
  if (verdict.replaced.assigned()) {
    sent_.erase(verdict.replaced);
    actions_.ends.push_back(
        {verdict.replaced,
         absl::AbortedError(absl::StrCat(
             "worker ", registration.name(), " has attached on a newer stream",
             verdict.arrival == Arrival::kRestarted
                 ? absl::StrCat(", as another process (pid ",
                                registration.pid(), " at ",
                                registration.address(),
                                "): two workers of one machine need a --name "
                                "each")
                 : ""))});
  }
  AddNotice(verdict.id, absl::StrCat("worker ", registration.name(),
                                     verdict.arrival == Arrival::kReattached
                                         ? " re-attached"
                                     : verdict.arrival == Arrival::kRestarted
                                         ? " attached as a new process"
                                         : " attached"));
  if (verdict.arrival != Arrival::kReattached) {
    measures_.OnArrival(registration.name(), LiveNames());
  }
  Job* const job = JobOf(verdict.id);
  if (verdict.arrival == Arrival::kRestarted && job != nullptr) {
    job->preparing_since.erase(verdict.id);
    if (!job->saving && !IsDataParallel(job->record.spec) &&
        Began(job->record, *FindWorker(job->record, verdict.id))) {
      OnPipelineBroken(
          *job,
          {.kind = PipelineBreak::Kind::kWorkerGone,
           .why = absl::StrCat("worker ", registration.name(), " restarted ",
                               AtStep(job->record), " and what it had of ",
                               StagesOf(job->record, verdict.id), " is gone"),
           .error = {}},
          moment);
    }
  }
  // Looked up again: a job that failed has let its workers go.
  if (Job* const still = JobOf(verdict.id)) CheckGroup(*still, moment);
  queue_changed_ = true;
  Settle(moment);
  return verdict;
}

void Brain::OnStreamBroken(StreamId stream, Moment moment) {
  sent_.erase(stream);
  const auto change = membership_.OnStreamBroken(stream, moment.now);
  if (!change.has_value()) return;
  // A second witness was there already: it need not wait for the tick.
  TakeChanges({*change}, moment);
  Settle(moment);
}

absl::Status Brain::OnReport(StreamId stream, WorkerReport report,
                             Moment moment) {
  const v1::Heartbeat& heartbeat = report.heartbeat;
  const Member* const member = membership_.OnHeard(stream, moment.now);
  if (member == nullptr) {
    return absl::AbortedError(
        "heartbeat on a stream that was replaced or lost");
  }
  actions_.acks.push_back({stream, heartbeat.sequence()});
  if (heartbeat.restarting() && !member->restarting) {
    membership_.OnRestarting(stream);
    AddNotice(member->id, absl::StrCat("worker ", member->registration.name(),
                                       " executes itself anew"));
  }
  if (heartbeat.stopping()) {
    const auto change = membership_.OnStopping(stream, moment.now);
    if (change.has_value()) {
      TakeChanges({*change}, moment);
      Settle(moment);
    }
  }
  if (heartbeat.has_measurement()) {
    TakeMeasurement(*member, heartbeat.measurement());
    Settle(moment);
  }
  if (!report.member.has_value()) {
    membership_.OnLinks(member->id, {}, moment.now);  // it has no neighbours
  }
  if (!heartbeat.has_run()) return absl::OkStatus();
  Job* const job = FindJob(JobId{heartbeat.run().job()});
  if (job == nullptr || FindWorker(job->record, member->id) == nullptr) {
    return absl::OkStatus();
  }
  TakeRecords(*job, *member, report, moment);
  if (FindRunning(FenceOf(heartbeat.run())) == job) {
    TakeRun(*job, member->id, heartbeat.run(), moment);
    TakeMemberReport(*job, *member, report, moment);
  }
  Settle(moment);
  return absl::OkStatus();
}

void Brain::TakeRecords(Job& job, const Member& member, WorkerReport& report,
                        Moment moment) {
  v1::Heartbeat& heartbeat = report.heartbeat;
  for (v1::LogLine& line : *heartbeat.mutable_logs()) {
    line.set_source(member.registration.name());
    actions_.writes.records[job.record.id()].logs.emplace_back(
        member.incarnation(), std::move(line));
  }
  // Steps of an earlier attempt, or that came after the end, are not the
  // job's any more.
  if (FindRunning(FenceOf(heartbeat.run())) != &job) return;
  for (const v1::RoundRecord& round : heartbeat.rounds()) {
    TakeRound(job, round, moment);
  }
  if (heartbeat.steps().empty() && heartbeat.evaluations().empty()) return;
  StoreBatch::Records& records = actions_.writes.records[job.record.id()];
  for (const v1::StepRecord& step : heartbeat.steps()) {
    records.steps.push_back(step);
    if (IsNewStep(job, step.step())) CountStep(job, step, moment);
  }
  TrimRecent(job);
  for (const v1::EvaluationRecord& evaluation : heartbeat.evaluations()) {
    if (job.group.has_value()) {
      TakePartEvaluation(job, member.id, evaluation, moment);
    } else {
      TakeEvaluation(job, evaluation, moment);
    }
  }
  Put(job);
}

// One that came before, and whose acknowledgement was lost, counts once.  Those
// of a round group come from several members, in any order.
bool Brain::IsNewStep(Job& job, int64_t step) {
  if (step <= job.counted_through || !job.counted.insert(step).second) {
    return false;
  }
  if (job.counted.size() > kMostCounted) {
    job.counted_through = *job.counted.begin();
    job.counted.erase(job.counted.begin());
  }
  return true;
}

void Brain::CountStep(Job& job, const v1::StepRecord& step, Moment moment) {
  JobRecord& record = job.record;
  const bool newest = step.step() > record.job.recorded_step();
  record.job.set_recorded_step(
      std::max(record.job.recorded_step(), step.step()));
  record.job.set_step(std::max(record.job.step(), step.step()));
  job.recent.push_back(
      {step.step(), Bounded(step.samples()), Bounded(step.unix_ms())});
  record.job.set_skipped_steps(record.job.skipped_steps() + step.skipped());
  if (!newest) return;
  job.loss = step.loss();
  if (step.skipped()) {
    if (record.job.skipping_since() > 0) return;
    record.job.set_skipping_since(step.step());
    if (++job.skip_runs > kMostSkipRuns) return;
    AddEvent(job, "skipping",
             absl::StrCat("steps are skipped from step ", step.step(),
                          " on: ", SkipReason(step),
                          job.skip_runs == kMostSkipRuns
                              ? "; later ones are only counted"
                              : ""),
             moment);
  } else if (record.job.skipping_since() > 0) {
    const int64_t skipped = step.step() - record.job.skipping_since();
    record.job.set_skipping_since(0);
    if (job.skip_runs > kMostSkipRuns) return;
    AddEvent(
        job, "applying",
        absl::StrCat("steps apply again from step ", step.step(), " on, after ",
                     skipped,
                     skipped == 1 ? " that was skipped" : " that were skipped"),
        moment);
  }
}

void Brain::TakeRun(Job& job, WorkerId worker, const v1::RunState& run,
                    Moment moment) {
  v1::Job& record = job.record.job;
  v1::JobWorker& part = *FindWorker(job.record, worker);
  TakeUnreadable(job, part, run, moment);
  const v1::RunState::Phase before = part.run().phase();
  *part.mutable_run() = run;
  part.mutable_run()->clear_member();
  part.mutable_run()->set_phase(before);
  if (run.has_flow()) TakeFlow(job, moment);
  TakeTimes(job.record, worker, run);
  if (!IsInference(job.record.spec)) {
    record.set_step(std::max(record.step(), run.step()));
  }
  record.set_steps(std::max(record.steps(), run.steps()));
  if (IsInference(job.record.spec) && run.total_samples() > 0 &&
      record.total_samples() == 0) {
    record.set_total_samples(run.total_samples());
    OpenWeights(job, moment);
    // What cannot be laid out has ended the job.
    if (HasEnded(job.record.state())) return;
  }
  if (run.phase() == v1::RunState::PHASE_PREPARING) {
    job.preparing_since.try_emplace(worker, moment.now);
  } else {
    job.preparing_since.erase(worker);
  }
  if (job.group.has_value()) {
    // TakeMemberReport() judges it.
    part.mutable_run()->set_phase(run.phase());
  } else if (run.phase() > before) {
    OnPhase(job, part, run, moment);
  }
  Put(job);
}

void Brain::TakeUnreadable(Job& job, v1::JobWorker& part,
                           const v1::RunState& run, Moment moment) {
  if (run.unreadable_samples() > 0 && part.run().unreadable_samples() == 0) {
    AddEvent(job, "unreadable",
             absl::StrCat("worker ", part.name(),
                          " cannot read all samples of the data set and leaves "
                          "them out: 'paceline job logs ",
                          job.record.id().value, "' names them"),
             moment);
  }
}

void Brain::TakeFlow(Job& job, Moment moment) {
  if (!IsInference(job.record.spec)) return;
  // What has left the pipeline, by whichever replica of its last stage.
  int64_t micro_batches = 0;
  int64_t samples = 0;
  for (const v1::JobWorker* const last : LastStageOf(job.record)) {
    micro_batches += last->run().flow().micro_batches();
    samples += last->run().flow().samples();
  }
  if (micro_batches <= job.record.job.step()) return;
  const int64_t before = job.recent.empty() ? 0 : job.flow_samples;
  job.record.job.set_step(micro_batches);
  job.flow_samples = samples;
  job.recent.push_back(
      {micro_batches, Bounded(samples - before), moment.unix_ms});
  TrimRecent(job);
}

void Brain::TrimRecent(Job& job) {
  while (job.recent.size() > kMostRates ||
         (job.recent.size() > 2 &&
          job.recent.back().unix_ms - job.recent[1].unix_ms >= kRateWindowMs)) {
    job.recent.pop_front();
  }
}

void Brain::OnPhase(Job& job, v1::JobWorker& worker, const v1::RunState& run,
                    Moment moment) {
  const bool were_running = AllAtLeast(job.record, v1::RunState::PHASE_RUNNING);
  worker.mutable_run()->set_phase(run.phase());
  if (run.phase() == v1::RunState::PHASE_FAILED) {
    const absl::Status error = ErrorOf(run);
    return OnPipelineBroken(
        job,
        {.kind = PipelineBreak::Kind::kWorkerFailed,
         .why = absl::StrCat("worker ", worker.name(), " (",
                             StagesOf(job.record, WorkerId{worker.id()}),
                             ") failed ", AtStep(job.record), ": ",
                             error.message()),
         .error = error},
        moment);
  }
  if (!were_running && AllAtLeast(job.record, v1::RunState::PHASE_RUNNING)) {
    AddEvent(job, "running",
             IsInference(job.record.spec) ? "all workers are ready and predict"
                                          : "all workers are ready and train",
             moment);
  }
  if (!job.saving && AllAtLeast(job.record, v1::RunState::PHASE_DONE)) {
    OnAllDone(job, moment);
  }
}

// Of an inference job the sums of all replicas of its last stage, always added
// in the same order.
void Brain::Evaluate(Job& job, Moment moment) {
  int64_t samples = 0;
  double loss = 0;
  double correct = 0;
  for (const v1::JobWorker* const last : LastStageOf(job.record)) {
    samples += last->run().flow().labels();
    loss += last->run().flow().loss();
    correct += static_cast<double>(last->run().flow().correct());
  }
  const auto sum = EvaluationOf(/*step=*/0, samples, loss, correct);
  if (sum.has_value()) TakeEvaluation(job, *sum, moment);
}

void Brain::TakeEvaluation(Job& job, const v1::EvaluationRecord& evaluation,
                           Moment moment) {
  actions_.writes.records[job.record.id()].evaluations.push_back(evaluation);
  if (evaluation.step() <= job.record.job.evaluated_step()) return;
  job.record.job.set_evaluated_step(evaluation.step());
  job.accuracy = evaluation.accuracy();
  AddEvent(job, "evaluated", EvaluationText(job.record.spec, evaluation),
           moment);
}

void Brain::OnAllDone(Job& job, Moment moment) {
  const JobRecord& record = job.record;
  if (MostlySkipped(record)) {
    FailJob(job, WhyMostlySkipped(record), AdviceAfterSkips(record.spec),
            moment);
    return;
  }
  job.saving = true;
  if (IsInference(record.spec)) Evaluate(job, moment);
  actions_.weights.push_back(
      {Actions::Weights::Kind::kSave, record.fence(), {}});
  AddEvent(job, "saving",
           IsInference(record.spec)
               ? "the last stage has handed its predictions over"
           : job.group.has_value()
               ? "a member has handed the weights over"
               : "all stages have handed their weights over",
           moment);
}

void Brain::TakeChanges(const std::vector<MembershipChange>& changes,
                        Moment moment) {
  for (const MembershipChange& change : changes) {
    const Member member = *membership_.Find(change.id);
    AddNotice(member.id,
              absl::StrCat("worker ", member.registration.name(), " is ",
                           MemberStateName(change.state), ": ", member.why),
              change.state != MemberState::kStopped);
    if (IsGone(change.state)) OnWorkerLost(member, moment);
  }
}

void Brain::OnStandstill(absl::Duration duration, Moment moment) {
  membership_.OnStandstill(duration, moment.now);
  start_ = std::min(start_ + duration, moment.now);
}

void Brain::OnTick(Moment moment) {
  TakeChanges(membership_.OnTick(moment.now), moment);
  for (Job* const job : OpenJobs()) {
    if (job->record.state() == JobState::kRunning) {
      job->group.has_value() ? CheckGroup(*job, moment)
                             : CheckWorkersOf(*job, moment);
    }
    RefreshWhy(*job, moment);
  }
  // Suspects that were heard again and the time after a start come without
  // an event of their own.
  queue_changed_ = true;
  Settle(moment);
}

void Brain::OnWorkerLost(const Member& member, Moment moment) {
  const bool lost = member.state == MemberState::kLost;
  if (lost && member.stream.assigned()) {
    actions_.ends.push_back({member.stream, absl::UnavailableError(absl::StrCat(
                                                "counted as lost: ", member.why,
                                                "; attach again"))});
    OnStreamBroken(member.stream, moment);
  }
  queue_changed_ = true;
  Job* const job = JobOf(member.id);
  if (job == nullptr) return;
  if (job->group.has_value()) return CheckGroup(*job, moment);
  AddEvent(*job, lost ? "lost" : "left",
           absl::StrCat("worker ", member.registration.name(), " is ",
                        MemberStateName(member.state), ": ", member.why),
           moment);
}

void Brain::CheckWorkersOf(Job& job, Moment moment) {
  if (job.saving) return;  // the workers have given all that they had
  for (const v1::JobWorker& worker : job.record.job.workers()) {
    const WorkerId id{worker.id()};
    const Member* const member = membership_.Find(id);
    if (member != nullptr && !IsGone(member->state)) continue;
    const MembershipPolicy& policy = policy_.membership;
    const bool seen = member != nullptr && member->seen;
    const Instant since = member != nullptr ? member->gone_since : start_;
    const absl::Duration patience = !Began(job.record, worker)
                                        ? policy_.return_period
                                    : seen ? absl::ZeroDuration()
                                           : policy.lease + policy.grace;
    if (moment.now - since < patience) continue;
    return OnPipelineBroken(
        job,
        {.kind = PipelineBreak::Kind::kWorkerGone,
         .why = absl::StrCat(
             "worker ", worker.name(), " (", StagesOf(job.record, id), ") was ",
             member != nullptr ? MemberStateName(member->state) : "lost", " ",
             AtStep(job.record), ": ",
             member != nullptr ? member->why : "it is not known"),
         .error = {}},
        moment);
  }
}

// A report has the whole run so far of its worker's stages.
void Brain::TakeTimes(JobRecord& record, WorkerId worker,
                      const v1::RunState& run) {
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

// --- jobs -------------------------------------------------------------------

void Brain::AddStages(const std::vector<StageOfPlan>& stages,
                      v1::SubmitJobResponse& answer) const {
  for (const StagePlacement& stage : Place(stages)) {
    *answer.add_stages() = ToProto(stage);
  }
}

absl::StatusOr<Submission> Brain::CheckSubmit(
    const v1::SubmitJobRequest& request, Moment moment) const {
  Submission submission;
  const auto known =
      request.request_id().empty()
          ? jobs_.end()
          : std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
              return entry.second.record.job.request_id() ==
                     request.request_id();
            });
  if (known != jobs_.end()) {
    submission.job = known->second.record;
    submission.repeated = true;
    AddStages(submission.job.stages, submission.answer);
    return submission;
  }
  const JobSpec spec = FromProto(request.spec());
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec));
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, Describe(spec));
  const std::vector<Candidate> candidates = Candidates();
  PACELINE_RETURN_IF_ERROR(CheckFaultsOf(spec, candidates));
  const PlacementVerdict verdict =
      DecidePlacement(spec, model, candidates, measured_);
  PACELINE_RETURN_IF_ERROR(verdict.impossible);
  const Plan* const plan = verdict.plan ? &*verdict.plan : nullptr;
  if (plan != nullptr) {
    PACELINE_RETURN_IF_ERROR(
        CheckMembersOfRule(spec, std::ssize(plan->stages)));
  }
  v1::SubmitJobResponse& answer = submission.answer;
  for (const std::string& note : PlacementNotes(spec, plan, candidates)) {
    answer.add_notes(note);
  }
  if (plan != nullptr) {
    AddStages(plan->stages, answer);
    if (const std::optional<v1::RunEstimate> estimate =
            EstimateOf(spec, model, plan->stages)) {
      *answer.mutable_estimate() = *estimate;
    }
    const std::string left_out = DealingNote(spec, *plan, candidates);
    if (!left_out.empty()) answer.add_notes(left_out);
  } else {
    answer.add_notes(absl::StrCat("queued: it ", verdict.why));
  }
  submission.job.spec = spec;
  v1::Job& job = submission.job.job;
  job.set_id(next_job_.value);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_request_id(request.request_id());
  job.set_threads(spec.threads);
  job.set_submitted_unix_ms(moment.unix_ms);
  job.set_evaluated_step(-1);
  return submission;
}

void Brain::OnSubmitted(JobRecord record, Moment moment) {
  next_job_ = JobId{record.id().value + 1};
  Job& job = jobs_[record.id()];
  open_.insert(record.id());
  job.record = std::move(record);
  AddEvent(job, "submitted", absl::StrCat("job ", job.record.spec.name),
           moment);
  queue_changed_ = true;
  Settle(moment);
}

absl::Status Brain::OnStop(JobId id, Moment moment) {
  Job* const job = FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  if (HasEnded(job->record.state())) return absl::OkStatus();
  EndJob(
      *job, JobState::kStopped,
      job->record.state() == JobState::kQueued
          ? "stopped on request before it began"
          : Sentence({absl::StrCat("stopped on request ", AtStep(job->record)),
                      SkippedText(job->record)}),
      moment);
  Settle(moment);
  return absl::OkStatus();
}

absl::Status Brain::CheckDelete(JobId id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return NoSuchJob(id);
  const JobState state = found->second.record.state();
  if (HasEnded(state)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", id.value, " is ", JobStateName(state),
                   "; end it first with: paceline job stop ", id.value));
}

void Brain::OnDeleted(JobId id) {
  const JobRecord& record = jobs_.at(id).record;
  actions_.weights.push_back(
      {Actions::Weights::Kind::kForget, record.fence(), {}});
  // What waits to be stored would bring it back.
  actions_.writes.jobs.erase(id);
  actions_.writes.restarted.erase(id);
  actions_.writes.records.erase(id);
  actions_.writes.views.erase(id);
  --ended_[record.state()];
  jobs_.erase(id);
}

void Brain::OnWeightsSaved(const Fence& fence,
                           absl::StatusOr<SavedWeights> saved, Moment moment) {
  Job* const job = FindRunning(fence);
  if (job == nullptr) return;
  if (!saved.ok()) {
    OnWeightsFailed(fence, saved.status(), moment);
    return;
  }
  // A path may hold any bytes.
  job->record.job.set_weights_path(ToUtf8(saved->path, kMaxStatusMessageBytes));
  job->record.job.set_weights_sha256(saved->sha256);
  EndJob(*job, JobState::kSucceeded,
         Sentence({SkippedText(job->record), UnreadableText(job->record)}),
         moment);
  Settle(moment);
}

void Brain::OnWeightsFailed(const Fence& fence, const absl::Status& error,
                            Moment moment) {
  Job* const job = FindRunning(fence);
  if (job == nullptr || WaitsForUpload(*job, error, moment)) return;
  OnPipelineBroken(
      *job,
      {.kind = PipelineBreak::Kind::kNotSaved,
       .why = absl::StrCat("the ", ResultName(job->record.spec),
                           " could not be saved: ", error.message()),
       .error = error},
      moment);
  Settle(moment);
}

}  // namespace paceline

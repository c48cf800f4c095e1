// The half of Brain that starts and ends jobs, serves the queue and derives the
// standing orders; brain.cc has the events.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/advice.h"
#include "coordinator/brain.h"
#include "coordinator/job_text.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "core/model/aggregation.h"
#include "core/model/predictions.h"
#include "core/rpc/convert.h"
#include "core/rpc/report_convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// Of each kind and job, while the store refuses writes: as many as a worker
// would keep.
constexpr size_t kMostUnstored = 100'000;

template <typename Record>
void KeepNewest(std::vector<Record>& records) {
  if (records.size() <= kMostUnstored) return;
  records.erase(records.begin(), records.end() - kMostUnstored);
}

}  // namespace

// The next attempt, which is durable before any worker is told of it.
void Brain::BeginAttempt(Job& job, const PlacementVerdict& verdict,
                         Moment moment) {
  v1::Job& kept = job.record.job;
  kept.set_state(v1::JOB_STATE_RUNNING);
  kept.clear_why();
  kept.set_attempt(kept.attempt() + 1);
  kept.set_plan_version(kept.plan_version() + 1);
  kept.set_cpu_capability(verdict.cpu_capability);
  if (kept.started_unix_ms() == 0) kept.set_started_unix_ms(moment.unix_ms);
  actions_.writes.durable = true;
}

// What the attempt before had come to.
void Brain::ResetProgress(Job& job) {
  v1::Job& kept = job.record.job;
  kept.clear_recorded_step();
  kept.clear_skipped_steps();
  kept.clear_skipping_since();
  kept.clear_total_samples();
  kept.clear_step();
  kept.set_evaluated_step(-1);
  kept.clear_stage_times();
  kept.clear_timed_seconds();
  kept.clear_timed_steps();
  job.counted_through = 0;
  job.counted.clear();
  job.preparing_since.clear();
}

void Brain::PlaceOn(Job& job, const Plan& plan) {
  JobRecord& record = job.record;
  record.stages = plan.stages;
  record.job.clear_workers();
  std::set<WorkerId> workers;
  for (const StageOfPlan& stage : record.stages) workers.insert(stage.worker);
  for (const WorkerId worker : workers) {
    v1::JobWorker& part = *record.job.add_workers();
    part.set_id(worker.value);
    part.set_name(NameOf(worker));
    part.set_predicted_memory_bytes(BytesOn(plan, worker));
    busy_[worker] = record.id();
  }
}

void Brain::StartJob(Job& job, const PlacementVerdict& verdict, Moment moment) {
  const JobRecord& record = job.record;
  const std::vector<std::string> warnings =
      ThreadWarnings(record.spec, *verdict.plan, Candidates());
  BeginAttempt(job, verdict, moment);
  ResetProgress(job);
  PlaceOn(job, *verdict.plan);
  AddEvent(
      job, "placed",
      absl::StrCat(IsDataParallel(record.spec)
                       ? absl::StrCat(record.job.workers_size(), " members: ")
                       : absl::StrCat(StageNumbers(record.stages).back() + 1,
                                      " stages on "),
                   absl::StrJoin(record.job.workers(), ", ",
                                 [](std::string* out, const auto& worker) {
                                   absl::StrAppend(out, worker.name());
                                 }),
                   verdict.plan->why.empty() ? "" : ": ", verdict.plan->why),
      moment);
  for (const std::string& warning : warnings) {
    AddEvent(job, "warning", warning, moment);
  }
  OpenWeights(job, moment);
  if (IsDataParallel(record.spec) && record.state() == JobState::kRunning) {
    StartGroup(job, moment);
  }
  Put(job);
}

void Brain::OpenWeights(Job& job, Moment moment) {
  absl::StatusOr<SafetensorsLayout> layout =
      [&]() -> absl::StatusOr<SafetensorsLayout> {
    const JobRecord& record = job.record;
    PACELINE_ASSIGN_OR_RETURN(const ModelDescription model,
                              Describe(record.spec));
    if (!IsInference(record.spec)) return LayOut(model);
    // How many there are is the first stage's to say.
    if (record.job.total_samples() == 0) return SafetensorsLayout();
    return LayOutPredictions(model, record.spec.infer,
                             record.job.total_samples());
  }();
  if (!layout.ok()) {
    FailJob(job,
            absl::StrCat("its model cannot be described: ",
                         layout.status().message()),
            AdviceAfter(layout.status()), moment);
    return;
  }
  actions_.weights.push_back(
      {Actions::Weights::Kind::kOpen, job.record.fence(), *std::move(layout)});
}

void Brain::LetGo(const Job& job, v1::JobWorker& worker) {
  worker.set_let_go(true);
  const WorkerId id{worker.id()};
  if (JobOf(id) == &job) busy_.erase(id);
}

// Until recovery exists, it ends the job.
void Brain::OnPipelineBroken(Job& job, const PipelineBreak& cause,
                             Moment moment) {
  switch (cause.kind) {
    case PipelineBreak::Kind::kWorkerGone:
      return FailJob(job, cause.why, SubmitAgain(), moment);
    case PipelineBreak::Kind::kWorkerFailed:
      return FailJob(job, cause.why, AdviceAfter(cause.error), moment);
    case PipelineBreak::Kind::kNotSaved:
      return FailJob(job, cause.why, AdviceAfterSaving(cause.error), moment);
  }
}

void Brain::FailJob(Job& job, const std::string& why, const std::string& advice,
                    Moment moment) {
  EndJob(job, JobState::kFailed,
         Sentence({why, SkippedText(job.record), advice}), moment);
}

void Brain::EndJob(Job& job, JobState state, const std::string& why,
                   Moment moment) {
  JobRecord& record = job.record;
  record.job.set_state(static_cast<v1::JobState>(state));
  record.job.set_why(ToUtf8(why, kMaxStatusMessageBytes));
  record.job.set_ended_unix_ms(moment.unix_ms);
  job.saving = false;
  job.preparing_since.clear();
  if (const std::string rounds = job.events.Summary();
      job.group.has_value() && !rounds.empty()) {
    AddEvent(job, "rounds", rounds, moment);
  }
  job.group.reset();
  job.returns.clear();
  job.renew.clear();
  for (v1::JobWorker& worker : *record.job.mutable_workers()) {
    LetGo(job, worker);
  }
  open_.erase(record.id());
  ++ended_[state];
  if (state != JobState::kSucceeded && record.job.attempt() > 0) {
    actions_.weights.push_back(
        {Actions::Weights::Kind::kForget, record.fence(), {}});
  }
  const std::string where =
      state == JobState::kSucceeded
          ? absl::StrCat(ResultName(record.spec), " are in ",
                         record.job.weights_path())
          : "";
  AddEvent(job, std::string(JobStateName(state)),
           Sentence({where, record.job.why()}), moment);
  Put(job);
  queue_changed_ = true;
}

// --- the queue and the standing orders --------------------------------------

void Brain::Settle(Moment moment) {
  if (queue_changed_) {
    ServeQueue(moment);
    AdmitJoiners(moment);
  }
  measures_.Assign(MeasureWorkers(), moment.now);
  RefreshOrders();
}

void Brain::ServeQueue(Moment moment) {
  queue_changed_ = false;
  const MembershipPolicy& policy = policy_.membership;
  const bool settled =
      moment.now - start_ >= policy.lease + policy.grace ||
      std::all_of(membership_.members().begin(), membership_.members().end(),
                  [](const auto& entry) { return entry.second.seen; });
  JobId head;
  std::string slow;  // what keeps those that the head waits for
  for (Job* const job : OpenJobs()) {
    if (job->record.state() != JobState::kQueued) continue;
    job->may_be_passed = false;
    if (head.assigned()) {
      SetWhy(*job, Sentence({absl::StrCat("waits for job ", head.value,
                                          ", which is before it in the queue"),
                             slow, StoreText()}));
    } else if (HoldsTheQueue(*job, settled, slow, moment)) {
      head = job->record.id();
    } else {
      job->may_be_passed = job->record.state() == JobState::kQueued;
    }
  }
  queue_changed_ = false;  // also what this walk itself has changed
}

// Starts the job if it can; if not, whether later ones have to wait for it.
// settled: the workers have had the time to come back after a restart.
// slow: what keeps those that it waits for.
bool Brain::HoldsTheQueue(Job& job, bool settled, std::string& slow,
                          Moment moment) {
  const JobSpec& spec = job.record.spec;
  if (job.restored && !settled) {
    SetWhy(job, Sentence({"waits for the workers to come back: the "
                          "coordinator has just started",
                          StoreText()}));
    return true;
  }
  if (const std::string whom = WaitsForReturn(job); !whom.empty()) {
    SetWhy(job, Sentence({whom, StoreText()}));
    return true;
  }
  const absl::StatusOr<ModelDescription> model = Describe(spec);
  if (!model.ok()) {
    FailJob(job, std::string(model.status().message()),
            AdviceAfter(model.status()), moment);
    return false;
  }
  const PlacementVerdict verdict = DecideStart(spec, *model, Candidates());
  if (verdict.plan.has_value()) {
    job.record.job.clear_estimate();
    if (const auto estimate = EstimateOf(spec, *model, verdict.plan->stages)) {
      *job.record.job.mutable_estimate() = *estimate;
    }
    StartJob(job, verdict, moment);
    return false;
  }
  // It holds up others only if all workers that are there, were they free,
  // would do: else it may wait for ever.  One that is suspect is there.
  std::vector<Candidate> there;
  for (const auto& [id, member] : membership_.members()) {
    if (IsGone(member.state)) continue;
    there.push_back({&member, JobId{}, false, drained_.contains(id)});
  }
  const bool holds = DecideStart(spec, *model, there).plan.has_value();
  std::string keeps;
  for (const JobId ahead : verdict.waits_for) {
    const Job& other = jobs_.at(ahead);
    const std::string text = PreparingText(other.record, other.preparing_since,
                                           policy_.preparing_bound, moment.now);
    if (text.empty()) continue;
    keeps = Sentence({keeps, absl::StrCat("job ", ahead.value, ": ", text)});
  }
  SetWhy(job, Sentence({verdict.why, keeps, StoreText()}));
  if (holds) slow = keeps;
  return holds;
}

// Also by its rule: every round of fewer than that wants would be void.
PlacementVerdict Brain::DecideStart(
    const JobSpec& spec, const ModelDescription& model,
    const std::vector<Candidate>& candidates) const {
  PlacementVerdict verdict =
      DecidePlacement(spec, model, candidates, measured_);
  if (!verdict.plan.has_value()) return verdict;
  const absl::Status rule =
      CheckMembersOfRule(spec, std::ssize(verdict.plan->stages));
  if (rule.ok()) return verdict;
  verdict.plan.reset();
  verdict.why = absl::StrCat("waits for more workers: ", rule.message());
  return verdict;
}

void Brain::RefreshOrders() {
  for (const auto& [id, member] : membership_.members()) {
    if (!member.stream.assigned()) continue;
    StandingOrder order = OrderOf(id);
    const auto [sent, first] = sent_.try_emplace(member.stream, order);
    if (!first) {
      if (sent->second == order) continue;
      sent->second = order;
    }
    actions_.orders.push_back({member.stream, std::move(order)});
  }
}

StandingOrder Brain::OrderOf(WorkerId worker) const {
  const Job* const of_worker = JobOf(worker);
  if (of_worker == nullptr) {
    return {std::nullopt, measures_.OrderOf(NameOf(worker))};
  }
  const JobRecord& job = of_worker->record;
  if (IsDataParallel(job.spec)) return GroupOrderOf(*of_worker, worker);
  RunOrder run;
  run.fence = job.fence();
  run.spec = job.spec;
  run.stages = Place(job.stages);
  run.routes = RoutesOf(job.stages);
  run.cpu_capability = job.job.cpu_capability();
  run.threads = job.job.threads();
  return {std::move(run), std::nullopt};
}

std::vector<StagePlacement> Brain::Place(
    const std::vector<StageOfPlan>& stages) const {
  const std::vector<int> numbers = StageNumbers(stages);
  std::vector<StagePlacement> placements;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageOfPlan& stage = stages[i];
    const Member* const member = membership_.Find(stage.worker);
    placements.push_back(
        {numbers[i], stage.layers, stage.worker,
         member != nullptr ? member->registration.name() : "",
         member != nullptr ? member->registration.address() : "", stage.share});
  }
  return placements;
}

// --- small things -----------------------------------------------------------

Brain::Job* Brain::FindJob(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

Brain::Job* Brain::JobOf(WorkerId worker) {
  const auto busy = busy_.find(worker);
  return busy == busy_.end() ? nullptr : &jobs_.at(busy->second);
}

const Brain::Job* Brain::JobOf(WorkerId worker) const {
  const auto busy = busy_.find(worker);
  return busy == busy_.end() ? nullptr : &jobs_.at(busy->second);
}

Brain::Job* Brain::FindRunning(const Fence& fence) {
  Job* const job = FindJob(fence.job);
  if (job == nullptr || job->record.state() != JobState::kRunning)
    return nullptr;
  return job->record.fence() == fence ? job : nullptr;
}

std::vector<Brain::Job*> Brain::OpenJobs() {
  std::vector<Job*> jobs;
  for (const JobId id : open_) jobs.push_back(&jobs_.at(id));
  return jobs;
}

std::vector<Candidate> Brain::Candidates() const {
  std::vector<Candidate> candidates;
  for (const auto& [id, member] : membership_.members()) {
    if (member.state != MemberState::kLive) continue;
    const Job* const job = JobOf(id);
    candidates.push_back({&member, job == nullptr ? JobId{} : job->record.id(),
                          measures_.Holds(member.registration.name()),
                          drained_.contains(id)});
  }
  return candidates;
}

std::string Brain::NameOf(WorkerId worker) const {
  const Member* const member = membership_.Find(worker);
  return member != nullptr ? member->registration.name()
                           : absl::StrCat(worker.value);
}

double Brain::SamplesPerSecond(const Job& job) const {
  if (job.recent.size() < 2) return 0;
  int64_t samples = 0;
  for (const Rate& rate : job.recent) samples += rate.samples;
  samples -= job.recent.front().samples;  // done before the window began
  const int64_t ms = job.recent.back().unix_ms - job.recent.front().unix_ms;
  return ms <= 0 ? 0 : 1000.0 * static_cast<double>(samples) / ms;
}

void Brain::Put(const Job& job) {
  actions_.writes.jobs[job.record.id()] = job.record;
}

void Brain::SetWhy(Job& job, const std::string& text) {
  const std::string why = ToUtf8(text, kMaxStatusMessageBytes);
  if (job.record.job.why() == why) return;
  job.record.job.set_why(why);
  if (!why.empty()) {
    actions_.notices.push_back(
        {false, absl::StrCat("job ", why), job.record.id(), WorkerId{}});
  }
  Put(job);
}

void Brain::AddEvent(const Job& job, const std::string& kind,
                     const std::string& text, Moment moment) {
  const JobId id = job.record.id();
  v1::JobEvent& event = actions_.writes.records[id].events.emplace_back();
  event.set_unix_ms(moment.unix_ms);
  event.set_kind(kind);
  event.set_text(ToUtf8(text, kMaxStatusMessageBytes));
  const bool warn = kind == "failed" || kind == "lost" || kind == "warning" ||
                    kind == "skipping" || kind == "store" ||
                    kind == "evicted" || kind == "takeover" || kind == "void" ||
                    kind == "mismatch" || kind == "paused" || kind == "again";
  actions_.notices.push_back(
      {warn, absl::StrCat("job ", kind, ": ", text), id, WorkerId{}});
}

void Brain::AddNotice(WorkerId worker, const std::string& text, bool warn) {
  actions_.notices.push_back({warn, text, JobId{}, worker});
}

Actions Brain::TakeActions() { return std::exchange(actions_, Actions{}); }

// --- a store that refuses writes --------------------------------------------

std::string Brain::StoreText() const {
  if (store_error_.empty()) return "";
  return absl::StrCat("the coordinator cannot store its state: ", store_error_);
}

void Brain::RefreshWhy(Job& job, Moment moment) {
  if (job.record.state() != JobState::kRunning) return;
  SetWhy(job, Sentence({PreparingText(job.record, job.preparing_since,
                                      policy_.preparing_bound, moment.now),
                        job.group.has_value() ? job.group->PausedText() : "",
                        StoreText()}));
}

void Brain::OnStoreFailed(const absl::Status& error, Moment moment) {
  actions_.acks.clear();
  for (auto& [id, records] : actions_.writes.records) {
    KeepNewest(records.steps);
    KeepNewest(records.evaluations);
    KeepNewest(records.logs);
  }
  if (store_error_ == error.message()) return;
  store_error_ = std::string(error.message());
  for (Job* const job : OpenJobs()) {
    AddEvent(*job, "store",
             absl::StrCat(StoreText(),
                          "; what goes on is kept in memory until it can"),
             moment);
    RefreshWhy(*job, moment);
  }
  ServeQueue(moment);
}

void Brain::OnStoreWorks(Moment moment) {
  if (store_error_.empty()) return;
  store_error_.clear();
  for (Job* const job : OpenJobs()) {
    AddEvent(*job, "store", "the coordinator stores its state again", moment);
    RefreshWhy(*job, moment);
  }
  queue_changed_ = true;
  Settle(moment);
}

std::vector<v1::JobEvent> Brain::PendingEvents(JobId job) const {
  const auto found = actions_.writes.records.find(job);
  if (found == actions_.writes.records.end()) return {};
  return found->second.events;
}

// --- views ------------------------------------------------------------------

absl::StatusOr<const JobRecord*> Brain::FindRecord(JobId id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return NoSuchJob(id);
  return &found->second.record;
}

absl::StatusOr<v1::Job> Brain::ViewJob(JobId id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return NoSuchJob(id);
  return ViewOf(found->second);
}

v1::Job Brain::ViewOf(const Job& job) const {
  v1::Job view = job.record.job;
  *view.mutable_spec() = ToProto(job.record.spec);
  std::map<WorkerId, v1::JobMember> members;
  if (job.group.has_value()) members = job.group->Members();
  const std::vector<StagePlacement> stages = Place(job.record.stages);
  for (v1::JobWorker& part : *view.mutable_workers()) {
    const WorkerId worker{part.id()};
    const auto member = members.find(worker);
    if (member != members.end()) *part.mutable_member() = member->second;
    for (const StagePlacement& stage : stages) {
      if (stage.worker == worker) *part.add_stages() = ToProto(stage);
    }
  }
  view.set_samples_per_second(SamplesPerSecond(job));
  if (job.loss.has_value()) view.set_loss(*job.loss);
  if (job.accuracy.has_value()) view.set_accuracy(*job.accuracy);
  view.set_phase(PhaseOfJob(job));
  for (const v1::StageDrift& drift : DriftOf(job.record)) {
    *view.add_drift() = drift;
  }
  for (const v1::StageTime& time : job.record.job.stage_times()) {
    if (time.versions().updates() == 0) continue;
    v1::StageVersions& versions = *view.add_versions();
    versions = time.versions();
    versions.set_stage(time.stage());
  }
  view.set_step_seconds(MeasuredStepSeconds(job.record));
  return view;
}

std::vector<v1::Job> Brain::ViewJobs(int64_t limit) const {
  std::vector<v1::Job> views;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    if (limit > 0 && std::ssize(views) >= limit) break;
    views.push_back(ViewOf(it->second));
  }
  return views;
}

std::vector<v1::Job> Brain::ViewOpenJobs() const {
  std::vector<v1::Job> views;
  for (const JobId id : open_) views.push_back(ViewOf(jobs_.at(id)));
  return views;
}

std::map<JobState, int64_t> Brain::CountJobs() const {
  std::map<JobState, int64_t> jobs = ended_;
  for (const JobId id : open_) ++jobs[jobs_.at(id).record.state()];
  return jobs;
}

std::vector<v1::Worker> Brain::ViewWorkers(Instant now) const {
  std::vector<v1::Worker> views;
  for (const auto& [id, member] : membership_.members()) {
    views.push_back(ViewWorker(member, now));
  }
  return views;
}

v1::Worker Brain::ViewWorker(const Member& member, Instant now) const {
  v1::Worker view;
  view.set_id(member.id.value);
  *view.mutable_registration() = member.registration;
  view.set_last_heard_seconds(absl::ToDoubleSeconds(now - member.last_heard));
  view.set_drained(drained_.contains(member.id));
  const Job* const job = JobOf(member.id);
  // By MemberState, of workers that do nothing.
  constexpr v1::WorkerState kStates[] = {
      v1::WORKER_STATE_IDLE, v1::WORKER_STATE_SUSPECT, v1::WORKER_STATE_LOST,
      v1::WORKER_STATE_STOPPED};
  view.set_state(kStates[static_cast<int>(member.state)]);
  if (member.state == MemberState::kLive && job != nullptr) {
    view.set_state(v1::WORKER_STATE_BUSY);
  } else if (member.state == MemberState::kLive &&
             measures_.Holds(member.registration.name())) {
    view.set_state(v1::WORKER_STATE_MEASURING);
  }
  if (job == nullptr) return view;
  view.set_job(job->record.id().value);
  const std::vector<StageOfPlan>& stages = job->record.stages;
  const std::vector<int> numbers = StageNumbers(stages);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].worker == member.id) view.add_stages(numbers[i]);
  }
  return view;
}

}  // namespace paceline

#include "coordinator/mesh/mesh_state.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/mesh/job_progress.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/aggregation.h"
#include "core/job/job_model.h"
#include "core/rpc/status.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

absl::StatusOr<const Member*> MeshState::FindMember(
    const std::string& worker) const {
  const Member* found = nullptr;
  std::vector<std::string> names;
  for (const auto& [id, member] : membership.members()) {
    names.push_back(member.registration.name());
    if (member.registration.name() == worker) found = &member;
  }
  for (const auto& [id, member] : membership.members()) {
    if (found == nullptr && absl::StrCat(id.value) == worker) found = &member;
  }
  if (found == nullptr) {
    return NotFound(
        "no worker '", worker, "'; known are: ",
        names.empty() ? std::string("none") : absl::StrJoin(names, ", "));
  }
  return found;
}

std::vector<JobEntry*> MeshState::JobsOf(const std::set<JobId>& ids) {
  std::vector<JobEntry*> there;
  for (const JobId id : ids) there.push_back(&jobs.at(id));
  return there;
}

JobEntry* MeshState::FindRunning(const Fence& fence) {
  JobEntry* const job = FindJob(fence.job);
  if (job == nullptr || job->record.state() != v1::JOB_STATE_RUNNING) {
    return nullptr;
  }
  return job->record.fence() == fence ? job : nullptr;
}

std::vector<Candidate> MeshState::Candidates() const {
  std::vector<Candidate> candidates;
  for (const auto& [id, member] : membership.members()) {
    if (member.state != MemberState::kLive) continue;
    const JobEntry* const job = JobOf(id);
    candidates.push_back({&member, job == nullptr ? JobId{} : job->record.id(),
                          measures.Holds(member.registration.name()),
                          IsDrained(id)});
  }
  return candidates;
}

// The stream id covers the registration: each one comes with a new stream.
uint64_t MeshState::PlacementKey() const {
  std::vector<int64_t> numbers = {measured.version};
  for (const auto& [id, member] : membership.members()) {
    if (IsGone(member.state)) continue;
    const JobEntry* const job = JobOf(id);
    numbers.insert(numbers.end(),
                   {id.value, static_cast<int64_t>(member.incarnation().value),
                    member.stream.value, static_cast<int64_t>(member.state),
                    job == nullptr ? 0 : job->record.id().value,
                    measures.Holds(member.registration.name()), IsDrained(id)});
  }
  return paceline::PlacementKey(numbers);
}

const PlacementVerdict* MeshState::PlacementOf(
    PlacementMemo& memo, uint64_t key, std::vector<double> slowness,
    const JobSpec& spec, const InputsOfPlacement& inputs) {
  return memo.Get(
      key, std::move(slowness), place_later, [&]() -> MakePlacement {
        ++placements;
        return [spec, seen = inputs()] { return seen->Start(spec); };
      });
}

std::vector<StagePlacement> MeshState::Place(
    const std::vector<StageOfPlan>& stages) const {
  const std::vector<int> numbers = StageNumbers(stages);
  std::vector<StagePlacement> placements;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageOfPlan& stage = stages[i];
    const Member* const member = membership.Find(stage.worker);
    placements.push_back(
        {numbers[i], stage.layers, stage.worker,
         member != nullptr ? member->registration.name() : "",
         member != nullptr ? member->registration.address() : "", stage.share});
  }
  return placements;
}

std::string MeshState::NameOf(WorkerId worker) const {
  const Member* const member = membership.Find(worker);
  return member != nullptr ? member->registration.name()
                           : absl::StrCat(worker.value);
}

std::map<WorkerId, std::string> MeshState::BrokenLinks(
    const std::vector<PeerReport>& peers) const {
  std::map<WorkerId, std::string> broken;
  for (const PeerReport& peer : peers) {
    if (!peer.refused && peer.broken <= absl::ZeroDuration()) continue;
    const Member* const about = membership.Find(peer.peer.worker);
    // Ignores reports on a process that was replaced.
    if (about == nullptr || about->incarnation() != peer.peer.incarnation) {
      continue;
    }
    broken[about->id] =
        peer.refused ? "nobody listens at its address" : "its link broke";
  }
  return broken;
}

void MeshState::Put(const JobEntry& job) {
  JobRecord& kept = actions.writes.jobs[job.record.id()] = job.record;
  kept.job.set_samples_per_second(SamplesPerSecond(job));
}

void MeshState::SetWhy(JobEntry& job, const std::string& text) {
  const std::string why = ToUtf8(text, kMaxStatusMessageBytes);
  if (job.record.job.why() == why) return;
  job.record.job.set_why(why);
  if (!why.empty()) {
    actions.notices.push_back(
        {false, absl::StrCat("job ", why), job.record.id(), WorkerId{}});
  }
  Put(job);
}

void MeshState::PutEvent(const JobEntry& job, Moment moment,
                         const std::string& kind, const std::string& text) {
  const JobId id = job.record.id();
  v1::JobEvent& event = actions.writes.records[id].events.emplace_back();
  event.set_job(id.value);
  event.set_unix_ms(moment.unix_ms);
  event.set_kind(kind);
  event.set_text(ToUtf8(text, kMaxStatusMessageBytes));
  constexpr absl::string_view kWarnings[] = {
      "failed",   "lost", "warning",  "skipping", "store", "evicted",
      "takeover", "void", "mismatch", "paused",   "again", "checkpoint-failed"};
  const bool warn = absl::c_linear_search(kWarnings, kind);
  actions.notices.push_back(
      {warn, absl::StrCat("job ", kind, ": ", text), id, WorkerId{}});
}

absl::string_view JobEntry::Interruption() const {
  if (recovery == nullptr) return "";
  const JobPhase phase = recovery->phase();
  if (phase == JobPhase::kPaused) return "paused";
  const bool runs = phase == JobPhase::kRunning ||
                    phase == JobPhase::kStopping || phase == JobPhase::kDone;
  const bool began = phase == JobPhase::kChoosing && recovery->attempt() > 0;
  const bool again = phase == JobPhase::kLeaving || began ||
                     (!runs && record.job.attempt() > 1);
  if (!again) return "";
  return recovery->moves() ? "moving" : "recovering";
}

void MeshState::RefreshWhy(JobEntry& job, Moment moment) {
  if (job.record.state() != v1::JOB_STATE_RUNNING) return;
  const absl::string_view interruption = job.Interruption();
  std::string why = interruption.empty() ? "" : job.recovery->why();
  if (!interruption.empty() && interruption != "paused") {
    why = absl::StrCat(interruption, ": ", why);
  }
  SetWhy(job, Sentence({PreparingText(job.record, job.progress.preparing_since,
                                      policy.preparing_bound, moment.now),
                        job.group.has_value() ? job.group->PausedText() : "",
                        why, StoreText()}));
}

namespace {

// Forgets the earlier attempt's progress beyond `step` steps.
void ResetProgress(JobEntry& job, int64_t step) {
  v1::Job& kept = job.record.job;
  kept.set_recorded_step(std::min(kept.recorded_step(), step));
  kept.set_step(step);
  kept.set_evaluated_step(step == 0 ? -1
                                    : std::min(kept.evaluated_step(), step));
  if (kept.broken_step() > step) kept.clear_broken_step();
  // Steps after `step` are run again, and then counted again.
  const int64_t counted = absl::c_count_if(
      job.progress.counted,
      [&](auto& each) { return each.first > step && each.second.skipped(); });
  const int64_t taken = std::max(counted, TakeSkipsBack(step, kept));
  kept.set_skipped_steps(
      step == 0 ? 0 : std::max<int64_t>(0, kept.skipped_steps() - taken));
  kept.clear_stage_times();
  kept.clear_timed_seconds();
  kept.clear_timed_steps();
  kept.clear_samples_per_second();
  const int skip_runs = job.progress.skip_runs;
  job.progress = ProgressState();
  job.progress.counted_through = kept.recorded_step();
  job.progress.skip_runs = skip_runs;
  *kept.mutable_predicted_base() = kept.predicted();
}

}  // namespace

void MeshState::BeginAttempt(JobEntry& job, const PlacementVerdict& verdict,
                             int64_t attempt, int64_t step, Moment moment) {
  JobRecord& record = job.record;
  v1::Job& kept = record.job;
  const Plan& plan = *verdict.plan;
  const std::vector<std::string> warnings =
      ThreadWarnings(record.spec, plan, Candidates());
  kept.set_state(v1::JOB_STATE_RUNNING);
  running.insert(record.id());
  kept.clear_why();
  kept.set_attempt(attempt);
  kept.set_plan_version(kept.plan_version() + 1);
  kept.set_cpu_capability(verdict.cpu_capability);
  if (kept.started_unix_ms() == 0) kept.set_started_unix_ms(moment.unix_ms);
  actions.writes.durable = true;
  actions.writes.restarted[record.id()] = step;
  StoreBatch::Records& waiting = actions.writes.records[record.id()];
  const auto is_later = [step](const auto& record) {
    return record.step() > step;
  };
  std::erase_if(waiting.steps, is_later);
  std::erase_if(waiting.evaluations, is_later);
  ResetProgress(job, step);

  for (v1::JobWorker& worker : *kept.mutable_workers()) LetGo(job, worker);
  record.stages = plan.stages;
  kept.clear_workers();
  std::set<WorkerId> workers;
  for (const StageOfPlan& stage : record.stages) workers.insert(stage.worker);
  for (const WorkerId worker : workers) {
    v1::JobWorker& part = *kept.add_workers();
    part.set_id(worker.value);
    part.set_name(NameOf(worker));
    const Member* const member = membership.Find(worker);
    if (member != nullptr) part.set_incarnation(member->incarnation().value);
    part.set_predicted_memory_bytes(BytesOn(plan, worker));
    busy[worker] = record.id();
  }
  AddEvent(job, moment, "placed",
           IsDataParallel(record.spec)
               ? absl::StrCat(Counted(kept.workers_size(), "member"), ": ")
               : absl::StrCat(
                     Counted(StageNumbers(record.stages).back() + 1, "stage"),
                     " on "),
           absl::StrJoin(kept.workers(), ", ",
                         [](std::string* out, const auto& worker) {
                           absl::StrAppend(out, worker.name());
                         }),
           plan.why.empty() ? "" : ": ", plan.why);
  for (const std::string& warning : warnings) {
    AddEvent(job, moment, "warning", warning);
  }
  kept.mutable_skipped_blocks()->Assign(verdict.skipped_blocks.begin(),
                                        verdict.skipped_blocks.end());
  if (!verdict.skipped_blocks.empty()) {
    AddEvent(job, moment, "skipping", "from micro-batch ", step,
             " on the job predicts without ",
             verdict.skipped_blocks.size() == 1 ? "block " : "blocks ",
             absl::StrJoin(verdict.skipped_blocks, ", "),
             ", because the worker of its stage is lost; `skipped` in "
             "the result marks these rows");
  }
  OpenWeights(job, moment);
  Put(job);
}

void MeshState::LetGo(const JobEntry& job, v1::JobWorker& worker) {
  worker.set_let_go(true);
  const WorkerId id{worker.id()};
  if (JobOf(id) == &job) busy.erase(id);
}

void MeshState::OpenWeights(JobEntry& job, Moment moment) {
  absl::StatusOr<SafetensorsLayout> layout =
      [&]() -> absl::StatusOr<SafetensorsLayout> {
    const JobRecord& record = job.record;
    PACELINE_ASSIGN_OR_RETURN(ModelDescription model, Describe(record.spec));
    const v1::NameBytes& names = record.job.names();
    SetClasses(names.classes(), model);
    if (!IsInference(record.spec)) {
      // A worker reports the steps together with the names.  A file that was
      // opened without them would lose what has come of an upload.
      if (record.job.steps() == 0) return SafetensorsLayout();
      return LayOut(model);
    }
    // The first stage reports their number.
    if (record.job.total_samples() == 0) return SafetensorsLayout();
    return LayOutPredictions(model, record.spec.infer,
                             record.job.total_samples(),
                             {names.files(), names.class_names()});
  }();
  if (!layout.ok()) {
    FailJob(job,
            absl::StrCat("its model cannot be described: ",
                         layout.status().message()),
            AdviceAfter(layout.status(), job.record.spec), moment);
    return;
  }
  actions.weights.push_back(
      {Actions::Weights::Kind::kOpen, job.record.fence(), *std::move(layout)});
}

void MeshState::FailJob(JobEntry& job, const std::string& why,
                        const std::string& advice, Moment moment) {
  EndJob(job, v1::JOB_STATE_FAILED,
         Sentence({why, SkippedText(job.record), advice}), moment);
}

void MeshState::EndJob(JobEntry& job, v1::JobState state,
                       const std::string& why, Moment moment) {
  JobRecord& record = job.record;
  record.job.set_state(state);
  record.job.set_why(ToUtf8(why, kMaxStatusMessageBytes));
  record.job.set_ended_unix_ms(moment.unix_ms);
  job.saving = false;
  job.progress.preparing_since.clear();
  if (const std::string rounds = job.groups.events.Summary();
      job.group.has_value() && !rounds.empty()) {
    AddEvent(job, moment, "rounds", rounds);
  }
  job.group.reset();
  job.recovery.reset();
  for (v1::JobWorker& worker : *record.job.mutable_workers()) {
    LetGo(job, worker);
  }
  open.erase(record.id());
  running.erase(record.id());
  ++ended[state];
  by_end.emplace(moment.unix_ms, record.id());
  if (state != v1::JOB_STATE_SUCCEEDED && record.job.attempt() > 0) {
    actions.weights.push_back(
        {Actions::Weights::Kind::kForget, record.fence(), {}});
  }
  const std::string where =
      state == v1::JOB_STATE_SUCCEEDED
          ? absl::StrCat(ResultName(record.spec), " are in ",
                         record.job.weights_path())
          : "";
  AddEvent(job, moment, JobStateName(state),
           Sentence({where, record.job.why()}));
  Put(job);
  queue_changed = true;
}

std::vector<std::string> MeshState::LiveNames() const {
  std::vector<std::string> names;
  for (const auto& [id, member] : membership.members()) {
    if (member.state == MemberState::kLive) {
      names.push_back(member.registration.name());
    }
  }
  return names;
}

}  // namespace paceline

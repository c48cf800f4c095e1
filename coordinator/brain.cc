#include "coordinator/brain.h"

#include <algorithm>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/mesh/job_progress.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/cluster/registration.h"
#include "core/job/aggregation.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// While the store refuses writes, a job keeps this many records of each kind,
// as a worker does.
constexpr size_t kMostUnstored = 100'000;
// Every standing order lists all revocations.
constexpr size_t kMostRevoked = 1000;

template <typename Record>
void KeepNewest(std::vector<Record>& records) {
  if (records.size() <= kMostUnstored) return;
  records.erase(records.begin(), records.end() - kMostUnstored);
}

// The queue is served this often without an event: neither a suspect that is
// heard again nor the end of the wait after a start causes one.
constexpr absl::Duration kServePeriod = absl::Seconds(1);
// Workers repeat failed dials to other workers this often.
constexpr absl::Duration kRedialPeriod = absl::Seconds(5);
// A stored result waits at most this long for its last step's checkpoint.
constexpr absl::Duration kLastCheckpointTime = absl::Seconds(10);

// A job whose safe state would be lost with the drained worker; 0: none.
int64_t JobThatNeeds(const MeshState& mesh, WorkerId worker) {
  for (const JobId id : mesh.running) {
    const JobEntry& job = mesh.jobs.at(id);
    if (job.recovery != nullptr && !job.recovery->MayGo(worker)) {
      return id.value;
    }
  }
  return 0;
}

// Whether a leaving worker's process may end: no job needs it, or its job can
// never release it, so that waiting is useless.
bool MayLeave(const MeshState& mesh, WorkerId worker) {
  const JobEntry* const job = mesh.JobOf(worker);
  if (job == nullptr) return JobThatNeeds(mesh, worker) == 0;
  if (job->saving) return false;
  if (job->group.has_value()) {
    return job->group->members() + job->group->listeners() <= 1;
  }
  return job->recovery == nullptr || job->recovery->drain_refused() ||
         job->recovery->phase() == JobPhase::kPaused;
}

}  // namespace

Brain::Brain(const BrainPolicy& policy, StoredState stored, Moment start)
    : mesh_(policy, start.now),
      groups_(mesh_,
              [this](JobEntry& job, Moment moment) {
                pipelines_.OnRoster(job, moment);
              }),
      pipelines_(mesh_, groups_),
      checkpoints_(mesh_, pipelines_),
      queue_(mesh_, pipelines_, stored.next_job),
      tokens_(mesh_, std::move(stored.tokens), std::move(stored.keys)) {
  mesh_.drained = std::move(stored.drained);
  mesh_.revoked = std::move(stored.revoked);
  mesh_.term = mesh_.orders.last.term = stored.term + 1;
  mesh_.actions.writes.term = mesh_.term;
  for (const auto& [id, registration] : stored.workers) {
    mesh_.membership.Restore(id, registration);
  }
  mesh_.measured = std::move(stored.measurements);
  mesh_.ended = std::move(stored.ended);
  for (auto& [id, record] : stored.jobs) {
    JobEntry& job = mesh_.jobs[id];
    job.record = std::move(record);
    job.restored = true;
    job.progress.counted_through = job.record.job.recorded_step();
    job.groups.kept = stored.views[id];
    if (HasEnded(job.record.state())) {
      ++mesh_.ended[job.record.state()];
      mesh_.by_end.emplace(job.record.job.ended_unix_ms(), id);
      continue;
    }
    mesh_.open.insert(id);
    if (job.record.state() != v1::JOB_STATE_RUNNING) continue;
    mesh_.running.insert(id);
    for (const v1::JobWorker& worker : job.record.job.workers()) {
      if (!worker.let_go()) mesh_.busy[WorkerId{worker.id()}] = id;
    }
    mesh_.OpenWeights(job, start);
    if (IsDataParallel(job.record.spec)) groups_.Restore(job, start);
    pipelines_.Restore(job, start);
  }
}

absl::StatusOr<AttachVerdict> Brain::OnAttach(const v1::Registration& sent,
                                              StreamId stream, Moment moment) {
  PACELINE_RETURN_IF_ERROR(CheckRegistration(sent));
  PACELINE_RETURN_IF_ERROR(tokens_.OnKey(sent.name(), sent.key()));
  v1::Registration registration = sent;
  registration.set_clock_ahead_ms(
      sent.unix_ms() == 0 ? 0 : sent.unix_ms() - moment.unix_ms);
  PACELINE_ASSIGN_OR_RETURN(
      const AttachVerdict verdict,
      mesh_.membership.OnAttach(registration, stream, moment.now));
  mesh_.actions.writes.workers[verdict.id] = registration;
  if (verdict.replaced.assigned()) {
    sent_.erase(verdict.replaced);
    mesh_.actions.ends.push_back(
        {verdict.replaced,
         Aborted(
             "worker ", registration.name(), " has attached on a newer stream",
             verdict.arrival == Arrival::kRestarted
                 ? absl::StrCat(", as another process (pid ",
                                registration.pid(), " at ",
                                registration.address(),
                                "): two workers of one machine need a --name "
                                "each")
                 : "")});
  }
  mesh_.AddNotice(
      verdict.id,
      absl::StrCat("worker ", registration.name(),
                   verdict.arrival == Arrival::kReattached ? " re-attached"
                   : verdict.arrival == Arrival::kRestarted
                       ? " attached as a new process"
                       : " attached"));
  if (verdict.arrival != Arrival::kReattached) {
    mesh_.measures.OnArrival(registration.name(), mesh_.LiveNames());
    mesh_.settling.erase(verdict.id);
    if (mesh_.leaving.erase(verdict.id) > 0) {
      TellOfDrain(*mesh_.membership.Find(verdict.id), moment);
    }
  }
  if (JobEntry* const job = mesh_.JobOf(verdict.id)) {
    if (job->group.has_value()) job->group->renew.erase(verdict.id);
    groups_.Check(*job, moment);
  }
  pipelines_.OnAttached(*mesh_.membership.Find(verdict.id), moment);
  mesh_.queue_changed = true;
  Settle(moment);
  return verdict;
}

void Brain::OnStreamBroken(StreamId stream, Moment moment) {
  sent_.erase(stream);
  const auto change = mesh_.membership.OnStreamBroken(stream, moment.now);
  if (!change.has_value()) return;
  // A second witness had come before, so the loss need not wait for the tick.
  TakeChanges({*change}, moment);
  Settle(moment);
}

absl::Status Brain::OnReport(StreamId stream, WorkerReport report,
                             Moment moment) {
  const v1::Heartbeat& heartbeat = report.heartbeat;
  const Member* const member = mesh_.membership.OnHeard(stream, moment.now);
  if (member == nullptr) {
    // Not Aborted: a worker that was lost in this same batch shall come back.
    return Unavailable(
        "heartbeat on a stream that was replaced or lost; attach again");
  }
  mesh_.actions.acks.push_back({stream, heartbeat.sequence()});
  if (heartbeat.restarting() && !member->restarting) {
    mesh_.membership.OnRestarting(stream);
    mesh_.AddNotice(member->id,
                    absl::StrCat("worker ", member->registration.name(),
                                 " executes itself anew"));
  }
  if (heartbeat.leaving() && mesh_.leaving.insert(member->id).second) {
    TellOfDrain(*member, moment);
    Settle(moment);
  }
  if (heartbeat.stopping()) {
    const auto change = mesh_.membership.OnStopping(stream, moment.now);
    if (change.has_value()) {
      TakeChanges({*change}, moment);
      Settle(moment);
    }
  }
  if (heartbeat.has_measurement()) {
    TakeMeasurement(mesh_, *member, heartbeat.measurement());
    mesh_.queue_changed = true;  // a job may have waited for this worker
    Settle(moment);
  }
  JobEntry* const job = heartbeat.has_run()
                            ? mesh_.FindJob(JobId{heartbeat.run().job()})
                            : nullptr;
  const bool is_its =
      job != nullptr && FindWorker(job->record, member->id) != nullptr;
  std::vector<PeerReport> links;
  if (is_its && job->group.has_value()) {
    if (!job->saving && report.member.has_value()) links = report.member->peers;
  } else if (is_its && job->recovery != nullptr) {
    links = pipelines_.Watch(*job, *member, report, moment);
  }
  TakeChanges(mesh_.membership.OnLinks(member->id, mesh_.BrokenLinks(links),
                                       moment.now),
              moment);
  if (is_its && TakeRecords(mesh_, *job, *member, report.heartbeat, moment)) {
    pipelines_.TakeReport(*job, member->id, heartbeat, moment);
    if (job->group.has_value()) {
      groups_.TakeReport(*job, *member, report, moment);
    }
  }
  groups_.OnRepaired(*member, heartbeat, moment);
  const bool changed = pipelines_.OnHeartbeat(*member, heartbeat, moment);
  if (is_its && job->record.state() == v1::JOB_STATE_FAILED) {
    checkpoints_.DropBroken(*job);
  }
  if (is_its || changed) Settle(moment);
  return absl::OkStatus();
}

void Brain::TakeChanges(const std::vector<MembershipChange>& changes,
                        Moment moment) {
  for (const MembershipChange& change : changes) {
    const Member member = *mesh_.membership.Find(change.id);
    mesh_.AddNotice(
        member.id,
        absl::StrCat("worker ", member.registration.name(), " is ",
                     MemberStateName(change.state), ": ", member.why),
        change.state != MemberState::kStopped);
    mesh_.queue_changed = true;
    if (change.state == MemberState::kLost) ++losses_;
    if (IsGone(change.state)) OnWorkerLost(member, moment);
  }
}

void Brain::OnStandstill(absl::Duration duration, Moment moment) {
  mesh_.membership.OnStandstill(duration, moment.now);
  pipelines_.OnStandstill(duration, moment);
  mesh_.start = std::min(mesh_.start + duration, moment.now);
}

void Brain::OnTick(Moment moment) {
  TakeChanges(mesh_.membership.OnTick(moment.now), moment);
  pipelines_.OnTick(moment);
  for (JobEntry* const job : mesh_.RunningJobs()) {
    groups_.Check(*job, moment);
    mesh_.RefreshWhy(*job, moment);
  }
  Settle(moment, /*is_tick=*/true);
}

void Brain::OnWorkerLost(const Member& member, Moment moment) {
  if (member.state == MemberState::kLost && member.stream.assigned()) {
    mesh_.actions.ends.push_back(
        {member.stream,
         Unavailable("counted as lost: ", member.why, "; attach again")});
    OnStreamBroken(member.stream, moment);
  }
  mesh_.settling.erase(member.id);
  pipelines_.OnLost(member, moment);
  JobEntry* const job = mesh_.JobOf(member.id);
  if (job != nullptr) groups_.Check(*job, moment);
}

absl::Status Brain::OnStop(JobId id, Moment moment) {
  JobEntry* const job = mesh_.FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  if (HasEnded(job->record.state())) return absl::OkStatus();
  mesh_.EndJob(
      *job, v1::JOB_STATE_STOPPED,
      job->record.state() == v1::JOB_STATE_QUEUED
          ? "stopped on request before it began"
          : Sentence({absl::StrCat("stopped on request ", AtStep(job->record)),
                      SkippedText(job->record)}),
      moment);
  Settle(moment);
  return absl::OkStatus();
}

absl::Status Brain::CheckDelete(JobId id) const {
  const auto found = mesh_.jobs.find(id);
  if (found == mesh_.jobs.end()) return NoSuchJob(id);
  const v1::JobState state = found->second.record.state();
  if (const JobId user = checkpoints_.UserOf(id); user.assigned()) {
    return FailedPrecondition(
        "job ", user.value, " began from a checkpoint of job ", id.value,
        " and may need it again; wait for its end, or end it first with: "
        "paceline job stop ",
        user.value);
  }
  if (HasEnded(state)) return absl::OkStatus();
  return FailedPrecondition("job ", id.value, " is ", JobStateName(state),
                            "; end it first with: paceline job stop ",
                            id.value);
}

void Brain::OnDeleted(JobId id) {
  const JobRecord& record = mesh_.jobs.at(id).record;
  mesh_.actions.weights.push_back(
      {Actions::Weights::Kind::kForget, record.fence(), {}});
  mesh_.actions.checkpoints.push_back(
      {.kind = Actions::Checkpoint::Kind::kRetain, .id = {id}});
  // Pending writes would bring the job back.
  mesh_.actions.writes.jobs.erase(id);
  mesh_.actions.writes.restarted.erase(id);
  mesh_.actions.writes.records.erase(id);
  mesh_.actions.writes.views.erase(id);
  --mesh_.ended[record.state()];
  mesh_.by_end.erase({record.job.ended_unix_ms(), id});
  mesh_.jobs.erase(id);
}

void Brain::OnWeightsSaved(const Fence& fence,
                           absl::StatusOr<SavedWeights> saved, Moment moment) {
  JobEntry* const job = mesh_.FindRunning(fence);
  if (job == nullptr) return;
  if (!saved.ok()) {
    OnWeightsFailed(fence, saved.status(), moment);
    return;
  }
  // A path may hold bytes that are not UTF-8.
  job->record.job.set_weights_path(ToUtf8(saved->path, kMaxStatusMessageBytes));
  job->record.job.set_weights_sha256(saved->sha256);
  job->saved_at = moment.now;
  Settle(moment);
}

absl::Status Brain::CheckUpload(const Fence& fence, StreamId stream) {
  const JobEntry* const job = mesh_.FindRunning(fence);
  if (job == nullptr) {
    return Aborted("no weights are expected of job ", fence.job.value,
                   ", attempt ", fence.attempt, ", plan ", fence.plan_version);
  }
  for (const auto& [id, member] : mesh_.membership.members()) {
    if (!stream.assigned() || member.stream != stream) continue;
    if (mesh_.JobOf(id) == job) return absl::OkStatus();
    return PermissionDenied("worker ", member.registration.name(),
                            " has no stage of job ", fence.job.value);
  }
  return Unavailable("no worker is attached over this connection");
}

// Waits for the last checkpoint, since another job may go on from it.
void Brain::EndSavedJobs(Moment moment) {
  for (JobEntry* const job : mesh_.RunningJobs()) {
    if (!job->saved_at.has_value() ||
        (checkpoints_.AwaitsLast(*job) &&
         moment.now - *job->saved_at < kLastCheckpointTime)) {
      continue;
    }
    mesh_.EndJob(
        *job, v1::JOB_STATE_SUCCEEDED,
        Sentence({SkippedText(job->record), UnreadableText(job->record),
                  NotFiniteText(job->record)}),
        moment);
  }
}

void Brain::OnWeightsFailed(const Fence& fence, const absl::Status& error,
                            Moment moment) {
  JobEntry* const job = mesh_.FindRunning(fence);
  if (job == nullptr || groups_.WaitsForUpload(*job, error, moment)) return;
  mesh_.FailJob(*job,
                absl::StrCat("the ", ResultName(job->record.spec),
                             " could not be saved: ", error.message()),
                AdviceAfterSaving(error, job->record.spec), moment);
  Settle(moment);
}

void Brain::Settle(Moment moment, bool is_tick) {
  EndSavedJobs(moment);
  if (mesh_.queue_changed || is_tick) {
    pipelines_.OnPlansChanged(moment);
    if (mesh_.queue_changed || moment.now - served_ >= kServePeriod) {
      served_ = moment.now;
      queue_.Serve(moment);
    }
    groups_.AdmitJoiners(moment);
    if (moment.now - redialled_ >= kRedialPeriod) {
      redialled_ = moment.now;
      RedialAll(mesh_);
    }
    mesh_.measures.Assign(MeasureWorkers(mesh_), moment.now);
  }
  checkpoints_.Serve(moment);
  RefreshOrders();
}

void Brain::RefreshOrders() {
  for (const auto& [id, member] : mesh_.membership.members()) {
    const JobEntry* const job = mesh_.JobOf(id);
    // The run goes on without an order until the attempt is adopted or left,
    // and until the worker has said what it runs: an order without the job
    // would have it drop what it has.
    const bool waits = job != nullptr && job->recovery != nullptr &&
                       (job->recovery->phase() == JobPhase::kAdopting ||
                        job->recovery->IsUnheard(id));
    if (!member.stream.assigned() || waits) continue;
    StandingOrder order = OrderOf(member, job);
    if (const auto found = mesh_.settling.find(id);
        found != mesh_.settling.end()) {
      order.rest.set_settle(found->second);
    }
    pipelines_.AddTo(order.rest, member.process());
    if (pipelines_.Excludes(member.process())) order.rest.set_renew(true);
    order.rest.set_released(mesh_.leaving.contains(id) && MayLeave(mesh_, id));
    for (const auto& [holder, unix_ms] : mesh_.revoked) {
      v1::RevokedHolder& each = *order.rest.add_revoked();
      each.set_holder(holder);
      each.set_unix_ms(unix_ms);
    }
    std::optional<StandingOrder>& sent = sent_[member.stream];
    if (sent == order) continue;
    sent = order;
    mesh_.actions.orders.push_back({member.stream, std::move(order)});
  }
}

StandingOrder Brain::OrderOf(const Member& member, const JobEntry* job) const {
  StandingOrder order;
  if (job != nullptr) {
    order.run = pipelines_.OrderOf(*job, member.id);
    order.rest.set_renew(!order.run.has_value() && job->group.has_value() &&
                         job->group->renew.contains(member.id));
  }
  const auto measure = mesh_.measures.OrderOf(member.registration.name());
  if (measure.has_value() && (job == nullptr || job->IsPaused())) {
    *order.rest.mutable_measure() = *measure;
  }
  return order;
}

Actions Brain::TakeActions() {
  Actions actions = std::exchange(mesh_.actions, Actions{});
  for (const auto& [id, record] : actions.writes.jobs) {
    if (!HasEnded(record.state()) || mesh_.jobs.erase(id) == 0) continue;
    mesh_.jobs[id].record = record;
  }
  for (auto job = mesh_.by_end.begin();
       job != mesh_.by_end.end() &&
       std::ssize(mesh_.by_end) > kEndedInMemory;) {
    const JobId id = job->second;
    if (checkpoints_.IsUnderWay(id)) {
      ++job;
      continue;
    }
    checkpoints_.Forget(id);
    mesh_.jobs.erase(id);
    job = mesh_.by_end.erase(job);
  }
  return actions;
}

void Brain::Recall(const JobRecord& record) {
  mesh_.by_end.emplace(record.job.ended_unix_ms(), record.id());
  const auto [job, is_new] = mesh_.jobs.try_emplace(record.id());
  if (is_new) job->second.record = record;
}

void Brain::OnStoreFailed(const absl::Status& error, Moment moment) {
  mesh_.actions.acks.clear();
  for (auto& [id, records] : mesh_.actions.writes.records) {
    KeepNewest(records.steps);
    KeepNewest(records.evaluations);
    KeepNewest(records.events);
    KeepNewest(records.logs);
  }
  if (mesh_.store_error == error.message()) return;
  mesh_.store_error = std::string(error.message());
  for (JobEntry* const job : mesh_.OpenJobs()) {
    mesh_.AddEvent(*job, moment, "store", mesh_.StoreText(),
                   "; what goes on is kept in memory until it can");
    mesh_.RefreshWhy(*job, moment);
  }
  queue_.Serve(moment);
}

void Brain::OnStoreWorks(Moment moment) {
  if (mesh_.store_error.empty()) return;
  mesh_.store_error.clear();
  for (JobEntry* const job : mesh_.OpenJobs()) {
    mesh_.AddEvent(*job, moment, "store",
                   "the coordinator stores its state again");
    mesh_.RefreshWhy(*job, moment);
  }
  mesh_.queue_changed = true;
  Settle(moment);
}

std::vector<v1::JobEvent> Brain::PendingEvents(JobId job) const {
  const auto found = mesh_.actions.writes.records.find(job);
  if (found == mesh_.actions.writes.records.end()) return {};
  return found->second.events;
}

absl::StatusOr<const JobRecord*> Brain::FindRecord(JobId id) const {
  const auto found = mesh_.jobs.find(id);
  if (found == mesh_.jobs.end()) return NoSuchJob(id);
  return &found->second.record;
}

absl::StatusOr<v1::Job> Brain::ViewJob(JobId id) const {
  const auto found = mesh_.jobs.find(id);
  if (found == mesh_.jobs.end()) return NoSuchJob(id);
  return ViewOf(found->second);
}

v1::Job Brain::ViewStored(JobRecord record) const {
  const auto found = mesh_.jobs.find(record.id());
  if (found != mesh_.jobs.end()) return ViewOf(found->second);
  JobEntry job;
  job.record = std::move(record);
  return ViewOf(job);
}

v1::Job Brain::ViewOf(const JobEntry& job) const {
  v1::Job view = job.record.job;
  if (job.queued.behind.assigned() &&
      job.record.state() == v1::JOB_STATE_QUEUED) {
    // Not stored: it changes for all waiting jobs when the first of them
    // begins.
    view.set_why(
        Sentence({absl::StrCat("waits for job ", job.queued.behind.value,
                               ", which is before it in the queue"),
                  mesh_.slow, mesh_.StoreText()}));
  }
  *view.mutable_spec() = ToProto(job.record.spec);
  std::map<WorkerId, v1::JobMember> members;
  if (job.group.has_value()) {
    members = job.group->Members();
    view.set_server(job.group->Server(job.record.spec).value);
  }
  const std::vector<StagePlacement> stages = mesh_.Place(job.record.stages);
  for (v1::JobWorker& part : *view.mutable_workers()) {
    const WorkerId worker{part.id()};
    const auto member = members.find(worker);
    if (member != members.end()) *part.mutable_member() = member->second;
    for (const StagePlacement& stage : stages) {
      if (stage.worker == worker) *part.add_stages() = ToProto(stage);
    }
  }
  view.set_samples_per_second(SamplesPerSecond(job));
  view.set_phase(groups_.PhaseOf(job));
  if (job.recovery != nullptr && job.attempt.meter.open().has_value()) {
    *view.mutable_recovering() = *job.attempt.meter.open();
  }
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
  if (job.recovery != nullptr && job.recovery->floor().has_value()) {
    view.set_floor_step(job.recovery->floor()->step);
  }
  return view;
}

std::vector<v1::Job> Brain::ViewRunningJobs() const {
  std::vector<v1::Job> views;
  for (const JobId id : mesh_.running) {
    views.push_back(ViewOf(mesh_.jobs.at(id)));
  }
  return views;
}

std::vector<JobId> Brain::ShownJobs(int most) const {
  std::vector<JobId> shown(mesh_.running.begin(), mesh_.running.end());
  int queued = 0;
  for (const JobId id : mesh_.open) {
    if (mesh_.running.contains(id)) continue;
    if (++queued > most) break;
    shown.push_back(id);
  }
  int ended = 0;
  for (auto job = mesh_.by_end.rbegin(); job != mesh_.by_end.rend(); ++job) {
    if (++ended > most) break;
    shown.push_back(job->second);
  }
  absl::c_sort(shown);
  return shown;
}

std::map<v1::JobState, int64_t> Brain::CountJobs() const {
  std::map<v1::JobState, int64_t> jobs = mesh_.ended;
  jobs[v1::JOB_STATE_RUNNING] = std::ssize(mesh_.running);
  jobs[v1::JOB_STATE_QUEUED] =
      std::ssize(mesh_.open) - std::ssize(mesh_.running);
  return jobs;
}

std::string Brain::Summary() const {
  int64_t attached = 0;
  for (const auto& [id, member] : mesh_.membership.members()) {
    if (member.stream.assigned()) ++attached;
  }
  std::map<v1::JobState, int64_t> jobs = CountJobs();
  return absl::StrCat(Counted(attached, "worker"), " attached, ",
                      Counted(jobs[v1::JOB_STATE_RUNNING], "job"), " running, ",
                      jobs[v1::JOB_STATE_QUEUED], " queued");
}

std::vector<v1::Worker> Brain::ViewWorkers(Instant now, WorkerId after,
                                           int64_t most) const {
  std::vector<v1::Worker> views;
  const auto& members = mesh_.membership.members();
  for (auto member = members.upper_bound(after);
       member != members.end() && std::ssize(views) < most; ++member) {
    views.push_back(ViewWorker(member->second, now));
  }
  return views;
}

v1::Worker Brain::ViewWorker(const Member& member, Instant now) const {
  v1::Worker view;
  view.set_id(member.id.value);
  *view.mutable_registration() = member.registration;
  view.set_last_heard_seconds(absl::ToDoubleSeconds(now - member.last_heard));
  view.set_drained(mesh_.IsDrained(member.id));
  const JobEntry* const job = mesh_.JobOf(member.id);
  // By MemberState, for workers without work.
  constexpr v1::WorkerState kStates[] = {
      v1::WORKER_STATE_IDLE, v1::WORKER_STATE_SUSPECT, v1::WORKER_STATE_LOST,
      v1::WORKER_STATE_STOPPED};
  view.set_state(kStates[static_cast<int>(member.state)]);
  if (member.state == MemberState::kLive && job != nullptr) {
    view.set_state(v1::WORKER_STATE_BUSY);
  } else if (member.state == MemberState::kLive &&
             mesh_.measures.Holds(member.registration.name())) {
    view.set_state(v1::WORKER_STATE_MEASURING);
  }
  if (job == nullptr) {
    if (view.drained()) view.set_job(JobThatNeeds(mesh_, member.id));
    return view;
  }
  view.set_job(job->record.id().value);
  const std::vector<StageOfPlan>& stages = job->record.stages;
  const std::vector<int> numbers = StageNumbers(stages);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].worker == member.id) view.add_stages(numbers[i]);
  }
  return view;
}

absl::StatusOr<v1::Worker> Brain::OnForget(const std::string& worker,
                                           Moment moment) {
  PACELINE_ASSIGN_OR_RETURN(const Member* const found,
                            mesh_.FindMember(worker));
  const WorkerId id = found->id;
  const std::string& name = found->registration.name();
  if (!IsGone(found->state)) {
    return FailedPrecondition("worker ", name, " is there (",
                              MemberStateName(found->state),
                              "): end its process first");
  }
  if (const JobEntry* const job = mesh_.JobOf(id)) {
    return FailedPrecondition(
        "job ", job->record.id().value, " waits for worker ", name,
        ": end the job first with: paceline job stop ", job->record.id().value);
  }
  v1::Worker view = ViewWorker(*found, moment.now);
  mesh_.AddNotice(id, absl::StrCat("worker ", name, " is forgotten"));
  mesh_.actions.writes.workers.erase(id);
  mesh_.actions.writes.forgotten.push_back(id);
  tokens_.FreeName(name);
  mesh_.actions.writes.durable = true;
  mesh_.drained.erase(id);
  mesh_.leaving.erase(id);
  pipelines_.OnLost(*found, moment);  // no job waits for it
  mesh_.membership.Forget(id);
  mesh_.queue_changed = true;
  Settle(moment);
  return view;
}

absl::StatusOr<v1::Revocation> Brain::OnRevoke(const v1::RevokeRequest& request,
                                               Moment moment) {
  const std::string holder = absl::StrCat(request.role(), "/", request.name());
  if (mesh_.revoked.size() >= kMostRevoked && !mesh_.revoked.contains(holder)) {
    return ResourceExhausted(
        "certificates of ", kMostRevoked,
        " holders were revoked: begin anew with another authority");
  }
  int64_t& until = mesh_.revoked[holder];
  // The clock may have been set back since the last revocation.  This also
  // revokes a certificate that was signed after that revocation.
  until = std::max(moment.unix_ms, until + 2000);
  mesh_.actions.writes.revoked[holder] = until;
  mesh_.actions.writes.durable = true;
  tokens_.OnRevokeHolder(request.role(), request.name());
  v1::Revocation revocation;
  revocation.set_role(request.role());
  revocation.set_name(request.name());
  revocation.set_unix_ms(until);
  revocation.set_known(
      request.role() == "worker" &&
      StopWorkers(request.name(), "its certificate was revoked", moment));
  Settle(moment);
  return revocation;
}

absl::Status Brain::OnUseToken(const TokenUse& use, Moment moment) {
  const std::string name = use.holder.substr(use.holder.find('/') + 1);
  const std::string before = tokens_.KeyOf(name);
  PACELINE_RETURN_IF_ERROR(tokens_.OnUse(use, moment));
  if (use.role == "worker" && !before.empty() &&
      tokens_.KeyOf(name) != before) {
    StopWorkers(name, "its name was given to another machine", moment);
    Settle(moment);
  }
  return absl::OkStatus();
}

bool Brain::StopWorkers(const std::string& name, const std::string& why,
                        Moment moment) {
  std::vector<std::pair<WorkerId, StreamId>> found;
  for (const auto& [id, member] : mesh_.membership.members()) {
    if (absl::EqualsIgnoreCase(member.registration.name(), name)) {
      found.emplace_back(id, member.stream);
    }
  }
  for (const auto& [id, stream] : found) {
    const auto change = mesh_.membership.Stop(id, why, moment.now);
    if (stream.assigned()) {
      mesh_.actions.ends.push_back(
          {stream, PermissionDenied("worker ", name, ": ", why)});
      OnStreamBroken(stream, moment);
    }
    if (change.has_value()) TakeChanges({*change}, moment);
  }
  return !found.empty();
}

absl::StatusOr<v1::Worker> Brain::OnDrain(const std::string& worker, bool drain,
                                          Moment moment) {
  PACELINE_ASSIGN_OR_RETURN(const Member* const found,
                            mesh_.FindMember(worker));
  const WorkerId id = found->id;
  if (mesh_.drained.contains(id) == drain) {
    return ViewWorker(*found, moment.now);
  }
  if (drain) {
    mesh_.drained.insert(id);
  } else {
    mesh_.drained.erase(id);
  }
  mesh_.actions.writes.drained[id] = drain;
  mesh_.actions.writes.durable = true;
  mesh_.AddNotice(id, absl::StrCat("worker ", found->registration.name(),
                                   drain ? " is drained: it gets nothing new"
                                         : " is taken back"));
  TellOfDrain(*found, moment);
  Settle(moment);
  return ViewWorker(*mesh_.membership.Find(id), moment.now);
}

void Brain::TellOfDrain(const Member& member, Moment moment) {
  const bool drain = mesh_.IsDrained(member.id);
  pipelines_.OnDrain(member.id, drain, moment);
  for (JobEntry* const job : mesh_.RunningJobs()) {
    groups_.SetDraining(*job, member.id, drain, moment);
  }
  const JobEntry* const job =
      mesh_.JobOf(member.id);  // null for one that left its group
  if (drain && job != nullptr) {
    mesh_.AddEvent(*job, moment, "draining", "worker ",
                   member.registration.name(),
                   " gets no new work; the job leaves it as soon "
                   "as it can");
  }
  mesh_.queue_changed = true;
}

void Brain::CheckSubmit(const v1::SubmitJobRequest& request, Moment moment,
                        Done<Submission> done) const {
  queue_.CheckSubmit(
      request, moment,
      [this, request, done](absl::StatusOr<Submission> submission) {
        const bool begins =
            !submission.ok() || !request.has_resume() || submission->repeated;
        done(begins ? std::move(submission)
                    : Resumed(request, *std::move(submission)));
      });
}

absl::StatusOr<Submission> Brain::Resumed(const v1::SubmitJobRequest& request,
                                          Submission submission) const {
  PACELINE_ASSIGN_OR_RETURN(const Resumption resumption,
                            checkpoints_.CheckResume(request));
  const CheckpointId& from = resumption.checkpoint;
  v1::Job& job = submission.job.job;
  job.mutable_resumed()->set_job(from.job.value);
  job.mutable_resumed()->set_step(from.step);
  if (!request.resume().accept_changed_data()) {
    *job.mutable_inputs() = resumption.inputs;
  }
  job.set_step(from.step);
  job.set_recorded_step(from.step);
  return submission;
}

absl::StatusOr<v1::StartProfileResponse> Brain::OnProfile(
    const v1::StartProfileRequest& request, Moment moment) {
  absl::StatusOr<v1::StartProfileResponse> ticket =
      StartMeasuring(mesh_, request);
  mesh_.queue_changed = true;
  Settle(moment);
  return ticket;
}

}  // namespace paceline

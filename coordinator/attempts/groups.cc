#include "coordinator/attempts/groups.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/mesh/job_progress.h"
#include "coordinator/place/group_placement.h"
#include "core/base/text.h"
#include "core/job/aggregation.h"
#include "core/plan/memory.h"
#include "core/rpc/convert/report_convert.h"

namespace paceline {
namespace {

// The job fails after this many attempts in a row without a step.
constexpr int kMostLostGroups = 3;
// Five minutes, for a member that begins to upload when another was lost.
constexpr int kMostIncompleteSaves = 600;
constexpr absl::Duration kSavePause = absl::Milliseconds(500);
// A failure counts as this many removals more, so that the worker is asked
// again late.
constexpr int kFailureTimes = 3;

// Its process lives: a new one comes only when an order asks for it.
bool IsPunished(GroupExit exit) {
  return exit == GroupExit::kSilent || exit == GroupExit::kHung ||
         exit == GroupExit::kMismatch || exit == GroupExit::kFailed;
}

// A repeated record counts once.
void AddCosine(const v1::RoundRecord& record, JobEntry& job) {
  const auto [newest, is_new] =
      job.groups.cosine_steps.try_emplace(record.server(), record.step());
  if (!is_new && record.step() <= newest->second) return;
  newest->second = record.step();
  v1::Conflict& conflict = *job.record.job.mutable_conflict();
  const int64_t rounds = conflict.rounds() + 1;
  conflict.set_cosine(conflict.cosine() +
                      (record.cosine() - conflict.cosine()) /
                          static_cast<double>(rounds));
  conflict.set_rounds(rounds);
  conflict.set_step(std::max(conflict.step(), record.step()));
}

bool HasLatePart(const v1::RoundRecord& record) {
  return absl::c_any_of(record.skipped(),
                        [](const v1::RoundRecord::Skip& skip) {
                          return skip.reason() == "late";
                        });
}

// Chosen with an attempt's first members; later ones use the same shards.
void SettleShards(JobRecord& record) {
  const auto model = Describe(record.spec);
  if (!model.ok()) return;
  const int64_t members = std::ssize(record.stages);
  JobSpec spec = record.spec;
  int32_t& shards = spec.aggregation.shards;
  if (shards == 0) shards = record.job.estimate().shards();
  shards = ShardsOf(spec, *model, members);
  record.job.set_shards(shards);
  for (v1::JobWorker& worker : *record.job.mutable_workers()) {
    worker.set_predicted_memory_bytes(MemberBytes(spec, *model, members));
  }
}

// A job begins again this often because a process started anew before the run;
// after that, such a process joins the others instead.
constexpr int kMostFalseStarts = 3;

}  // namespace

GroupWorker Groups::WorkerOf(const Member& member) {
  return {member.process(), member.registration.name(),
          member.registration.address()};
}

GroupOptions Groups::OptionsOf(const JobEntry& job) const {
  GroupOptions options;
  options.term = mesh_.term;
  options.min_parts =
      std::max<int64_t>(1, job.record.spec.aggregation.min_parts);
  options.lease = mesh_.policy.membership.lease;
  std::vector<const Member*> workers;
  for (const v1::JobWorker& worker : job.record.job.workers()) {
    const Member* const member = mesh_.membership.Find(WorkerId{worker.id()});
    if (member != nullptr) workers.push_back(member);
  }
  const absl::StatusOr<ModelDescription> model = Describe(job.record.spec);
  const double seconds = model.ok() ? SlowestMicroBatch(job.record.spec, *model,
                                                        workers, mesh_.measured)
                                    : 0;
  options.instruction_bound =
      std::max(options.lease, absl::Seconds(kPatience * seconds));
  return options;
}

void Groups::Start(JobEntry& job, int64_t step, Moment moment) {
  SettleShards(job.record);
  v1::Job& record = job.record.job;
  if (step == 0) {
    record.clear_loss();
    record.clear_accuracy();
  }
  std::vector<GroupWorker> workers;
  std::map<WorkerId, double> shares;
  for (const StageOfPlan& stage : job.record.stages) {
    const Member* const member = mesh_.membership.Find(stage.worker);
    if (member == nullptr) continue;  // only live workers are placed
    workers.push_back(WorkerOf(*member));
    shares[stage.worker] = stage.share;
  }
  job.groups.events.ForgetEvaluations(record.evaluated_step());
  job.lost_error = absl::OkStatus();
  job.groups.kept.attempt = record.attempt();
  job.groups.kept.view = {};
  job.groups.kept.excluded.clear();
  job.group.emplace(OptionsOf(job), std::nullopt);
  job.group->Begin(workers, shares, step, moment.now);
  TakeNews(job, moment);
}

void Groups::Restore(JobEntry& job, Moment moment) {
  const View view = job.groups.kept.view;
  if (view.id == ViewId() ||
      job.groups.kept.attempt != job.record.job.attempt()) {
    return;
  }
  job.group.emplace(OptionsOf(job), view, job.groups.kept.excluded);
  for (const StageOfPlan& stage : job.record.stages) {
    const Member* const member = mesh_.membership.Find(stage.worker);
    const v1::JobWorker* const worker = FindWorker(job.record, stage.worker);
    if (member == nullptr || worker == nullptr || worker->let_go()) continue;
    job.group->Admit(WorkerOf(*member), stage.share, moment.now);
  }
  job.group->TakeNews();  // the stored view is no news
  job.group->said_running = job.record.job.step() > 0;
  job.groups.events.ForgetEvaluations(job.record.job.evaluated_step());
  for (const ViewMember& member : view.members) {
    if (job.group->Has(member.id)) continue;
    job.group->OnGone(member.id, GroupExit::kRestarted,
                      "it runs as another process now");
  }
  for (const WorkerId worker : mesh_.drained) {
    job.group->SetDraining(worker, true);
  }
  TakeNews(job, moment);
}

void Groups::TakeReport(JobEntry& job, const Member& member,
                        const WorkerReport& report, Moment moment) {
  const v1::Heartbeat& heartbeat = report.heartbeat;
  const int64_t most = MostSteps(job.record);
  for (const v1::RoundRecord& round : heartbeat.rounds()) {
    const bool knows_server =
        round.server() == 0 ||
        FindWorker(job.record, WorkerId{round.server()}) != nullptr;
    if (round.step() > most || !knows_server) continue;
    TakeRound(job, round, moment);
  }
  for (const v1::EvaluationRecord& evaluation : heartbeat.evaluations()) {
    if (evaluation.step() > most) continue;
    TakePartEvaluation(job, member.id, evaluation, moment);
  }
  const v1::RunState& run = heartbeat.run();
  mesh_.Put(job);
  if (job.saving) return;
  const MemberId id = member.process();
  if (run.phase() == v1::RunState::PHASE_FAILED && job.group->Has(id)) {
    const absl::Status error = ErrorOf(run);
    job.lost_error = absl::Status(
        error.code(),
        absl::StrCat("worker ", member.registration.name(), " failed ",
                     AtStep(job.record), ": ", error.message()));
    // It had opened all of its own files, so another member would meet the same
    // error in its place.
    if (absl::IsInvalidArgument(error) && run.steps() > 0) {
      return mesh_.FailJob(job, std::string(job.lost_error.message()),
                           AdviceAfter(error, job.record.spec), moment);
    }
    job.group->OnGone(id, GroupExit::kFailed, std::string(error.message()));
  } else {
    // Ignores a member report with a step or view that never existed.
    std::optional<MemberReport> said = report.member;
    if (said.has_value() && (std::max(said->next, said->state_step) > most ||
                             (job.group->view().has_value() &&
                              said->view > job.group->view()->id))) {
      said.reset();
    }
    job.group->OnReport(id, run.phase(), said, report.heartbeat.progress(),
                        moment.now);
  }
  job.group->OnTick(moment.now);
  TakeNews(job, moment);
}

void Groups::TakeRound(JobEntry& job, const v1::RoundRecord& record,
                       Moment moment) {
  const auto event = job.groups.events.OnRecord(
      record, [this](WorkerId worker) { return mesh_.NameOf(worker); });
  if (event.has_value()) mesh_.AddEvent(job, moment, event->kind, event->text);
  if (record.has_cosine()) AddCosine(record, job);
  const double longest = job.record.spec.aggregation.deadline;
  if (record.seconds() < longest || !HasLatePart(record)) return;
  if (std::exchange(job.group->said_deadline, true)) return;
  mesh_.AddEvent(
      job, moment, "warning",
      absl::StrFormat(
          "a round took %.0f s, and waits at most aggregation.deadline, "
          "%g s, for the parts of slow members or over slow links: those "
          "that come later train nothing. Let it be longer, or send less: "
          "aggregation.shards, codec: bf16",
          record.seconds(), longest));
}

void Groups::TakePartEvaluation(JobEntry& job, WorkerId worker,
                                const v1::EvaluationRecord& part,
                                Moment moment) {
  const std::optional<v1::EvaluationRecord> sum =
      job.groups.events.OnEvaluation(worker, part);
  if (!sum.has_value()) return;
  if (sum->step() <= job.record.job.evaluated_step()) return;
  const auto [open, is_new] = job.group->evaluating.try_emplace(sum->step());
  open->second.sum = *sum;
  if (is_new) {
    for (const MemberId& member : MembersAt(*job.group->view(), sum->step())) {
      open->second.members.insert(member.worker);
    }
  }
  while (!job.group->evaluating.empty() && EvaluationIsOver(job)) {
    EndEvaluation(job, moment);
  }
}

// A member sends its parts in the order of their steps.  The part of a lost
// member is awaited until a later evaluation has begun.
bool Groups::EvaluationIsOver(const JobEntry& job) {
  const auto& [step, evaluation] = *job.group->evaluating.begin();
  std::set<WorkerId> sent = job.groups.events.EvaluatedBy(step);
  if (sent.empty()) return true;  // its parts are forgotten: too many are open
  const bool later = job.group->evaluating.size() > 1;
  for (const auto& [other, unused] : job.group->evaluating) {
    sent.merge(job.groups.events.EvaluatedBy(other));
  }
  const View& view = *job.group->view();
  const auto is_gone = [&view](WorkerId worker) {
    return absl::c_none_of(view.members, [worker](const ViewMember& member) {
      return member.id.worker == worker;
    });
  };
  return absl::c_all_of(evaluation.members, [&](WorkerId member) {
    return sent.count(member) > 0 || (later && is_gone(member));
  });
}

void Groups::EndEvaluation(JobEntry& job, Moment moment) {
  const auto open =
      job.group->evaluating.extract(job.group->evaluating.begin());
  const v1::EvaluationRecord& evaluation = open.mapped().sum;
  std::vector<std::string> missing;
  const std::set<WorkerId> there =
      job.groups.events.EvaluatedBy(evaluation.step());
  for (const WorkerId worker : open.mapped().members) {
    if (there.count(worker) == 0) missing.push_back(mesh_.NameOf(worker));
  }
  if (!missing.empty() || evaluation.samples() < job.groups.most_evaluated) {
    job.record.job.set_evaluated_step(evaluation.step());
    return mesh_.AddEvent(
        job, moment, "incomplete", EvaluationText(job.record.spec, evaluation),
        ", not the whole test set: it does not count",
        missing.empty() ? ""
                        : absl::StrCat("; no part came from ",
                                       absl::StrJoin(missing, ", ")));
  }
  job.groups.most_evaluated = evaluation.samples();
  TakeEvaluation(mesh_, job, evaluation, moment);
}

void Groups::TakeNews(JobEntry& job, Moment moment) {
  GroupState& group = *job.group;
  GroupNews news = group.TakeNews();
  Keep(job, news);
  counts_.views += news.views;
  for (const GroupLeaver& leaver : news.leavers) {
    TakeLeaver(job, leaver, moment);
  }
  for (const GroupEvent& event : news.events) {
    mesh_.AddEvent(job, moment, event.kind, event.text);
  }
  if (group.advanced()) job.groups.lost = job.groups.false_starts = 0;
  if (group.lost() || group.torn()) return OnOver(job, moment);
  on_change_(job, moment);
  if (!job.group.has_value()) return;  // the attempt is not adopted
  if (!group.said_running && group.begun()) {
    group.said_running = true;
    mesh_.AddEvent(job, moment, "running", "the group trains: view ",
                   ViewText(group.view()->id), " of ",
                   Counted(group.members(), "member"));
  }
  if (job.saving || moment.now < group.save_again || !group.AllDone()) return;
  if (HasRounds(job.record.spec) &&
      group.FindLastMismatch(job.record.job.steps())) {
    return TakeNews(job, moment);
  }
  while (!group.evaluating.empty()) EndEvaluation(job, moment);
  OnAllDone(mesh_, job, moment);
}

void Groups::Keep(JobEntry& job, const GroupNews& news) {
  if (!news.view.has_value() && news.leavers.empty()) return;
  if (news.view.has_value()) job.groups.kept.view = *news.view;
  for (const GroupLeaver& leaver : news.leavers) {
    KeptView& kept = job.groups.kept;
    kept.excluded[leaver.id.worker] = leaver.id.incarnation;
    if (leaver.exit == GroupExit::kMismatch) {
      kept.distrusted[leaver.id.worker] = leaver.id.incarnation;
    }
  }
  // Survives a power cut: a coordinator that took an older view for the newest
  // would count on members that were removed since.
  mesh_.actions.writes.views[job.record.id()] = job.groups.kept;
  mesh_.actions.writes.durable = true;
}

void Groups::TakeLeaver(JobEntry& job, const GroupLeaver& leaver,
                        Moment moment) {
  ++counts_.leavers[leaver.exit];
  const WorkerId worker = leaver.id.worker;
  if (leaver.exit == GroupExit::kDrained) {
    mesh_.LetGo(job, *FindWorker(job.record, worker));
    mesh_.Put(job);
    mesh_.queue_changed = true;
  }
  GroupState::Return& back = job.group->returns[worker];
  back.due = moment.now;
  if (leaver.exit == GroupExit::kMismatch && job.recovery != nullptr) {
    job.recovery->Distrust(leaver.id);
  }
  if (!IsPunished(leaver.exit)) return;
  back.times += leaver.exit == GroupExit::kFailed ? kFailureTimes : 1;
  absl::Duration pause = mesh_.policy.first_pause;
  for (int i = 1; i < back.times && pause < mesh_.policy.longest_pause; ++i) {
    pause *= 2;
  }
  back.due = moment.now + std::min(pause, mesh_.policy.longest_pause);
}

void Groups::OnRepaired(const Member& member, const v1::Heartbeat& heartbeat,
                        Moment moment) {
  for (const int64_t id : heartbeat.repaired_jobs()) {
    JobEntry* const job = mesh_.FindJob(JobId{id});
    if (job == nullptr || !job->group.has_value()) continue;
    const auto back = job->group->returns.find(member.id);
    if (back == job->group->returns.end()) continue;
    back->second.due = std::min(back->second.due, moment.now);
  }
}

void Groups::OnOver(JobEntry& job, Moment moment) {
  const JobGroup& group = *job.group;
  if (!group.ended() && !job.lost_error.ok() &&
      !absl::IsAborted(job.lost_error) &&
      !absl::IsUnavailable(job.lost_error)) {
    return mesh_.FailJob(
        job,
        absl::StrCat(job.lost_error.message(), "; no other member is left"),
        AdviceAfter(job.lost_error, job.record.spec), moment);
  }
  if (group.begun()) {
    job.groups.kept.faults_are_spent = true;
    mesh_.actions.writes.views[job.record.id()] = job.groups.kept;
    mesh_.actions.writes.durable = true;
  }
  if (!group.ended() && !group.advanced() &&
      ++job.groups.lost >= kMostLostGroups) {
    return mesh_.FailJob(job,
                         absl::StrCat("its group was lost ", job.groups.lost,
                                      " times without a step"),
                         SubmitAgain(), moment);
  }
  on_change_(job, moment);
}

bool Groups::WaitsForUpload(JobEntry& job, const absl::Status& error,
                            Moment moment) {
  // The member that uploads the weights may have changed at the last moment.
  if (!job.group.has_value() || !job.saving ||
      !absl::IsFailedPrecondition(error) ||
      ++job.group->incomplete_saves > kMostIncompleteSaves) {
    return false;
  }
  job.saving = false;
  job.group->save_again = moment.now + kSavePause;
  return true;
}

bool Groups::AddTo(const JobEntry& job, const Member& member,
                   RunOrder& run) const {
  run.group = job.group->OrderOf(member.process());
  if (!run.group.has_value()) return false;
  run.group->deposit_from = job.group->deposit_from;
  if (job.recovery->NeedsFollowers()) {
    run.group->deposit_every = run.spec.pipeline.snapshot_every;
  }
  if (job.groups.kept.faults_are_spent) {
    std::erase_if(run.spec.faults, [](const FaultSpec& fault) {
      return fault.kind != kSkipStage;
    });
  }
  // Only the worker's own place: an order's stages never change within a fence,
  // while members come and go.
  run.stages.clear();
  run.routes.clear();
  for (const StageOfPlan& stage : job.record.stages) {
    if (stage.worker != member.id) continue;
    run.stages = mesh_.Place({{stage.layers, stage.worker, 1}});
    run.routes = RoutesOf({{stage.layers, stage.worker, 1}});
  }
  return true;
}

std::string Groups::PhaseOf(const JobEntry& job) {
  const JobRecord& record = job.record;
  if (const absl::string_view broken = job.Interruption(); !broken.empty()) {
    return std::string(broken);
  }
  if (!job.group.has_value()) return paceline::PhaseOf(record);
  if (job.saving ||
      (record.job.steps() > 0 && record.job.step() >= record.job.steps())) {
    return "saving";
  }
  if (job.group->paused()) return "paused";
  return job.group->said_running ? "training" : "preparing";
}

void Groups::Check(JobEntry& job, Moment moment) {
  if (!job.group.has_value() || job.saving) return;
  std::vector<WorkerId> workers;
  for (const v1::JobWorker& worker : job.record.job.workers()) {
    workers.emplace_back(WorkerId{worker.id()});
  }
  for (const WorkerId worker : workers) {
    CheckProcess(job, worker, moment);
    if (job.group->ended()) return TakeNews(job, moment);
  }
  job.group->OnTick(moment.now);
  TakeNews(job, moment);
  if (job.group.has_value()) RefreshRenewals(job, moment);
}

void Groups::CheckProcess(JobEntry& job, WorkerId worker, Moment moment) {
  if (mesh_.JobOf(worker) != &job) return;
  JobGroup& group = *job.group;
  const Member* const member = mesh_.membership.Find(worker);
  const MemberId* const present = group.FindProcess(worker);
  if (member == nullptr || IsGone(member->state)) {
    const MembershipPolicy& policy = mesh_.policy.membership;
    const bool seen = member != nullptr && member->seen;
    const bool patient =
        !seen && moment.now - mesh_.start < policy.lease + policy.grace;
    if (patient || present == nullptr) return;
    const MemberId gone = *present;
    const bool stopped =
        member != nullptr && member->state == MemberState::kStopped;
    return group.OnGone(gone, stopped ? GroupExit::kStopped : GroupExit::kLost,
                        member != nullptr ? member->why : "it is not known");
  }
  const MemberId id = member->process();
  if (present != nullptr && *present != id) {
    if (!group.begun() && job.groups.false_starts < kMostFalseStarts) {
      ++job.groups.false_starts;
      return group.End(absl::StrCat("worker ", mesh_.NameOf(worker),
                                    " started anew before the run"));
    }
    const MemberId gone = *present;
    group.OnGone(gone, GroupExit::kRestarted, "it runs as another process now");
  }
  if (!member->stream.assigned() || mesh_.IsDrained(worker)) return;
  if (group.IsExcluded(id)) return;  // RefreshRenewals() asks for another one
  if (!group.Has(id) && !HasRoom(job)) {
    mesh_.LetGo(job, *FindWorker(job.record, worker));  // its place is taken
    return;
  }
  double share = 1;
  for (const StageOfPlan& stage : job.record.stages) {
    if (stage.worker == worker) share = stage.share;
  }
  group.Admit(WorkerOf(*member), share, moment.now);
  group.OnHeard(id, member->last_heard);
}

void Groups::SetDraining(JobEntry& job, WorkerId worker, bool drain,
                         Moment moment) {
  if (!job.group.has_value() || job.saving) return;
  job.group->SetDraining(worker, drain);
  TakeNews(job, moment);
}

void Groups::RefreshRenewals(JobEntry& job, Moment moment) {
  job.group->renew.clear();
  for (const v1::JobWorker& part : job.record.job.workers()) {
    const WorkerId worker{part.id()};
    const Member* const member = mesh_.membership.Find(worker);
    if (member == nullptr || !member->stream.assigned() ||
        IsGone(member->state) || mesh_.JobOf(worker) != &job ||
        mesh_.IsDrained(worker)) {
      continue;
    }
    if (job.group->IsExcluded(member->process()) &&
        job.group->returns[worker].due <= moment.now) {
      job.group->renew.insert(worker);
    }
  }
}

bool Groups::HasRoom(const JobEntry& job) {
  const int64_t most = job.record.spec.aggregation.members;
  return most == 0 || job.group->members() + job.group->listeners() < most;
}

void Groups::AdmitJoiners(Moment moment) {
  for (const JobId id : mesh_.open) {
    const JobEntry& job = mesh_.jobs.at(id);
    if (job.record.state() == v1::JOB_STATE_QUEUED &&
        !job.queued.may_be_passed) {
      return;  // the queued job may want the workers
    }
  }
  for (JobEntry* const job : mesh_.RunningJobs()) {
    if (job->record.state() != v1::JOB_STATE_RUNNING ||
        !job->group.has_value() || job->saving || PhaseOf(*job) == "saving") {
      continue;
    }
    AdmitJoinersOf(*job, moment);
  }
}

void Groups::AdmitJoinersOf(JobEntry& job, Moment moment) {
  for (const Candidate& candidate : mesh_.Candidates()) {
    const Member& member = *candidate.member;
    const Incarnation process = member.incarnation();
    if (!IsIdle(candidate) || !HasRoom(job) ||
        job.group->unfit[member.id] == process || CannotDial(job, member)) {
      continue;
    }
    const absl::StatusOr<ModelDescription> model = Describe(job.record.spec);
    if (!model.ok() ||
        !CheckJoiner(SpecOfAttempt(job.record), *model,
                     job.record.job.cpu_capability(), member, mesh_.measured)
             .ok()) {
      job.group->unfit[member.id] = process;
      continue;
    }
    if (!HasMemory(job, member, *model, moment)) continue;
    AddWorker(job, member, *model);
    CheckProcess(job, member.id, moment);
    TakeNews(job, moment);
    if (!job.group.has_value()) return;
  }
}

std::vector<const Member*> Groups::MembersOf(const JobEntry& job) const {
  std::vector<const Member*> members;
  for (const v1::JobWorker& part : job.record.job.workers()) {
    const WorkerId worker{part.id()};
    if (job.group->FindProcess(worker) == nullptr) continue;
    const Member* const member = mesh_.membership.Find(worker);
    if (member != nullptr) members.push_back(member);
  }
  return members;
}

// Decided anew for each joiner, since links are dialled again.
bool Groups::CannotDial(const JobEntry& job, const Member& joiner) const {
  const std::string& name = joiner.registration.name();
  std::set<std::string> names = {name};
  for (const Member* member : MembersOf(job)) {
    names.insert(member->registration.name());
  }
  return absl::c_any_of(RefusedLinks(mesh_.measured, names),
                        [&name](const LinkMeasurement& link) {
                          return link.from == name || link.to == name;
                        });
}

// A refused process is judged again when the group is smaller.
bool Groups::HasMemory(JobEntry& job, const Member& joiner,
                       const ModelDescription& model, Moment moment) {
  const std::vector<const Member*> members = MembersOf(job);
  const Incarnation process = joiner.incarnation();
  auto& [refused, size] = job.group->cramped[joiner.id];
  const bool known = refused == process;
  if (known && members.size() >= size) return false;
  const absl::Status room =
      CheckRoom(SpecOfAttempt(job.record), model, members, joiner);
  if (room.ok()) return true;
  refused = process;
  size = members.size();
  if (!known) {
    mesh_.AddEvent(job, moment, "warning", std::string(room.message()));
  }
  return false;
}

void Groups::AddWorker(JobEntry& job, const Member& member,
                       const ModelDescription& model) {
  JobRecord& record = job.record;
  mesh_.busy[member.id] = record.id();
  if (v1::JobWorker* const known = FindWorker(record, member.id)) {
    known->set_let_go(false);
  } else {
    std::vector<const Member*> all;
    bool equal = true;
    double sum = 0;
    for (const StageOfPlan& stage : record.stages) {
      const Member* const other = mesh_.membership.Find(stage.worker);
      if (other != nullptr) all.push_back(other);
      equal = equal && stage.share == 1;
      sum += stage.share;
    }
    const size_t others = record.stages.size();
    all.push_back(&member);
    double share =
        SharesOf(record.spec, model, all, mesh_.measured).at(member.id);
    // Without aggregation.shares, the share has the unit of the others'.  A
    // worker without measurements gets their mean.
    if (record.spec.aggregation.shares.empty()) {
      if (equal || others == 0) {
        share = 1;
      } else if (share == 1) {
        share = sum / static_cast<double>(others);
      }
    }
    record.stages.push_back(
        {{0, static_cast<int>(model.layers.size())}, member.id, share});
    v1::JobWorker& part = *record.job.add_workers();
    part.set_id(member.id.value);
    part.set_name(member.registration.name());
    std::sort(record.job.mutable_workers()->pointer_begin(),
              record.job.mutable_workers()->pointer_end(),
              [](const auto* a, const auto* b) { return a->id() < b->id(); });
  }
  if (job.group.has_value()) {
    job.group->SetInstructionBound(OptionsOf(job).instruction_bound);
  }
  mesh_.Put(job);
}

}  // namespace paceline

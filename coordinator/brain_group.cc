// The part of Brain that keeps the round groups of data-parallel jobs: how they
// begin, what their members say, and what becomes of a job whose group is lost.
// Who is in one: brain_members.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/advice.h"
#include "coordinator/brain.h"
#include "coordinator/group_placement.h"
#include "coordinator/job_text.h"
#include "core/model/aggregation.h"
#include "core/rpc/report_convert.h"

namespace paceline {
namespace {

// A compute thread may take five times as long as predicted.
constexpr double kPatience = 5;
// Attempts in a row that may end before their first step.
constexpr int kMostLostGroups = 3;
// Five minutes, for a member that begins to upload when another was lost.
constexpr int kMostIncompleteSaves = 600;
constexpr absl::Duration kSavePause = absl::Milliseconds(500);
// A worker that failed is not asked again soon: it counts as taken out so many
// times more.
constexpr int kFailureTimes = 3;

// Its process lives: the next one comes only when it is asked for.
bool IsPunished(GroupExit exit) {
  return exit == GroupExit::kSilent || exit == GroupExit::kHung ||
         exit == GroupExit::kMismatch || exit == GroupExit::kFailed;
}

bool HasLatePart(const v1::RoundRecord& record) {
  return std::any_of(record.skipped().begin(), record.skipped().end(),
                     [](const v1::RoundRecord::Skip& skip) {
                       return skip.reason() == "late";
                     });
}

}  // namespace

// --- the beginning ----------------------------------------------------------

GroupWorker Brain::GroupWorkerOf(const Member& member) {
  return {member.process(), member.registration.name(),
          member.registration.address()};
}

GroupOptions Brain::GroupOptionsOf(const Job& job) const {
  GroupOptions options;
  options.term = term_;
  options.min_parts =
      std::max<int64_t>(1, job.record.spec.aggregation.min_parts);
  options.lease = policy_.membership.lease;
  std::vector<const Member*> workers;
  for (const v1::JobWorker& worker : job.record.job.workers()) {
    const Member* const member = membership_.Find(WorkerId{worker.id()});
    if (member != nullptr) workers.push_back(member);
  }
  const absl::StatusOr<ModelDescription> model = Describe(job.record.spec);
  const double seconds = model.ok() ? SlowestMicroBatch(job.record.spec, *model,
                                                        workers, measured_)
                                    : 0;
  options.instruction_bound =
      std::max(options.lease, absl::Seconds(kPatience * seconds));
  return options;
}

void Brain::StartGroup(Job& job, Moment moment) {
  // Settled with the first members, for good: those who come later cut the
  // gradient as the others do.
  if (const auto model = Describe(job.record.spec); model.ok()) {
    job.record.spec.aggregation.shards =
        ShardsOf(job.record.spec, *model, std::ssize(job.record.stages));
  }
  std::vector<GroupWorker> workers;
  std::map<WorkerId, double> shares;
  for (const StageOfPlan& stage : job.record.stages) {
    const Member* const member = membership_.Find(stage.worker);
    if (member == nullptr) continue;  // placed on those who are live
    workers.push_back(GroupWorkerOf(*member));
    shares[stage.worker] = stage.share;
  }
  job.events.ForgetEvaluations(-1);
  job.said_running = job.said_deadline = false;
  job.lost_error = absl::OkStatus();
  job.returns.clear();
  job.renew.clear();
  job.unfit.clear();
  job.cramped.clear();
  job.incomplete_saves = 0;
  job.kept = {job.record.job.attempt(), {}, {}, job.kept.faults_are_spent};
  job.group.emplace(GroupOptionsOf(job), std::nullopt);
  job.group->Begin(workers, shares, moment.now);
  TakeGroupNews(job, moment);
}

void Brain::RestoreGroup(Job& job, Moment moment) {
  const View view = job.kept.view;
  if (view.id == ViewId() || job.kept.attempt != job.record.job.attempt()) {
    return RestartGroup(job, "no view of its members is kept", moment);
  }
  job.group.emplace(GroupOptionsOf(job), view, job.kept.excluded);
  for (const StageOfPlan& stage : job.record.stages) {
    const Member* const member = membership_.Find(stage.worker);
    const v1::JobWorker* const worker = FindWorker(job.record, stage.worker);
    if (member == nullptr || worker == nullptr || worker->let_go()) continue;
    job.group->Admit(GroupWorkerOf(*member), stage.share, moment.now);
  }
  job.group->TakeNews();  // they are no news
  job.said_running = job.record.job.step() > 0;
  job.events.ForgetEvaluations(job.record.job.evaluated_step());
  for (const ViewMember& member : view.members) {
    if (job.group->Has(member.id)) continue;
    job.group->OnGone(member.id, GroupExit::kRestarted,
                      "it runs as another process now");
  }
  for (const WorkerId worker : drained_) job.group->SetDraining(worker, true);
  TakeGroupNews(job, moment);
}

// --- what members say -------------------------------------------------------

void Brain::TakeMemberReport(Job& job, const Member& member,
                             const WorkerReport& report, Moment moment) {
  if (!job.group.has_value() || job.saving) return;
  const v1::RunState& run = report.heartbeat.run();
  const MemberId id = member.process();
  if (run.phase() == v1::RunState::PHASE_FAILED && job.group->Has(id)) {
    const absl::Status error = ErrorOf(run);
    job.lost_error = absl::Status(
        error.code(),
        absl::StrCat("worker ", member.registration.name(), " failed ",
                     AtStep(job.record), ": ", error.message()));
    job.group->OnGone(id, GroupExit::kFailed, std::string(error.message()));
  } else {
    job.group->OnReport(id, run.phase(), report.member,
                        report.heartbeat.progress(), moment.now);
  }
  if (report.member.has_value()) TakePeers(member, *report.member, moment);
  if (!job.group.has_value()) return;
  job.group->OnTick(moment.now);
  TakeGroupNews(job, moment);
}

void Brain::TakePeers(const Member& member, const MemberReport& report,
                      Moment moment) {
  std::map<WorkerId, std::string> broken;
  for (const PeerReport& peer : report.peers) {
    if (!peer.refused && peer.broken <= absl::ZeroDuration()) continue;
    const Member* const about = membership_.Find(peer.peer.worker);
    // Not of a process that another one has replaced.
    if (about == nullptr || about->incarnation() != peer.peer.incarnation) {
      continue;
    }
    broken[about->id] =
        peer.refused ? "nobody listens at its address" : "its link broke";
  }
  TakeChanges(membership_.OnLinks(member.id, std::move(broken), moment.now),
              moment);
}

void Brain::TakeRound(Job& job, const v1::RoundRecord& record, Moment moment) {
  const auto event = job.events.OnRecord(
      record, [this](WorkerId worker) { return NameOf(worker); });
  if (event.has_value()) AddEvent(job, event->kind, event->text, moment);
  const double longest = job.record.spec.aggregation.deadline;
  if (record.seconds() < longest || !HasLatePart(record)) return;
  if (std::exchange(job.said_deadline, true)) return;
  AddEvent(job, "warning",
           absl::StrFormat(
               "a round took %.0f s, and waits at most aggregation.deadline, "
               "%g s, for the parts of slow members or over slow links: those "
               "that come later train nothing. Let it be longer, or send less: "
               "aggregation.shards, codec: bf16",
               record.seconds(), longest),
           moment);
}

void Brain::TakePartEvaluation(Job& job, WorkerId worker,
                               const v1::EvaluationRecord& part,
                               Moment moment) {
  const std::optional<v1::EvaluationRecord> sum =
      job.events.OnEvaluation(worker, part);
  if (!sum.has_value()) return;
  if (sum->step() <= job.record.job.evaluated_step()) return;
  const auto [open, is_new] = job.evaluating.try_emplace(sum->step());
  open->second.sum = *sum;
  if (is_new) {
    for (const MemberId& member : MembersAt(*job.group->view(), sum->step())) {
      open->second.members.insert(member.worker);
    }
  }
  while (!job.evaluating.empty() && EvaluationIsOver(job)) {
    EndEvaluation(job, moment);
  }
}

// A member sends its parts in the order of their steps.  A part of a member
// that was lost is waited for until a later evaluation has begun.
bool Brain::EvaluationIsOver(const Job& job) {
  const auto& [step, evaluation] = *job.evaluating.begin();
  std::set<WorkerId> sent = job.events.EvaluatedBy(step);
  if (sent.empty()) return true;  // its parts are forgotten: too many are open
  const bool later = job.evaluating.size() > 1;
  for (const auto& [other, unused] : job.evaluating) {
    sent.merge(job.events.EvaluatedBy(other));
  }
  const View& view = *job.group->view();
  const auto is_gone = [&view](WorkerId worker) {
    return std::none_of(view.members.begin(), view.members.end(),
                        [worker](const ViewMember& member) {
                          return member.id.worker == worker;
                        });
  };
  return std::all_of(evaluation.members.begin(), evaluation.members.end(),
                     [&](WorkerId member) {
                       return sent.count(member) > 0 ||
                              (later && is_gone(member));
                     });
}

void Brain::EndEvaluation(Job& job, Moment moment) {
  const auto open = job.evaluating.extract(job.evaluating.begin());
  const v1::EvaluationRecord& evaluation = open.mapped().sum;
  job.record.job.set_evaluated_step(evaluation.step());
  std::vector<std::string> missing;
  const std::set<WorkerId> there = job.events.EvaluatedBy(evaluation.step());
  for (const WorkerId worker : open.mapped().members) {
    if (there.count(worker) == 0) missing.push_back(NameOf(worker));
  }
  const std::string text = EvaluationText(job.record.spec, evaluation);
  if (!missing.empty() || evaluation.samples() < job.most_evaluated) {
    return AddEvent(
        job, "incomplete",
        absl::StrCat(text, ", not the whole test set: it does not count",
                     missing.empty()
                         ? ""
                         : absl::StrCat("; no part came from ",
                                        absl::StrJoin(missing, ", "))),
        moment);
  }
  job.most_evaluated = evaluation.samples();
  job.accuracy = evaluation.accuracy();
  actions_.writes.records[job.record.id()].evaluations.push_back(evaluation);
  AddEvent(job, "evaluated", text, moment);
}

// --- what comes of it -------------------------------------------------------

void Brain::TakeGroupNews(Job& job, Moment moment) {
  JobGroup& group = *job.group;
  GroupNews news = group.TakeNews();
  KeepGroup(job, news);
  group_counts_.views += news.views;
  for (const GroupLeaver& leaver : news.leavers) {
    TakeLeaver(job, leaver, moment);
  }
  for (const GroupEvent& event : news.events) {
    AddEvent(job, event.kind, event.text, moment);
  }
  if (group.furthest() > 0) job.lost_groups = job.false_starts = 0;
  if (group.lost() || group.torn()) return OnGroupLost(job, moment);
  if (!job.said_running && group.begun()) {
    job.said_running = true;
    AddEvent(job, "running",
             absl::StrCat("the group trains: view ", ViewText(group.view()->id),
                          " of ", group.members(),
                          group.members() == 1 ? " member" : " members"),
             moment);
  }
  if (job.saving || moment.now < job.save_again || !group.AllDone()) return;
  while (!job.evaluating.empty()) EndEvaluation(job, moment);
  OnAllDone(job, moment);
}

void Brain::KeepGroup(Job& job, const GroupNews& news) {
  if (!news.view.has_value() && news.leavers.empty()) return;
  if (news.view.has_value()) job.kept.view = *news.view;
  for (const GroupLeaver& leaver : news.leavers) {
    job.kept.excluded[leaver.id.worker] = leaver.id.incarnation;
  }
  // Also after a power cut: a coordinator that takes an older view for the
  // newest would count on members that have long been left behind.
  actions_.writes.views[job.record.id()] = job.kept;
  actions_.writes.durable = true;
}

void Brain::TakeLeaver(Job& job, const GroupLeaver& leaver, Moment moment) {
  ++group_counts_.leavers[leaver.exit];
  const WorkerId worker = leaver.id.worker;
  if (leaver.exit == GroupExit::kDrained) {
    LetGo(job, *FindWorker(job.record, worker));
    Put(job);
    queue_changed_ = true;
  }
  Job::Return& back = job.returns[worker];
  back.due = moment.now;
  if (!IsPunished(leaver.exit)) return;
  back.times += leaver.exit == GroupExit::kFailed ? kFailureTimes : 1;
  absl::Duration pause = policy_.first_pause;
  for (int i = 1; i < back.times && pause < policy_.longest_pause; ++i) {
    pause *= 2;
  }
  back.due = moment.now + std::min(pause, policy_.longest_pause);
}

void Brain::OnGroupLost(Job& job, Moment moment) {
  if (!job.lost_error.ok() && !absl::IsAborted(job.lost_error) &&
      !absl::IsUnavailable(job.lost_error)) {
    return FailJob(
        job,
        absl::StrCat(job.lost_error.message(), "; no other member is left"),
        AdviceAfter(job.lost_error), moment);
  }
  if (job.group->begun()) {
    job.kept.faults_are_spent = true;
    actions_.writes.views[job.record.id()] = job.kept;
    actions_.writes.durable = true;
  }
  if (job.group->furthest() == 0 && ++job.lost_groups >= kMostLostGroups) {
    return FailJob(job,
                   absl::StrCat("its group was lost ", job.lost_groups,
                                " times before the first step"),
                   SubmitAgain(), moment);
  }
  RestartGroup(job,
               job.group->torn() ? "no state of its group is to be trusted"
                                 : "nobody who has the group's state is left",
               moment);
}

// The state is restored from the seed: there are no snapshots yet.
void Brain::RestartGroup(Job& job, const std::string& why, Moment moment) {
  JobRecord& record = job.record;
  AddEvent(job, "again",
           absl::StrCat(why,
                        ": it begins again at step 0 with those who are "
                        "there (was at step ",
                        record.job.step(), ")"),
           moment);
  actions_.weights.push_back(
      {Actions::Weights::Kind::kForget, record.fence(), {}});
  for (v1::JobWorker& worker : *record.job.mutable_workers()) {
    LetGo(job, worker);
  }
  job.group.reset();
  job.evaluating.clear();
  job.recent.clear();
  job.loss.reset();
  job.accuracy.reset();
  StoreBatch::Records& records = actions_.writes.records[record.id()];
  records.steps.clear();
  records.evaluations.clear();
  actions_.writes.restarted.insert(record.id());
  job.renew.clear();
  job.preparing_since.clear();
  job.saving = false;
  record.job.set_state(v1::JOB_STATE_QUEUED);
  record.job.set_step(0);
  queue_changed_ = true;
  SetWhy(job, absl::StrCat("begins again: ", why));
  Put(job);
}

// A process that starts anew would otherwise join a moment after the others.
std::string Brain::WaitsForReturn(const Job& job) const {
  if (!IsDataParallel(job.record.spec) || job.record.job.attempt() == 0)
    return "";
  std::vector<std::string> names;
  for (const v1::JobWorker& worker : job.record.job.workers()) {
    const Member* const member = membership_.Find(WorkerId{worker.id()});
    if (member == nullptr || IsGone(member->state)) continue;
    if (member->restarting || !member->stream.assigned()) {
      names.push_back(worker.name());
    }
  }
  if (names.empty()) return "";
  return absl::StrCat("waits for ", absl::StrJoin(names, ", "),
                      " to start anew");
}

bool Brain::WaitsForUpload(Job& job, const absl::Status& error, Moment moment) {
  // Who hands the weights over may have changed at the last moment.
  if (!job.group.has_value() || !job.saving ||
      !absl::IsFailedPrecondition(error) ||
      ++job.incomplete_saves > kMostIncompleteSaves) {
    return false;
  }
  job.saving = false;
  job.save_again = moment.now + kSavePause;
  return true;
}

// --- orders and views -------------------------------------------------------

StandingOrder Brain::GroupOrderOf(const Job& with_group,
                                  WorkerId worker) const {
  const JobRecord& job = with_group.record;
  const Member* const member = membership_.Find(worker);
  StandingOrder order;
  if (member == nullptr || !with_group.group.has_value()) return order;
  std::optional<GroupOrder> group =
      with_group.group->OrderOf(member->process());
  if (!group.has_value()) {
    order.renew = with_group.renew.contains(worker);
    return order;
  }
  RunOrder run;
  run.fence = job.fence();
  run.spec = job.spec;
  if (with_group.kept.faults_are_spent) run.spec.faults.clear();
  // Its own place alone: what an order says of stages never changes within a
  // fence, and members come and go.
  for (const StageOfPlan& stage : job.stages) {
    if (stage.worker != worker) continue;
    run.stages = Place({{stage.layers, stage.worker, 1}});
    run.routes = RoutesOf({{stage.layers, stage.worker, 1}});
  }
  run.cpu_capability = job.job.cpu_capability();
  run.threads = job.job.threads();
  run.group = std::move(group);
  order.run = std::move(run);
  return order;
}

std::string Brain::PhaseOfJob(const Job& job) const {
  const JobRecord& record = job.record;
  if (!job.group.has_value()) return PhaseOf(record);
  if (job.saving ||
      (record.job.steps() > 0 && record.job.step() >= record.job.steps())) {
    return "saving";
  }
  if (job.group->paused()) return "paused";
  return job.said_running ? "training" : "preparing";
}

}  // namespace paceline

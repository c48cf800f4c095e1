// The part of Brain that knows who is there for a round group: whose process is
// gone or another one, who joins, who is asked to start anew, who is let go.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/brain.h"
#include "coordinator/group_placement.h"
#include "coordinator/job_text.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// Times that a job begins again because a process started anew before the run;
// beyond, such a process joins the others instead.
constexpr int kMostFalseStarts = 3;

}  // namespace

void Brain::CheckGroup(Job& job, Moment moment) {
  if (!job.group.has_value() || job.saving) return;
  std::vector<WorkerId> workers;
  for (const v1::JobWorker& worker : job.record.job.workers()) {
    workers.emplace_back(WorkerId{worker.id()});
  }
  for (const WorkerId worker : workers) {
    CheckProcess(job, worker, moment);
    if (!job.group.has_value()) return;
  }
  job.group->OnTick(moment.now);
  TakeGroupNews(job, moment);
  if (job.group.has_value()) RefreshRenewals(job, moment);
}

void Brain::CheckProcess(Job& job, WorkerId worker, Moment moment) {
  if (JobOf(worker) != &job) return;
  JobGroup& group = *job.group;
  const Member* const member = membership_.Find(worker);
  const MemberId* const present = group.FindProcess(worker);
  if (member == nullptr || IsGone(member->state)) {
    const MembershipPolicy& policy = policy_.membership;
    const bool seen = member != nullptr && member->seen;
    const bool patient =
        !seen && moment.now - start_ < policy.lease + policy.grace;
    if (patient || present == nullptr) return;
    const MemberId gone = *present;
    const bool stopped =
        member != nullptr && member->state == MemberState::kStopped;
    return group.OnGone(gone, stopped ? GroupExit::kStopped : GroupExit::kLost,
                        member != nullptr ? member->why : "it is not known");
  }
  const MemberId id = member->process();
  if (present != nullptr && *present != id) {
    if (!group.begun() && job.false_starts < kMostFalseStarts) {
      ++job.false_starts;
      return RestartGroup(job,
                          absl::StrCat("worker ", NameOf(worker),
                                       " started anew before the run"),
                          moment);
    }
    const MemberId gone = *present;
    group.OnGone(gone, GroupExit::kRestarted, "it runs as another process now");
  }
  if (!member->stream.assigned() || drained_.contains(worker)) return;
  if (group.IsExcluded(id)) return;  // RefreshRenewals() asks for another one
  if (!group.Has(id) && !HasRoom(job)) {
    LetGo(job, *FindWorker(job.record, worker));  // its place is taken
    return;
  }
  double share = 1;
  for (const StageOfPlan& stage : job.record.stages) {
    if (stage.worker == worker) share = stage.share;
  }
  group.Admit(GroupWorkerOf(*member), share, moment.now);
  group.OnHeard(id, member->last_heard);
}

void Brain::RefreshRenewals(Job& job, Moment moment) {
  job.renew.clear();
  for (const v1::JobWorker& part : job.record.job.workers()) {
    const WorkerId worker{part.id()};
    const Member* const member = membership_.Find(worker);
    if (member == nullptr || !member->stream.assigned() ||
        IsGone(member->state) || JobOf(worker) != &job ||
        drained_.contains(worker)) {
      continue;
    }
    if (job.group->IsExcluded(member->process()) &&
        job.returns[worker].due <= moment.now) {
      job.renew.insert(worker);
    }
  }
}

bool Brain::HasRoom(const Job& job) const {
  const int64_t most = job.record.spec.aggregation.members;
  return most == 0 || job.group->members() + job.group->listeners() < most;
}

void Brain::AdmitJoiners(Moment moment) {
  for (const Job* const job : OpenJobs()) {
    if (job->record.state() == JobState::kQueued && !job->may_be_passed) {
      return;  // it may want them
    }
  }
  for (Job* const job : OpenJobs()) {
    if (job->record.state() != JobState::kRunning || !job->group.has_value() ||
        job->saving || PhaseOfJob(*job) == "saving") {
      continue;
    }
    AdmitJoinersOf(*job, moment);
  }
}

void Brain::AdmitJoinersOf(Job& job, Moment moment) {
  for (const Candidate& candidate : Candidates()) {
    const Member& member = *candidate.member;
    const Incarnation process = member.incarnation();
    if (!IsIdle(candidate) || !HasRoom(job) ||
        job.unfit[member.id] == process) {
      continue;
    }
    const absl::StatusOr<ModelDescription> model = Describe(job.record.spec);
    if (!model.ok() ||
        !CheckJoiner(job.record.spec, *model, job.record.job.cpu_capability(),
                     member, measured_)
             .ok()) {
      job.unfit[member.id] = process;
      continue;
    }
    if (!HasMemory(job, member, *model, moment)) continue;
    AddWorker(job, member, *model);
    CheckProcess(job, member.id, moment);
    TakeGroupNews(job, moment);
    if (!job.group.has_value()) return;
  }
}

// Asked again when the group is smaller.
bool Brain::HasMemory(Job& job, const Member& joiner,
                      const ModelDescription& model, Moment moment) {
  std::vector<const Member*> members;
  for (const v1::JobWorker& part : job.record.job.workers()) {
    const WorkerId worker{part.id()};
    if (job.group->FindProcess(worker) == nullptr) continue;
    const Member* const member = membership_.Find(worker);
    if (member != nullptr) members.push_back(member);
  }
  const Incarnation process = joiner.incarnation();
  auto& [refused, size] = job.cramped[joiner.id];
  const bool known = refused == process;
  if (known && members.size() >= size) return false;
  const absl::Status room = CheckRoom(job.record.spec, model, members, joiner);
  if (room.ok()) return true;
  refused = process;
  size = members.size();
  if (!known) AddEvent(job, "warning", std::string(room.message()), moment);
  return false;
}

void Brain::AddWorker(Job& job, const Member& member,
                      const ModelDescription& model) {
  JobRecord& record = job.record;
  busy_[member.id] = record.id();
  if (v1::JobWorker* const known = FindWorker(record, member.id)) {
    known->set_let_go(false);
  } else {
    std::vector<const Member*> all;
    bool equal = true;
    double sum = 0;
    for (const StageOfPlan& stage : record.stages) {
      const Member* const other = membership_.Find(stage.worker);
      if (other != nullptr) all.push_back(other);
      equal = equal && stage.share == 1;
      sum += stage.share;
    }
    const size_t others = record.stages.size();
    all.push_back(&member);
    double share = SharesOf(record.spec, model, all, measured_).at(member.id);
    // Unless the job says: in the unit of the others; one that nobody has
    // measured does as much as they do on average.
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
    job.group->SetInstructionBound(GroupOptionsOf(job).instruction_bound);
  }
  Put(job);
}

absl::StatusOr<const Member*> Brain::FindMember(
    const std::string& worker) const {
  const Member* found = nullptr;
  std::vector<std::string> names;
  for (const auto& [id, member] : membership_.members()) {
    names.push_back(member.registration.name());
    if (member.registration.name() == worker) found = &member;
  }
  for (const auto& [id, member] : membership_.members()) {
    if (found == nullptr && absl::StrCat(id.value) == worker) found = &member;
  }
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "no worker '", worker, "'; known are: ",
        names.empty() ? std::string("none") : absl::StrJoin(names, ", ")));
  }
  return found;
}

absl::StatusOr<v1::Worker> Brain::OnForget(const std::string& worker,
                                           Moment moment) {
  PACELINE_ASSIGN_OR_RETURN(const Member* const found, FindMember(worker));
  const WorkerId id = found->id;
  const std::string& name = found->registration.name();
  if (!IsGone(found->state)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", name, " is there (", MemberStateName(found->state),
        "): end its process first"));
  }
  if (const Job* const job = JobOf(id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job->record.id().value, " waits for worker ", name,
                     ": end the job first with: paceline job stop ",
                     job->record.id().value));
  }
  v1::Worker view = ViewWorker(*found, moment.now);
  AddNotice(id, absl::StrCat("worker ", name, " is forgotten"));
  actions_.writes.workers.erase(id);
  actions_.writes.forgotten.push_back(id);
  actions_.writes.durable = true;
  drained_.erase(id);
  membership_.Forget(id);
  queue_changed_ = true;
  Settle(moment);
  return view;
}

absl::StatusOr<v1::Worker> Brain::OnDrain(const std::string& worker, bool drain,
                                          Moment moment) {
  PACELINE_ASSIGN_OR_RETURN(const Member* const found, FindMember(worker));
  const WorkerId id = found->id;
  if (drained_.contains(id) == drain) return ViewWorker(*found, moment.now);
  if (drain) {
    drained_.insert(id);
  } else {
    drained_.erase(id);
  }
  actions_.writes.drained[id] = drain;
  actions_.writes.durable = true;
  AddNotice(id, absl::StrCat("worker ", found->registration.name(),
                             drain ? " is drained: it gets nothing new"
                                   : " is taken back"));
  for (Job* const job : OpenJobs()) {
    if (!job->group.has_value() || job->saving) continue;
    job->group->SetDraining(id, drain);
    TakeGroupNews(*job, moment);
  }
  const Job* const job = JobOf(id);  // one that left a group has none any more
  if (drain && job != nullptr) {
    AddEvent(*job, "draining",
             absl::StrCat("worker ", found->registration.name(),
                          " is let go when it is no longer needed here"),
             moment);
  }
  queue_changed_ = true;
  Settle(moment);
  return ViewWorker(*membership_.Find(id), moment.now);
}

}  // namespace paceline

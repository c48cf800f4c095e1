#include "coordinator/attempts/checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/job_text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/batch.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {
namespace {

Cut CutOf(const v1::Cut& cut) { return Taken<Cut>(cut); }

// The valid checkpoints of the list, and the one with which the job began.
std::map<int64_t, CheckpointId> CheckpointsOf(const JobRecord& record) {
  std::map<int64_t, CheckpointId> found;  // by step
  if (record.job.has_resumed()) {
    const v1::ResumedFrom& from = record.job.resumed();
    found[from.step()] = {JobId{from.job()}, from.step()};
  }
  const Lineage lineage = LineageOf(record);
  for (const v1::Checkpoint& each : record.job.checkpoints()) {
    if (!lineage.IsValid(CutOf(each.cut()))) continue;
    found[each.cut().step()] = {record.id(), each.cut().step()};
  }
  return found;
}

// The newest checkpoint whose state is not broken.
std::optional<CheckpointId> NewestSound(
    const JobRecord& record, const std::map<int64_t, CheckpointId>& there) {
  for (auto each = there.rbegin(); each != there.rend(); ++each) {
    if (!IsBroken(record.job, each->first)) return each->second;
  }
  return std::nullopt;
}

// Takes those that `is_over` names off the job's list; returns whether there
// were any.
template <typename IsOver>
bool TakeOff(v1::Job& job, const IsOver& is_over) {
  auto& list = *job.mutable_checkpoints();
  const auto rest = std::remove_if(list.begin(), list.end(), is_over);
  const bool any = rest != list.end();
  list.erase(rest, list.end());
  return any;
}

absl::StatusOr<CheckpointId> SkipsNow(JobId job) {
  return FailedPrecondition("the steps of job ", job.value,
                            " are skipped: its weights are of no use now");
}

absl::StatusOr<StateLayout> LayOutState(const JobSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, Describe(spec));
  return LayOutState(model, spec.train.optimizer);
}

}  // namespace

Lineage LineageOf(const JobRecord& record) {
  std::vector<AttemptRow> rows;
  ReadAll(record.job.attempts(), rows);
  return Lineage(std::move(rows));
}

std::set<Cut> CheckpointCuts(const JobRecord& record) {
  const Lineage lineage = LineageOf(record);
  std::set<Cut> cuts = {Cut{0, record.job.resumed().step()}};
  for (const v1::Checkpoint& each : record.job.checkpoints()) {
    const Cut cut = CutOf(each.cut());
    if (lineage.IsValid(cut)) cuts.insert(cut);
  }
  return cuts;
}

Cut NewestCheckpoint(const JobRecord& record) {
  return *CheckpointCuts(record).rbegin();
}

// --- Making them -------------------------------------------------------------

int64_t Checkpoints::DueAt(const JobEntry& job) const {
  const int64_t every = job.record.spec.train.checkpoint_every;
  const auto failed = failed_at_.find(job.record.id());
  const int64_t last =
      std::max(NewestCheckpoint(job.record).step,
               failed == failed_at_.end() ? 0 : failed->second);
  return (last / every + 1) * every;
}

bool Checkpoints::AwaitsLast(const JobEntry& job) const {
  const int64_t every = job.record.spec.train.checkpoint_every;
  const int64_t steps = job.record.job.steps();
  return job.recovery != nullptr && every > 0 && steps % every == 0 &&
         DueAt(job) <= steps;
}

void Checkpoints::Serve(Moment moment) {
  if (under_way_.has_value()) return;
  for (const JobId id : std::set<JobId>(exports_)) {
    const JobEntry* const job = mesh_.FindJob(id);
    if (job != nullptr && job->recovery != nullptr) continue;
    AnswerExport(id, FailedPrecondition("job ", id.value,
                                        " has ended meanwhile: export again"));
  }
  for (JobEntry* const job : mesh_.RunningJobs()) {
    if (job->recovery == nullptr || !job->recovery->floor().has_value()) {
      continue;
    }
    const Cut safe = *job->recovery->floor();
    if (safe == Cut()) continue;
    // No further round compares the states of a group's members after the last
    // step; the coordinator does so before the job is saved.
    if (job->group.has_value() && !job->saving &&
        safe.step == job->record.job.steps()) {
      continue;
    }
    if (IsBroken(job->record.job, safe.step)) {
      // The newest sound checkpoint is exported instead.
      const Cut newest = NewestCheckpoint(job->record);
      AnswerExport(job->record.id(), newest == Cut()
                                         ? SkipsNow(job->record.id())
                                         : Find(job->record.id(), newest));
      continue;
    }
    const bool is_due =
        job->record.spec.train.checkpoint_every > 0 && safe.step >= DueAt(*job);
    if (is_due ||
        (exports_.contains(job->record.id()) &&
         (!job->group.has_value() || safe.step >= job->group->deposit_from))) {
      return Begin(*job, safe, moment);
    }
  }
}

void Checkpoints::Begin(JobEntry& job, Cut cut, Moment moment) {
  const JobId id = job.record.id();
  under_way_ = {id, cut, moment.now, {}};
  absl::StatusOr<StateLayout> layout = LayOutState(job.record.spec);
  if (!layout.ok()) return Fail(std::string(layout.status().message()), moment);
  CheckpointOrder order{{id, cut.step}, {}, *std::move(layout), {}};
  *order.manifest.mutable_cut() = ToProto(cut);
  order.manifest.set_unix_ms(moment.unix_ms);
  *order.manifest.mutable_spec() = ToProto(job.record.spec);
  order.manifest.set_cpu_capability(job.record.job.cpu_capability());
  *order.manifest.mutable_inputs() = job.record.job.inputs();
  order.manifest.set_classes(job.record.job.names().classes());
  for (const auto& holders : job.recovery->HoldersOf(cut)) {
    std::vector<PieceHolder>& layer = order.holders.emplace_back();
    for (const MemberId& holder : holders) {
      layer.push_back({pipelines_.AddressOf(holder), holder.incarnation});
    }
  }
  pipelines_.SetPin(job, cut, true, moment);
  mesh_.actions.checkpoints.push_back(
      {.kind = Actions::Checkpoint::Kind::kFetch, .order = std::move(order)});
}

// Ends the copy under way.  Returns its job; null: it is deleted.
JobEntry* Checkpoints::End(Moment moment) {
  JobEntry* const job = mesh_.FindJob(under_way_->job);
  if (job != nullptr && job->recovery != nullptr) {
    pipelines_.SetPin(*job, under_way_->cut, false, moment);
  }
  under_way_.reset();
  return job;
}

void Checkpoints::Fail(const std::string& why, Moment moment) {
  const JobId id = under_way_->job;
  const int64_t step = under_way_->cut.step;
  ++counts_.failed;
  failed_at_[id] = step;
  AnswerExport(id, Unavailable("the state after step ", step, " of job ",
                               id.value, " could not be brought here: ", why));
  JobEntry* const job = End(moment);
  if (job == nullptr) {
    mesh_.actions.checkpoints.push_back(
        {.kind = Actions::Checkpoint::Kind::kRetain, .id = {id}});
    return;
  }
  mesh_.AddEvent(*job, moment, "checkpoint-failed", "step ", step,
                 " is not kept: ", why);
  Retain(*job);
}

bool Checkpoints::IsStillWanted(Moment moment) {
  const JobEntry* const job = mesh_.FindJob(under_way_->job);
  if (job == nullptr) {
    Fail("the job was deleted", moment);
    return false;
  }
  if (IsBroken(job->record.job, under_way_->cut.step)) {
    Fail("the steps after it are skipped", moment);
    return false;
  }
  if (LineageOf(job->record).IsValid(under_way_->cut)) return true;
  Fail("the job has gone on from an earlier step meanwhile", moment);
  return false;
}

void Checkpoints::OnFetched(absl::StatusOr<v1::Checkpoint> fetched,
                            Moment moment) {
  if (!fetched.ok()) {
    return Fail(std::string(fetched.status().message()), moment);
  }
  if (!IsStillWanted(moment)) return;
  under_way_->fetched = *std::move(fetched);
  mesh_.actions.checkpoints.push_back(
      {.kind = Actions::Checkpoint::Kind::kKeep,
       .id = {under_way_->job, under_way_->cut.step}});
}

void Checkpoints::OnKept(const absl::Status& kept, Moment moment) {
  if (!kept.ok()) return Fail(std::string(kept.message()), moment);
  if (!IsStillWanted(moment)) return;
  const UnderWay made = *under_way_;
  JobEntry* const job = End(moment);
  const absl::Duration took = moment.now - made.since;
  ++counts_.kept;
  counts_.took += took;
  failed_at_.erase(made.job);
  TakeOff(job->record.job, [&](const v1::Checkpoint& each) {
    return each.cut().step() == made.cut.step;
  });
  auto& list = *job->record.job.mutable_checkpoints();
  *list.Add() = made.fetched;
  if (list.size() > kKept) list.erase(list.begin());
  mesh_.Put(*job);
  mesh_.AddEvent(
      *job, moment, "checkpoint",
      absl::StrFormat("step %d is on the coordinator's disk: %.1f "
                      "MiB in %.1f s",
                      made.cut.step,
                      static_cast<double>(made.fetched.bytes()) / (1 << 20),
                      absl::ToDoubleSeconds(took)));
  if (job->recovery != nullptr) {
    job->recovery->OnCheckpoints(CheckpointCuts(job->record));
  }
  Retain(*job);
  // A cut that was under way already may be older than what was asked for.
  if (job->group.has_value() && made.cut.step < job->group->deposit_from) {
    return;
  }
  AnswerExport(made.job, CheckpointId{made.job, made.cut.step});
}

// The files are deleted once the shorter list is stored.
void Checkpoints::Retain(const JobEntry& job) {
  std::set<int64_t> steps;
  for (const v1::Checkpoint& each : job.record.job.checkpoints()) {
    steps.insert(each.cut().step());
  }
  if (under_way_.has_value() && under_way_->job == job.record.id()) {
    steps.insert(under_way_->cut.step);
  }
  const auto read = exported_.find(job.record.id());
  if (read != exported_.end()) steps.insert(read->second);
  mesh_.actions.checkpoints.push_back(
      {.kind = Actions::Checkpoint::Kind::kRetain,
       .id = {job.record.id()},
       .steps = std::move(steps)});
}

void Checkpoints::DropBroken(JobEntry& job) {
  v1::Job& record = job.record.job;
  if (!TakeOff(record, [&record](const v1::Checkpoint& each) {
        return IsBroken(record, each.cut().step());
      })) {
    return;
  }
  mesh_.Put(job);
  Retain(job);
}

void Checkpoints::OnDamaged(JobId id, CheckpointId checkpoint,
                            const absl::Status& why, Moment moment) {
  JobEntry* const job = mesh_.FindJob(id);
  if (job == nullptr || job->recovery == nullptr) return;
  const std::string text(why.message());
  if (checkpoint.job != id) {
    mesh_.AddEvent(*job, moment, "checkpoint-failed", text);
    mesh_.FailJob(*job, text, AdviceAfter(why, job->record.spec), moment);
    return;
  }
  const bool was_there =
      TakeOff(job->record.job, [&](const v1::Checkpoint& each) {
        return each.cut().step() == checkpoint.step;
      });
  if (!was_there) return;  // another request found the damage first
  mesh_.AddEvent(*job, moment, "checkpoint-failed", text);
  mesh_.Put(*job);
  Retain(*job);
  job->recovery->OnCheckpoints(CheckpointCuts(job->record));
}

// --- Using them --------------------------------------------------------------

absl::StatusOr<std::optional<CheckpointId>> Checkpoints::OnExport(
    JobId id, Moment moment) {
  JobEntry* const job = mesh_.FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  const std::map<int64_t, CheckpointId> there = CheckpointsOf(job->record);
  const std::optional<CheckpointId> newest = NewestSound(job->record, there);
  const bool trains =
      job->recovery != nullptr && !IsInference(job->record.spec);
  if (trains && job->group.has_value() && !job->group->paused() &&
      job->group->begun()) {
    const int64_t next = job->recovery->furthest() + 1;
    const int64_t steps = job->record.job.steps();
    job->group->deposit_from = steps > 0 ? std::min(next, steps) : next;
    exports_.insert(id);
    return std::nullopt;
  }
  if (trains) {
    const Cut safe = job->recovery->floor().value_or(Cut());
    if (IsBroken(job->record.job, safe.step)) {
      if (!newest.has_value()) return SkipsNow(id).status();
    } else if (safe.step > (newest.has_value() ? newest->step : 0)) {
      exports_.insert(id);
      Serve(moment);
      return std::nullopt;
    }
  }
  if (newest.has_value()) {
    exported_[id] = newest->step;
    return newest;
  }
  if (!there.empty()) return SkipsNow(id).status();
  return FailedPrecondition(
      "job ", id.value, " is ", JobStateName(job->record.state()),
      " and has no ", ResultName(job->record.spec),
      trains ? " yet: it has not trained long enough"
             : " and no checkpoint; only a succeeded job, and one that trains, "
               "has");
}

void Checkpoints::AnswerExport(JobId job, absl::StatusOr<CheckpointId> answer) {
  if (exports_.erase(job) > 0) {
    if (answer.ok()) exported_[job] = answer->step;
    mesh_.actions.exports.emplace_back(job, std::move(answer));
  }
}

absl::StatusOr<CheckpointId> Checkpoints::Find(JobId id, Cut cut) const {
  const JobEntry* const job = mesh_.FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  const v1::Job& kept = job->record.job;
  if (cut.attempt == 0 && kept.has_resumed() &&
      kept.resumed().step() == cut.step) {
    return CheckpointId{JobId{kept.resumed().job()}, cut.step};
  }
  for (const v1::Checkpoint& each : kept.checkpoints()) {
    if (CutOf(each.cut()) == cut) return CheckpointId{id, cut.step};
  }
  return NotFound("job ", id.value, " has no checkpoint of ", CutText(cut));
}

absl::StatusOr<Resumption> Checkpoints::CheckResume(
    const v1::SubmitJobRequest& request) const {
  const JobId id{request.resume().job()};
  const JobEntry* const job = mesh_.FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  if (!HasEnded(job->record.state())) {
    return FailedPrecondition(
        "job ", id.value, " is ", JobStateName(job->record.state()),
        " and goes on by itself; to begin another one from it, end it first "
        "with: paceline job stop ",
        id.value);
  }
  const JobSpec spec = FromProto(request.spec());
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec));
  if (IsInference(spec)) {
    return InvalidArgument(
        "only a job that trains can go on from a checkpoint");
  }
  const int64_t steps =
      StepsBeside(job->record.spec.train, job->record.job.steps(), spec.train);
  const int64_t done = job->record.job.step();
  if (job->record.state() == v1::JOB_STATE_SUCCEEDED && steps > 0 &&
      done >= steps && request.resume().step() == 0) {
    return InvalidArgument("job ", id.value, " has finished all of its ",
                           Counted(steps, "step"),
                           ": let it train longer with --set train.steps=N, or "
                           "go on from an earlier step with --from");
  }
  const std::map<int64_t, CheckpointId> there = CheckpointsOf(job->record);
  if (there.empty()) {
    return NotFound("job ", id.value,
                    " has no checkpoint: train.checkpoint_every makes them");
  }
  int64_t step = request.resume().step();
  if (step == 0) {
    const auto newest = NewestSound(job->record, there);
    if (!newest.has_value()) {
      return FailedPrecondition(
          "all steps of job ", id.value, " after its checkpoint of step ",
          there.begin()->first,
          " were skipped, and would be again; --from takes that one all the "
          "same");
    }
    step = newest->step;
  }
  const auto found = there.find(step);
  if (found == there.end()) {
    return NotFound(
        "job ", id.value, " has no checkpoint of step ", step, "; there are: ",
        absl::StrJoin(there, ", ", [](std::string* out, auto& each) {
          absl::StrAppend(out, each.first);
        }));
  }
  if (steps > 0 && found->first >= steps) {
    return InvalidArgument("the checkpoint is of step ", found->first,
                           ", and the job ends at step ", steps,
                           ": let it train longer with --set train.steps=N");
  }
  PACELINE_ASSIGN_OR_RETURN(StateLayout wants, LayOutState(spec));
  const JobEntry* const made = mesh_.FindJob(found->second.job);
  const JobRecord& from = made == nullptr ? job->record : made->record;
  return Resumption{found->second, std::move(wants),
                    InputsToResume(from.job.inputs(), from.spec, spec)};
}

JobId Checkpoints::UserOf(JobId job) const {
  for (const JobId id : mesh_.open) {
    const v1::Job& other = mesh_.jobs.at(id).record.job;
    if (other.has_resumed() && JobId{other.resumed().job()} == job) return id;
  }
  return {};
}

}  // namespace paceline

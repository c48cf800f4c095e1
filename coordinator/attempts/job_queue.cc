#include "coordinator/attempts/job_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/advice.h"
#include "coordinator/jobs/job_text.h"
#include "core/base/status_macros.h"
#include "core/job/aggregation.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/report_convert.h"

namespace paceline {

void JobQueue::AddStages(const std::vector<StageOfPlan>& stages,
                         v1::SubmitJobResponse& answer) const {
  for (const StagePlacement& stage : mesh_.Place(stages)) {
    *answer.add_stages() = ToProto(stage);
  }
}

absl::StatusOr<Submission> JobQueue::CheckSubmit(
    const v1::SubmitJobRequest& request, Moment moment) const {
  Submission submission;
  const auto known =
      request.request_id().empty()
          ? mesh_.jobs.end()
          : std::find_if(mesh_.jobs.begin(), mesh_.jobs.end(),
                         [&](const auto& entry) {
                           return entry.second.record.job.request_id() ==
                                  request.request_id();
                         });
  if (known != mesh_.jobs.end()) {
    submission.job = known->second.record;
    submission.repeated = true;
    AddStages(submission.job.stages, submission.answer);
    return submission;
  }
  const JobSpec spec = FromProto(request.spec());
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec));
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, Describe(spec));
  const std::vector<Candidate> candidates = mesh_.Candidates();
  PACELINE_RETURN_IF_ERROR(CheckFaultsOf(spec, candidates));
  ++mesh_.placements;
  const PlacementVerdict verdict =
      DecidePlacement(spec, model, candidates, mesh_.measured);
  PACELINE_RETURN_IF_ERROR(verdict.impossible);
  const Plan* const plan = verdict.plan ? &*verdict.plan : nullptr;
  if (plan != nullptr) {
    PACELINE_RETURN_IF_ERROR(
        CheckMembersOfRule(spec, std::ssize(plan->stages)));
  }
  v1::SubmitJobResponse& answer = submission.answer;
  answer.add_notes(ThreadNote(spec, plan, candidates, [&](int64_t threads) {
    JobSpec with = spec;
    with.threads = static_cast<int32_t>(threads);
    const auto run = plan == nullptr
                         ? std::nullopt
                         : measurements_.EstimateOf(with, model, plan->stages);
    return run.has_value() && run->measured() ? run->samples_per_second() : 0;
  }));
  for (const std::string& note : PlacementNotes(spec, plan, candidates)) {
    answer.add_notes(note);
  }
  if (plan != nullptr) {
    AddStages(plan->stages, answer);
    if (const std::optional<v1::RunEstimate> estimate =
            measurements_.EstimateOf(spec, model, plan->stages)) {
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

void JobQueue::OnSubmitted(JobRecord record, Moment moment) {
  next_job_ = JobId{record.id().value + 1};
  JobEntry& job = mesh_.jobs[record.id()];
  mesh_.open.insert(record.id());
  job.record = std::move(record);
  const v1::ResumedFrom& from = job.record.job.resumed();
  mesh_.AddEvent(
      job, "submitted",
      absl::StrCat("job ", job.record.spec.name,
                   from.step() == 0 ? ""
                                    : absl::StrCat(", from step ", from.step(),
                                                   " of job ", from.job())),
      moment);
  mesh_.queue_changed = true;
}

void JobQueue::Serve(Moment moment) {
  mesh_.queue_changed = false;
  const MembershipPolicy& policy = mesh_.policy.membership;
  const bool settled =
      moment.now - mesh_.start >= policy.lease + policy.grace ||
      std::all_of(mesh_.membership.members().begin(),
                  mesh_.membership.members().end(),
                  [](const auto& entry) { return entry.second.seen; });
  JobId head;
  mesh_.slow.clear();
  look_.reset();
  for (JobEntry* const job : mesh_.OpenJobs()) {
    if (job->record.state() != JobState::kQueued) continue;
    job->may_be_passed = false;
    job->behind = head;
    if (head.assigned()) continue;
    if (HoldsTheQueue(*job, settled, moment)) {
      head = job->record.id();
    } else if (job->record.state() == JobState::kQueued) {
      job->may_be_passed = true;
    } else {
      look_.reset();  // the job has workers now
    }
  }
  mesh_.queue_changed = false;  // also the changes of this walk
}

const JobQueue::Look& JobQueue::LookAtMesh() {
  if (look_.has_value()) return *look_;
  look_ = {mesh_.Candidates(), {}, mesh_.PlacementKey()};
  for (const auto& [id, member] : mesh_.membership.members()) {
    if (IsGone(member.state)) continue;
    look_->there.push_back({&member, JobId{}, false, mesh_.IsDrained(id)});
  }
  return *look_;
}

// Starts the job if it can start.  Else returns whether later jobs must wait
// for it.  settled: the workers have had time to return after a restart.
bool JobQueue::HoldsTheQueue(JobEntry& job, bool settled, Moment moment) {
  const JobSpec& spec = job.record.spec;
  if (job.restored && !settled) {
    mesh_.SetWhy(job, Sentence({"waits for the workers to come back: the "
                                "coordinator has just started",
                                mesh_.StoreText()}));
    return true;
  }
  const Look& look = LookAtMesh();
  const uint64_t key =
      PlacementKey({static_cast<int64_t>(look.key), job.record.job.attempt(),
                    spec.aggregation.shards});
  const PlacementVerdict& verdict = job.start.Get(
      key, {}, mesh_.placements,
      [&] { return DecideStart(spec, look.free, mesh_.measured); });
  if (!verdict.undescribed.ok()) {
    const absl::Status why = verdict.undescribed;
    mesh_.FailJob(job, std::string(why.message()), AdviceAfter(why, spec),
                  moment);
    return false;
  }
  if (WaitsForSettling(job, verdict)) return true;
  if (verdict.plan.has_value()) {
    pipelines_.Begin(job, moment);
    job.start = job.someday = {};
    return false;
  }
  // It holds up others only if all present workers, if idle, could run it: else
  // it may wait for ever.  A suspect worker counts as present.
  const bool holds =
      job.someday
          .Get(key, {}, mesh_.placements,
               [&] { return DecideStart(spec, look.there, mesh_.measured); })
          .plan.has_value();
  std::string keeps;
  for (const JobId ahead : verdict.waits_for) {
    const JobEntry& other = mesh_.jobs.at(ahead);
    const std::string text =
        PreparingText(other.record, other.preparing_since,
                      mesh_.policy.preparing_bound, moment.now);
    if (text.empty()) continue;
    keeps = Sentence({keeps, absl::StrCat("job ", ahead.value, ": ", text)});
  }
  mesh_.SetWhy(job, Sentence({verdict.why, keeps, mesh_.StoreText()}));
  if (holds) mesh_.slow = keeps;
  return holds;
}

// A worker that executes itself anew during the first attempt would end it, so
// it does so before.  Plans made meanwhile without it do not count.
bool JobQueue::WaitsForSettling(JobEntry& job,
                                const PlacementVerdict& verdict) {
  auto& settling = mesh_.settling;
  if (settling.empty() && verdict.plan.has_value()) {
    for (const StageOfPlan& stage : verdict.plan->stages) {
      const Member& member = *mesh_.membership.Find(stage.worker);
      if (RunsAt(verdict.cpu_capability, member)) continue;
      settling[stage.worker] = verdict.cpu_capability;
    }
  }
  if (settling.empty()) return false;
  const auto& [worker, capability] = *settling.begin();
  mesh_.SetWhy(
      job,
      Sentence({absl::StrCat("waits for worker ", mesh_.NameOf(worker),
                             " to start anew at cpu_capability ", capability),
                mesh_.StoreText()}));
  return true;
}

}  // namespace paceline

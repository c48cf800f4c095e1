#include "coordinator/attempts/job_queue.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/mesh/mesh_measurements.h"
#include "core/base/errors.h"
#include "core/job/aggregation.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {

void JobQueue::AddStages(const std::vector<StageOfPlan>& stages,
                         v1::SubmitJobResponse& answer) const {
  for (const StagePlacement& stage : mesh_.Place(stages)) {
    *answer.add_stages() = ToProto(stage);
  }
}

std::optional<Submission> JobQueue::Known(
    const v1::SubmitJobRequest& request) const {
  if (request.request_id().empty()) return std::nullopt;
  const auto known = absl::c_find_if(mesh_.jobs, [&](const auto& entry) {
    return entry.second.record.job.request_id() == request.request_id();
  });
  if (known == mesh_.jobs.end()) return std::nullopt;
  Submission submission;
  submission.job = known->second.record;
  submission.repeated = true;
  AddStages(submission.job.stages, submission.answer);
  return submission;
}

void JobQueue::CheckSubmit(const v1::SubmitJobRequest& request, Moment moment,
                           Done<Submission> done) const {
  if (auto known = Known(request)) return done(*std::move(known));
  const JobSpec spec = FromProto(request.spec());
  absl::Status checked = CheckSpec(spec);
  if (!checked.ok()) return done(std::move(checked));
  const absl::StatusOr<ModelDescription> model = Describe(spec);
  if (!model.ok()) return done(model.status());
  const std::vector<Candidate> candidates = mesh_.Candidates();
  checked = CheckFaultsOf(spec, candidates);
  if (!checked.ok()) return done(std::move(checked));
  ++mesh_.placements;
  const auto inputs =
      std::make_shared<const PlacementInputs>(candidates, mesh_.measured);
  const MakePlacement place = [inputs, spec, model] {
    return inputs->Place(spec, *model);
  };
  const auto finish = [this, request, spec, model, moment,
                       done](const PlacementVerdict& verdict) {
    auto known = Known(request);  // by the same client meanwhile
    done(known.has_value()
             ? *std::move(known)
             : SubmissionOf(request, spec, *model, verdict, moment));
  };
  if (mesh_.place_later == nullptr) return finish(place());
  mesh_.place_later(inputs, place, [inputs, finish](PlacementVerdict verdict) {
    finish(verdict);
  });
}

absl::StatusOr<Submission> JobQueue::SubmissionOf(
    const v1::SubmitJobRequest& request, const JobSpec& spec,
    const ModelDescription& model, const PlacementVerdict& verdict,
    Moment moment) const {
  PACELINE_RETURN_IF_ERROR(verdict.impossible);
  Submission submission;
  const std::vector<Candidate> candidates = mesh_.Candidates();
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
                         : EstimateOf(mesh_, with, model, plan->stages);
    return run.has_value() && run->measured() ? run->samples_per_second() : 0;
  }));
  for (const std::string& note : PlacementNotes(spec, plan, candidates)) {
    answer.add_notes(note);
  }
  if (plan != nullptr) {
    AddStages(plan->stages, answer);
    if (const std::optional<v1::RunEstimate> estimate =
            EstimateOf(mesh_, spec, model, plan->stages)) {
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
  mesh_.AddEvent(job, moment, "submitted", "job ", job.record.spec.name,
                 from.step() == 0 ? ""
                                  : absl::StrCat(", from step ", from.step(),
                                                 " of job ", from.job()));
  mesh_.queue_changed = true;
}

void JobQueue::Serve(Moment moment) {
  mesh_.queue_changed = false;
  const MembershipPolicy& policy = mesh_.policy.membership;
  const bool settled =
      moment.now - mesh_.start >= policy.lease + policy.grace ||
      absl::c_all_of(mesh_.membership.members(),
                     [](const auto& entry) { return entry.second.seen; });
  JobId head;
  mesh_.slow.clear();
  look_.reset();
  is_placing_ = false;
  for (JobEntry* const job : mesh_.OpenJobs()) {
    if (job->record.state() != v1::JOB_STATE_QUEUED) continue;
    job->queued.may_be_passed = false;
    job->queued.behind = head;
    if (head.assigned()) {
      if (is_placing_) PlaceNow(*job);  // while the head's is being made
      continue;
    }
    if (HoldsTheQueue(*job, settled, moment)) {
      head = job->record.id();
    } else if (job->record.state() == v1::JOB_STATE_QUEUED) {
      job->queued.may_be_passed = true;
    } else {
      look_.reset();  // the job has workers now
    }
  }
  mesh_.queue_changed = false;  // also the changes of this walk
}

JobQueue::Look& JobQueue::LookAtMesh() {
  if (look_.has_value()) return *look_;
  look_ = {{mesh_.Candidates(), {}}, {}, mesh_.PlacementKey()};
  for (const auto& [id, member] : mesh_.membership.members()) {
    if (IsGone(member.state)) continue;
    look_->there.by_id.push_back(
        {&member, JobId{}, false, mesh_.IsDrained(id)});
  }
  return *look_;
}

const PlacementVerdict* JobQueue::Place(JobEntry& job, PlacementMemo& memo,
                                        Seen Look::*seen) {
  Look& look = LookAtMesh();
  const JobSpec& spec = job.record.spec;
  const uint64_t key =
      PlacementKey({static_cast<int64_t>(look.key), job.record.job.attempt(),
                    spec.aggregation.shards});
  return mesh_.PlacementOf(memo, key, {}, spec, [&] {
    Seen& workers = look.*seen;
    if (workers.copied == nullptr) {
      workers.copied = std::make_shared<const PlacementInputs>(workers.by_id,
                                                               mesh_.measured);
    }
    return workers.copied;
  });
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
  const PlacementVerdict* const placed = PlaceNow(job);
  if (placed == nullptr) {
    is_placing_ = true;
    if (job.record.job.why().empty()) {
      mesh_.SetWhy(job, "its placement is being made");
    }
    return true;
  }
  const PlacementVerdict& verdict = *placed;
  if (!verdict.undescribed.ok()) {
    const absl::Status why = verdict.undescribed;
    mesh_.FailJob(job, std::string(why.message()), AdviceAfter(why, spec),
                  moment);
    return false;
  }
  if (WaitsForSettling(job, verdict)) return true;
  if (verdict.plan.has_value()) {
    job.queued.begins = &verdict;
    pipelines_.Begin(job, moment);
    job.queued.begins = nullptr;
    job.queued.start = job.queued.someday = {};
    return false;
  }
  // It holds up others only if all present workers, if idle, could run it: else
  // it may wait for ever.  A suspect worker counts as present.
  const PlacementVerdict* const someday =
      Place(job, job.queued.someday, &Look::there);
  const bool holds = someday == nullptr || someday->plan.has_value();
  std::string keeps;
  for (const JobId ahead : verdict.waits_for) {
    const JobEntry& other = mesh_.jobs.at(ahead);
    const std::string text =
        PreparingText(other.record, other.progress.preparing_since,
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

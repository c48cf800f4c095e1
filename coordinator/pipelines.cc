#include "coordinator/pipelines.h"

#include "absl/strings/str_cat.h"
#include "coordinator/advice.h"
#include "coordinator/job_text.h"
#include "core/rpc/report_convert.h"

namespace paceline {

void Pipelines::TakeReport(JobEntry& job, WorkerId worker,
                           const v1::Heartbeat& heartbeat, Moment moment) {
  for (const v1::EvaluationRecord& evaluation : heartbeat.evaluations()) {
    progress_.TakeEvaluation(job, evaluation, moment);
  }
  progress_.TakeRun(job, worker, heartbeat.run(), moment);
  // Predictions that cannot be laid out have ended the job.
  if (HasEnded(job.record.state())) return;
  v1::JobWorker& part = *FindWorker(job.record, worker);
  if (heartbeat.run().phase() > part.run().phase()) {
    OnPhase(job, part, heartbeat.run(), moment);
  }
  mesh_.Put(job);
}

void Pipelines::OnPhase(JobEntry& job, v1::JobWorker& worker,
                        const v1::RunState& run, Moment moment) {
  const bool were_running = AllAtLeast(job.record, v1::RunState::PHASE_RUNNING);
  worker.mutable_run()->set_phase(run.phase());
  if (run.phase() == v1::RunState::PHASE_FAILED) {
    const absl::Status error = ErrorOf(run);
    return OnBroken(
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
    mesh_.AddEvent(job, "running",
                   IsInference(job.record.spec)
                       ? "all workers are ready and predict"
                       : "all workers are ready and train",
                   moment);
  }
  if (!job.saving && AllAtLeast(job.record, v1::RunState::PHASE_DONE)) {
    progress_.OnAllDone(job, moment);
  }
}

// A worker that has begun and runs as another process, or is gone, has lost
// what it had.
void Pipelines::Check(JobEntry& job, Moment moment) {
  if (job.saving) return;  // the workers have given all that they had
  for (v1::JobWorker& worker : *job.record.job.mutable_workers()) {
    const WorkerId id{worker.id()};
    const Member* const member = mesh_.membership.Find(id);
    if (member != nullptr && !IsGone(member->state)) {
      if (member->incarnation().value == worker.incarnation()) continue;
      if (!Began(job.record, worker)) {
        // It has the same order again.
        worker.set_incarnation(member->incarnation().value);
        job.preparing_since.erase(id);
        mesh_.Put(job);
        continue;
      }
      return OnBroken(
          job,
          {.kind = PipelineBreak::Kind::kWorkerGone,
           .why = absl::StrCat("worker ", worker.name(), " restarted ",
                               AtStep(job.record), " and what it had of ",
                               StagesOf(job.record, id), " is gone"),
           .error = {}},
          moment);
    }
    const MembershipPolicy& policy = mesh_.policy.membership;
    const bool seen = member != nullptr && member->seen;
    const Instant since = member != nullptr ? member->gone_since : mesh_.start;
    const absl::Duration patience = !Began(job.record, worker)
                                        ? mesh_.policy.return_period
                                    : seen ? absl::ZeroDuration()
                                           : policy.lease + policy.grace;
    if (moment.now - since < patience) continue;
    return OnBroken(
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

// Until recovery exists, it ends the job.
void Pipelines::OnBroken(JobEntry& job, const PipelineBreak& cause,
                         Moment moment) {
  switch (cause.kind) {
    case PipelineBreak::Kind::kWorkerGone:
      return mesh_.FailJob(job, cause.why, SubmitAgain(), moment);
    case PipelineBreak::Kind::kWorkerFailed:
      return mesh_.FailJob(job, cause.why, AdviceAfter(cause.error), moment);
    case PipelineBreak::Kind::kNotSaved:
      return mesh_.FailJob(job, cause.why, AdviceAfterSaving(cause.error),
                           moment);
  }
}

RunOrder Pipelines::OrderOf(const JobRecord& job) const {
  RunOrder run;
  run.fence = job.fence();
  run.spec = job.spec;
  run.stages = mesh_.Place(job.stages);
  run.routes = RoutesOf(job.stages);
  run.cpu_capability = job.job.cpu_capability();
  run.threads = job.job.threads();
  return run;
}

}  // namespace paceline

// Queries of one job's record, and sentences about it for people.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/jobs/records.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/job/job_check.h"
#include "core/job/job_model.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"

namespace paceline {

// "stage 1" or "stages 2, 3".
std::string StagesOf(const JobRecord& record, WorkerId worker);

// "at step 40 of 60".
std::string AtStep(const JobRecord& record);

// preparing, training, saving; empty unless the job runs.
std::string PhaseOf(const JobRecord& record);

// A loss or an accuracy: "0.1250"; "nan" for any sign.
std::string FourDecimals(double value);

// "accuracy 0.9131, loss 0.2480 after step 938 over 10000 samples".
std::string EvaluationText(const JobSpec& spec,
                           const v1::EvaluationRecord& evaluation);

// The content of the job's file: "weights" or "predictions".
std::string ResultName(const JobSpec& spec);

// Why the gate skipped this step.
std::string SkipReason(const v1::StepRecord& step);

// "worker b has been preparing for 60 s (reading data?)" when it takes `bound`
// or longer; empty otherwise.  The time is a multiple of `bound`, so that the
// text, which is stored and logged, changes seldom.
// since: when each worker that prepares was first heard to.
std::string PreparingText(const JobRecord& record,
                          const std::map<WorkerId, Instant>& since,
                          absl::Duration bound, Instant now);

// "job 7" or "jobs 7, 9".
std::string JobsText(const std::set<JobId>& jobs);

// The parts that are not empty, with "; " between them.
std::string Sentence(const std::vector<std::string>& parts);

// Null when `id` has no part in the job.
v1::JobWorker* FindWorker(JobRecord& record, WorkerId id);

// The workers that hold the last stage of a placed job, in the plan's order.
std::vector<const v1::JobWorker*> LastStageOf(const JobRecord& record);

// Whether a stage of the worker has the layer.
bool Holds(const JobRecord& record, WorkerId worker, int layer);
bool HoldsLast(const JobRecord& record, WorkerId worker);

// The micro-batches of an inference job; 0: not known yet, or it trains.
int64_t MicroBatchesOf(const JobRecord& record);
// The bound of the job's step numbers (inference: of micro-batches), as far as
// it is known.
int64_t MostSteps(const JobRecord& record);
// Whether any micro-batch of the attempt goes to that worker; true while their
// number is not known.  A replica without one never reports an end.
bool HasTurn(const JobRecord& record, WorkerId worker);

// "; it was one of 2 replicas of stage 1: ..."; empty where no other worker
// held that worker's stage, or the job does not train.
std::string LostReplicaText(const JobRecord& record, WorkerId worker);

// Whether every worker of the job has reached `phase`.  STOPPED counts as
// RUNNING; a worker without micro-batches counts as DONE.
bool AllAtLeast(const JobRecord& record, v1::RunState::Phase phase);

// The predicted and the measured time of each stage of the present plan, one
// entry per replica; none before the job is placed.
std::vector<v1::StageDrift> DriftOf(const JobRecord& record);

// The mean time of a step so far; 0: none was timed yet.
double MeasuredStepSeconds(const JobRecord& record);

absl::Status NoSuchJob(JobId id);

// OK: there are none.  Errors: InvalidArgument  lists all
absl::Status ToStatus(const std::vector<SpecProblem>& problems,
                      absl::string_view between);
// Errors: InvalidArgument  lists all that CheckJobSpec() found
absl::Status CheckSpec(const JobSpec& spec);

// The model that `spec` trains.  Errors: as DescribeModel().
absl::StatusOr<ModelDescription> Describe(const JobSpec& spec);

// --- advice for a person after a job went wrong -----------------------------

// After a fault that need not come again, such as a lost worker.
std::string SubmitAgain();

// After a worker's or the coordinator's `error`.  Submitting the same job again
// helps only after faults of a peer or a connection (Unavailable, Aborted,
// Cancelled, DeadlineExceeded).  Other errors would come again, so it names the
// action to take first.  It names no key without effect in `spec`.
std::string AdviceAfter(const absl::Status& error, const JobSpec& spec);

// After an error of the disk that the coordinator writes the result to.
std::string AdviceAfterSaving(const absl::Status& error, const JobSpec& spec);

// The job's own steps that the step gate skipped.  Where every micro-batch is
// an update: the skipped updates of the stage that skipped most.
struct Skips {
  int64_t skipped = 0;
  int64_t of = 0;
  bool updates = false;  // false: steps
};
Skips SkipsOf(const JobRecord& record);

// "3 of 60 steps were skipped"; "7 of 96 updates of a stage were skipped";
// empty when none was.
std::string SkippedText(const JobRecord& record);

// "workers could not read 3 samples, which were left out"; empty when there is
// none.
std::string UnreadableText(const JobRecord& record);
// Why the job fails for unreadable samples; empty: they are few enough.
std::string WhyUnreadable(const JobRecord& record);

// True when more than half of the updates were skipped.
bool MostlySkipped(const JobRecord& record);

// Says why the weights are useless when MostlySkipped(), or after too many
// skipped steps in a row, and what to change.
std::string WhyMostlySkipped(const JobRecord& record);
std::string AdviceAfterSkips(const JobSpec& spec);
// Names the sound checkpoint from which a new job may go on; empty: none.
std::string ResumeHint(const JobRecord& record);
// AdviceAfterSkips() of the spec and ResumeHint().
std::string AdviceAfterSkips(const JobRecord& record);

// Why a job fails at its end: its last evaluation, or most of its predictions,
// are NaN or infinite; empty: they are finite.
std::string WhyNotFinite(const JobRecord& record);
// "3 of 60 predictions are not finite", not counting unreadable samples; empty
// when there is none.
std::string NotFiniteText(const JobRecord& record);

}  // namespace paceline

// The coordinator's records of jobs, and its orders.  Times in unix
// milliseconds are for people; no decision uses them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/cluster/job_state.h"
#include "core/cluster/run_order.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/plan.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// One reading of both clocks, taken when an event arrives.
struct Moment {
  Instant now;
  int64_t unix_ms = 0;
};

// Gets the outcome of an asynchronous call.
template <typename T>
using Done = std::function<void(absl::StatusOr<T>)>;
using StatusDone = std::function<void(absl::Status)>;

// A job's stored state without its steps, evaluations, events and logs.
struct JobRecord {
  JobId id() const { return JobId{job.id()}; }
  v1::JobState state() const { return job.state(); }
  Fence fence() const { return {id(), job.attempt(), job.plan_version()}; }

  // Without spec and stages, which have types of core below.
  v1::Job job;
  JobSpec spec;
  std::vector<StageOfPlan> stages;  // empty until placed; see plan.h
};

// The spec as the present attempt runs it: without the blocks that it lacks,
// and with the number of shards that its group began with.
JobSpec SpecOfAttempt(const JobRecord& record);

// The fence of the run that a message belongs to.
template <typename Message>
Fence FenceOf(const Message& message) {
  return {JobId{message.job()}, message.attempt(), message.plan_version()};
}

// Adds a skipped step to Job.skip_runs.
void AddSkip(int64_t step, v1::Job& job);
// Forgets skipped steps after `step`, from which a new attempt goes on.
// Returns their number.
int64_t TakeSkipsBack(int64_t step, v1::Job& job);
// The run of skipped steps that contains `step`; null: not skipped.
const v1::SkipRun* SkipRunAt(const v1::Job& job, int64_t step);
int64_t LongestSkipRun(const v1::Job& job);
// Sets Job.broken_step to the step of a newest evaluation that is not finite,
// else to 0.
void SetBroken(const v1::EvaluationRecord& newest, v1::Job& job);
// Whether the state after `step` steps is known to be useless: all later steps
// so far were skipped, or an evaluation of it was not finite.
bool IsBroken(const v1::Job& job, int64_t step);

// The job as it is stored.
v1::Job ToStored(const JobRecord& record);
// Errors: InvalidArgument  a state or phase that does not exist
absl::StatusOr<JobRecord> FromStored(v1::Job job);

// The orders of a worker.
struct StandingOrder {
  std::optional<RunOrder> run;  // absent: train nothing
  v1::StandingOrder rest;       // without the run

  friend bool operator==(const StandingOrder& a, const StandingOrder& b) {
    return a.run == b.run &&
           a.rest.SerializeAsString() == b.rest.SerializeAsString();
  }
};

}  // namespace paceline

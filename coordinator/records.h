// What the coordinator keeps of jobs and hears from workers, as its logic sees
// it.  Times in unix milliseconds are for people; nothing is decided by them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/cluster/job_state.h"
#include "core/cluster/measure_order.h"
#include "core/cluster/registration.h"
#include "core/cluster/run_order.h"
#include "core/cluster/run_report.h"
#include "core/model/job_spec.h"
#include "core/plan/plan.h"
#include "core/simulate/estimate.h"

namespace paceline {

// One reading of both clocks, taken when an event enters.
struct Moment {
  Instant now;
  int64_t unix_ms = 0;
};

struct EventRecord {
  int64_t sequence = 0;  // from the store; grows within a job
  int64_t unix_ms = 0;
  std::string kind;
  std::string text;
};

// One worker's part in the present attempt of a job.
struct JobWorker {
  WorkerId id;
  std::string name;
  RunPhase phase = RunPhase::kNone;
  TimeSplit seconds;
  std::optional<FlowTimes> flow = {};
  // Of tensors, the most at a time; 0: not known.
  int64_t peak_memory_bytes = 0;       // so far
  int64_t predicted_memory_bytes = 0;  // as planned
  // Of the data set, so far; not kept in the store.
  int64_t unreadable_samples = 0;
  // It works for this job no more, and may be another job's.
  bool let_go = false;
};

// All that is kept of a job but its records.
struct JobRecord {
  JobId id;
  std::string request_id;  // empty: none was given
  JobSpec spec;
  JobState state = JobState::kQueued;
  std::string why;
  int64_t step = 0;
  int64_t steps = 0;
  int64_t evaluated_step = -1;  // of the newest evaluation; -1: none
  int64_t recorded_step = 0;    // of the newest step record; 0: none
  int64_t skipped_steps = 0;    // of the recorded ones
  // First step of the present run of skips; 0: there is none.
  int64_t skipping_since = 0;
  int64_t attempt = 0;  // 0: not placed yet
  int64_t plan_version = 0;
  int32_t threads = 1;
  std::string cpu_capability;  // empty until placed
  std::string weights_path;    // empty until all are there
  std::string weights_sha256;
  int64_t submitted_unix_ms = 0;
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;
  std::vector<StageOfPlan> stages;      // empty until placed; see plan.h
  std::vector<JobWorker> workers;       // by id
  std::optional<RunEstimate> estimate;  // as made when it was placed
  std::vector<StageTime> stage_times;   // of `stages`, as reported so far
  // Of an inference job: that pass through, once the first stage has said so;
  // not stored, since it says it again.
  int64_t total_samples = 0;
  // Whole training steps that the first stage's worker has timed.
  double step_seconds = 0;
  int64_t timed_steps = 0;

  Fence fence() const { return {id, attempt, plan_version}; }
};

struct StandingOrder {
  std::optional<RunOrder> run;          // absent: train nothing
  std::optional<MeasureOrder> measure;  // never beside a run
  // Its process was taken out of a round group: it shall start anew, as another
  // one.  Never beside the others.
  bool renew = false;

  friend bool operator==(const StandingOrder&, const StandingOrder&) = default;
};

}  // namespace paceline

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
#include "core/cluster/registration.h"
#include "core/model/job_spec.h"
#include "core/plan/plan.h"

namespace paceline {

// One reading of both clocks, taken when an event enters.
struct Moment {
  Instant now;
  int64_t unix_ms = 0;
};

// Values are those of paceline.v1.JobState.
enum class JobState : uint8_t {
  kQueued = 1,
  kRunning = 2,
  kSucceeded = 3,
  kFailed = 4,
  kStopped = 5,
};
constexpr int kJobStates = 6;  // a value is valid in [1, kJobStates)
absl::string_view JobStateName(JobState state);
bool HasEnded(JobState state);

// Values are those of paceline.v1.RunState.Phase.
enum class RunPhase : uint8_t {
  kNone = 0,
  kPreparing = 1,
  kRunning = 2,
  kDone = 3,
  kFailed = 4,
};
constexpr int kRunPhases = 5;

// Seconds of a worker's compute thread in one job, by what they went into.
struct TimeSplit {
  double forward = 0;
  double backward = 0;
  double send = 0;
  double receive_wait = 0;
  double aggregate = 0;
  double optimizer = 0;
  double snapshot = 0;
  double data = 0;
  double orders = 0;
  double unexplained = 0;
  double wall = 0;
};

struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  int64_t samples = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  bool skipped = false;
  int64_t unix_ms = 0;
};

struct EvaluationRecord {
  int64_t step = 0;
  double loss = 0;
  double accuracy = 0;
  int64_t samples = 0;
};

struct LogRecord {
  int64_t sequence = 0;  // from the store; grows within a job
  int64_t unix_ms = 0;
  std::string level;
  std::string source;
  std::string text;
};

struct EventRecord {
  int64_t sequence = 0;  // from the store; grows within a job
  int64_t unix_ms = 0;
  std::string kind;
  std::string text;
};

// What a worker says of the run it was ordered to do.
struct RunReport {
  Fence fence;
  RunPhase phase = RunPhase::kNone;
  int64_t step = 0;
  int64_t steps = 0;  // 0: not known yet
  absl::Status error;
  TimeSplit seconds;
};

struct Heartbeat {
  int64_t sequence = 0;
  int64_t progress = 0;
  std::optional<RunReport> run;
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<LogRecord> logs;
};

// One worker's part in the present attempt of a job.
struct JobWorker {
  WorkerId id;
  std::string name;
  RunPhase phase = RunPhase::kNone;
  TimeSplit seconds;
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
  int64_t attempt = 0;          // 0: not placed yet
  int64_t plan_version = 0;
  int32_t threads = 1;
  std::string cpu_capability;  // empty until placed
  std::string weights_path;    // empty until all are there
  std::string weights_sha256;
  int64_t submitted_unix_ms = 0;
  int64_t started_unix_ms = 0;
  int64_t ended_unix_ms = 0;
  std::vector<StageOfPlan> stages;  // empty until placed
  std::vector<JobWorker> workers;   // by id

  Fence fence() const { return {id, attempt, plan_version}; }
};

// A stage as an order names it.
struct StagePlacement {
  int32_t stage = 0;
  LayerRange layers;
  WorkerId worker;
  std::string worker_name;
  std::string address;

  friend bool operator==(const StagePlacement&,
                         const StagePlacement&) = default;
};

// What a worker shall be doing.  Carries every stage, so that a worker finds
// its own and its neighbours.
struct RunOrder {
  Fence fence;
  int64_t restore_step = 0;
  JobSpec spec;
  std::vector<StagePlacement> stages;
  std::string cpu_capability;
  int32_t threads = 1;

  // The spec and what was settled with it never change within a fence.
  friend bool operator==(const RunOrder& a, const RunOrder& b) {
    return a.fence == b.fence && a.stages == b.stages;
  }
};

struct StandingOrder {
  std::optional<RunOrder> run;  // absent: be idle

  friend bool operator==(const StandingOrder&, const StandingOrder&) = default;
};

}  // namespace paceline

// What the client knows of a mesh: own structs behind the Control service's
// messages, so that commands and rendering see no protobuf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/job_state.h"
#include "core/cluster/run_report.h"
#include "core/model/job_spec.h"

namespace paceline {

// One stage of a plan and who holds it.
struct PlacementView {
  int stage = 0;
  int first_layer = 0;
  int last_layer = 0;      // one past the last
  int64_t worker_id = -1;  // -1: nobody yet
  std::string worker_name = {};
  double share = 1;  // of the stage's micro-batches, in the plan's unit
};

// What a process of a round group said last.
struct JobMemberView {
  std::string view;         // adopted: "1.3"
  int64_t next = 0;         // steps applied
  int64_t state_step = 0;   // steps that state_hash has in it
  uint64_t state_hash = 0;  // equal on all members; 0: not known
  bool listens = false;     // it is to become a member
};

struct JobWorkerView {
  int64_t id = 0;
  std::string name;
  std::vector<PlacementView> stages;
  TimeSplit seconds;
  std::optional<FlowTimes> flow = {};
  // Bytes of tensors, the most at a time; 0: not known.
  int64_t peak_memory_bytes = 0;             // so far
  int64_t predicted_memory_bytes = 0;        // as planned
  std::optional<JobMemberView> member = {};  // of a round group
};

struct LossPoint {
  int64_t step = 0;
  double loss = 0;       // not finite where training blew up
  bool skipped = false;  // the step gate left the weights as they were
};

// What a run is expected to take, as the coordinator made it when it placed
// the job.
struct EstimateView {
  double step_seconds = 0;
  double samples_per_second = 0;
  double bubble_share = 0;                 // of the workers' time, in [0, 1)
  std::vector<double> stage_seconds = {};  // [stages]: of a micro-batch
  std::string source = {};  // what was measured, predicted, assumed
  bool measured = false;    // nothing was predicted or assumed
};

// A stage's forward and backward of one micro-batch.
struct DriftView {
  int stage = 0;
  double predicted_seconds = 0;  // 0: not known
  double measured_seconds = 0;   // 0: not yet
  int64_t worker_id = -1;
  // Of its layers as they were profiled, with the update where every
  // micro-batch has one, and nothing that a pipeline adds; 0: not known.
  double layer_seconds = 0;
};

// What a stage without a flush did so far.
struct VersionsView {
  int stage = 0;
  int64_t updates = 0;
  int64_t skipped_updates = 0;
  double staleness = 0;  // of a gradient, in updates; mean
  int versions = 0;      // of the weights, the most at a time
  int64_t version_bytes = 0;
};

struct JobView {
  int64_t id = 0;
  JobSpec spec;
  JobState state = JobState::kUnknown;
  std::string why;
  std::string
      phase;  // preparing, training, predicting, saving; empty unless running
  int64_t step = 0;
  int64_t steps = 0;          // 0: not known yet
  int64_t skipped_steps = 0;  // of `step`
  std::vector<LossPoint> curve;
  std::vector<EvaluationRecord> evaluations;
  // The result, weights or predictions, on the coordinator's machine; empty:
  // none yet.
  std::string weights_path;
  std::string weights_sha256;  // lower hex
  int threads = 0;
  std::string cpu_capability;
  std::vector<JobWorkerView> workers;
  int64_t submitted_unix_ms = 0;
  int64_t started_unix_ms = 0;  // 0: not yet
  int64_t ended_unix_ms = 0;    // 0: not yet
  int64_t attempt = 0;
  int64_t plan_version = 0;
  double samples_per_second = 0;
  std::optional<EstimateView> estimate;  // nothing until it is placed
  std::vector<DriftView> drift;
  std::vector<VersionsView> versions;  // of stages without a flush
  double step_seconds = 0;  // measured mean of all but the first; 0: not yet
};

struct WorkerView {
  int64_t id = 0;
  std::string name;
  std::string machine_id;
  // idle, busy, measuring (for a person; a link between two workers that the
  // mesh measures by itself does not count), draining (drained, and has a job
  // still), drained, suspect, lost
  std::string state;
  bool drained = false;  // gets nothing new
  std::string address;
  std::string http_address;
  int64_t pid = 0;
  int64_t job = 0;  // 0: none
  std::vector<int> stages;
  double last_heard_seconds = 0;  // ago
  std::string cpu_capability;
  std::string cpu_model;
  std::string architecture;
  int64_t memory_bytes = 0;
  int cores = 0;
  std::string version;
};

struct EventView {
  int64_t sequence = 0;
  int64_t unix_ms = 0;
  std::string kind;
  std::string text;
};

struct LogLineView {
  int64_t unix_ms = 0;
  std::string level;
  std::string source;
  std::string text;
};

struct LogPage {
  std::vector<LogLineView> lines;
  int64_t last = 0;  // hand back as `after`
};

struct SubmitRequest {
  JobSpec spec;
  std::string request_id;  // the same one again is the same job
  bool dry_run = false;
};

struct Submission {
  int64_t id = 0;                     // 0 for a dry run
  std::vector<PlacementView> stages;  // empty while no worker is there
  std::vector<std::string> notes;     // for people
  std::optional<EstimateView> estimate =
      {};  // nothing while no worker is there
};

// What the job's result is called: "weights" or "predictions".
std::string ResultName(const JobView& job);

// From the worker that holds the last stage; nothing until it has results.  Of
// replicas: counts together, the mean of their medians weighted by these, and
// the longest of their longest latencies.
std::optional<FlowTimes> ResultFlow(const JobView& job);

// What part of its stage's micro-batches stages[i] computes, in (0, 1].
double ShareOf(const std::vector<PlacementView>& stages, size_t i);
// ", 25.0 % of the micro-batches"; empty for all of them.
std::string ShareText(const std::vector<PlacementView>& stages, size_t i);

// Accuracy of the last evaluation, if there was one.
std::optional<double> TestAccuracy(const JobView& job);

// Stages of the job as placed, else as its spec asks; 0: not decided yet.
int StageCount(const JobView& job);

// The name of the schedule; "forward only" where there is none to choose.
std::string ScheduleText(const JobSpec& spec);

// "3 stages"; "stages not chosen yet" for 0.
std::string StagesText(int stages);

}  // namespace paceline

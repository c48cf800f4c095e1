// A worker sends these reports of its run to the coordinator: plain data, the
// same on both ends of the control stream.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/ids.h"
#include "core/cluster/measure_order.h"
#include "core/round/view.h"

namespace paceline {

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

// How micro-batches passed through one worker: seconds of its compute thread.
// Of an inference job between the two times; of training in all batches that
// followed another one directly.
struct FlowTimes {
  int64_t micro_batches = 0;
  int64_t samples = 0;
  int64_t first_unix_us = 0;  // its first micro-batch was there
  int64_t last_unix_us = 0;   // it was done with its last one
  double compute = 0;         // in layers, both ways
  double compute_cpu = 0;     // CPU seconds of that
  double other_cpu = 0;       // CPU seconds of all other threads meanwhile
  double starved = 0;         // waited for what the stage before was computing
  double in_flight = 0;       // waited for what was computed, and on its way
  double blocked = 0;         // waited for the stage behind to take what it had
  double data = 0;            // waited for the loader
  // Of the newest 65,536 micro-batches, from the first stage's taking one in:
  // in inference to its result, where the last stage is; in training to the end
  // of its backward, where the first one is.
  double latency_p50 = 0;
  double latency_p99 = 0;
  double latency_max = 0;
  // Training: waited for the pipeline to fill and to run empty, that is before
  // its first backward of a batch and at the step gate.
  double fill = 0;
  double update = 0;   // gradients reported and applied
  double seconds = 0;  // in all
  // Inference, where the last stage is: over what has a label.
  int64_t labels = 0;
  int64_t correct = 0;
  double loss = 0;  // summed

  friend bool operator==(const FlowTimes&, const FlowTimes&) = default;
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
  // Which line of which process it is, from 1 on; 0: not numbered.  The same
  // line may come twice, when its acknowledgement was lost.
  int64_t origin_sequence = 0;
  Incarnation incarnation = {};  // of the process; set by the coordinator
};

// What a stage has computed in training so far.
struct StageTime {
  int32_t stage = 0;
  double seconds = 0;  // forward and backward
  int64_t micro_batches = 0;
  // Asynchronous schedules; else 0.
  int64_t updates = 0;          // skipped ones too
  int64_t skipped_updates = 0;  // NaN or infinity in the gradient
  // Sum over the updates: by how many updates the weights at which a gradient
  // was computed were older than those that it was applied to.
  int64_t staleness = 0;
  int32_t versions = 0;       // of the weights, the most at a time
  int64_t version_bytes = 0;  // of all of these

  friend bool operator==(const StageTime&, const StageTime&) = default;
};

// How a member of a round group finds another one.
struct PeerReport {
  MemberId peer;
  // The stream to it is, since so long; zero: it is not.
  absl::Duration broken = absl::ZeroDuration();
  bool refused = false;  // nobody listens there any more, or another process
  // Owes an answer, since so long; zero: no.
  absl::Duration owing = absl::ZeroDuration();
  // Something is to come from it, however long that may take: owed where the
  // link is broken, whichever end sees that.
  bool awaited = false;

  friend bool operator==(const PeerReport&, const PeerReport&) = default;
};

// What a member of a round group says of itself, and of the others.
struct MemberReport {
  ViewId view;       // adopted
  int64_t next = 0;  // steps applied
  bool has_taken_part = false;
  // A listener has the group's state, or all but a few steps of it.
  bool level = false;
  int64_t state_step = 0;   // of state_hash
  uint64_t state_hash = 0;  // parameters, optimizer, buffers; 0: not known
  std::vector<PeerReport> peers;
  // Which of its turns the compute thread is at, from 1 on; 0: at none, it
  // waits for the others or hands the weights over.
  int64_t turn = 0;
  // Found by a server: states differ after mismatch_step; empty: none do.
  int64_t mismatch_step = 0;
  std::map<MemberId, uint64_t> mismatch;
};

// A round as the member saw it that committed it, as its server or as a
// leveller.
struct RoundRecord {
  int64_t step = 0;
  ViewId view;
  bool is_void = false;
  double seconds = 0;  // from the first part to the commit
  int32_t contributors = 0;
  WorkerId server;       // who committed it
  WorkerId lost_server;  // whose role it took over; unassigned: nobody's
  // From when the loss was known to the commit.
  double takeover_seconds = 0;
  struct Skip {
    WorkerId worker;
    // late, lost, not-finite, hash, division, empty, outvoted (by the rule)
    std::string reason;

    friend bool operator==(const Skip&, const Skip&) = default;
  };
  std::vector<Skip> skipped;
  int64_t unix_ms = 0;
};

// What a worker says of the run it was ordered to do.
struct RunReport {
  Fence fence;
  RunPhase phase = RunPhase::kNone;
  int64_t step = 0;
  int64_t steps = 0;    // 0: not known yet
  int64_t samples = 0;  // training samples done
  absl::Status error = {};
  TimeSplit seconds = {};
  std::vector<StageTime> stage_times = {};  // of its stages, ascending
  // Whole training steps but the first, from the first instruction to the
  // update.
  double step_seconds = 0;
  int64_t timed_steps = 0;
  std::optional<FlowTimes> flow = {};
  // Inference, where `step` and `steps` count micro-batches, and `samples`
  // those that came out: that pass through; 0: not known yet or here.
  int64_t total_samples = 0;
  // Of all tensors of the process since the run began, the most at a time.
  int64_t peak_memory_bytes = 0;
  std::optional<MemberReport> member = {};  // of a round group
  // Of the data set, so far: could not be read and were left out.
  int64_t unreadable_samples = 0;
};

struct Heartbeat {
  int64_t sequence = 0;
  int64_t progress = 0;
  std::optional<RunReport> run;
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<LogRecord> logs;
  std::optional<Measurement> measurement;  // finished and not withdrawn
  bool restarting = false;  // the process is about to execute itself anew
  bool stopping = false;    // the process ends on request
  std::vector<RoundRecord> rounds;  // not acknowledged, oldest first
};

}  // namespace paceline

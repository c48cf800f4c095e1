// The interpreter of schedules: runs a worker's instructions against engines,
// links and the step gate.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/schedule/schedule.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"
#include "worker/meters/time_meter.h"
#include "worker/pipeline/batch_source.h"
#include "worker/pipeline/link.h"
#include "worker/pipeline/predictions.h"
#include "worker/pipeline/stage_engine.h"
#include "worker/pipeline/step_exchange.h"

namespace paceline {

// Hears of a run's progress on the compute thread; quick and non-blocking.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // After every step, on every worker; `record` only where the last stage is.
  virtual void OnStep(const StepVerdict& verdict, int64_t samples,
                      const std::optional<v1::StepRecord>& record) = 0;
  // Asynchronous schedules: an update of one stage was skipped; `update` counts
  // from 1.
  virtual void OnSkippedUpdate(int64_t update, const std::string& why) = 0;
  virtual void OnEvaluation(const v1::EvaluationRecord& record) = 0;
  // Inference: this worker is done with another micro-batch, of `samples`; the
  // last time with samples 0, when `flow` is whole.  Training: after every
  // batch that followed another one, with samples 0.
  //   last  the last stage is here: it has left the pipeline
  virtual void OnFlow(const v1::FlowTimes& flow, int64_t samples,
                      bool last) = 0;
  // After every training batch: what it took since the end of the one before
  // (nothing where that was none, or an evaluation), and what this worker's
  // stages computed, ascending.
  virtual void OnBatch(std::optional<absl::Duration> wall,
                       const std::vector<v1::StageTime>& stages) = 0;
  // So much of the data set could not be read so far.
  virtual void OnUnreadable(const v1::Unreadable& unreadable) = 0;
  // After every instruction: the compute thread is alive.
  virtual void OnProgress(const Instruction& done, const BatchInfo& batch) = 0;
};

// The records of a training step, and of an evaluation after `step` steps, with
// these losses.
v1::StepRecord RecordOf(const StepVerdict& verdict, const LossSums& losses,
                        int64_t samples, absl::Time now);
v1::EvaluationRecord RecordOf(int64_t step, const LossSums& losses);
// Tells the observer what `source` could not read, where there is something.
// To be called before a run that fails says so, too.
void SayUnreadable(const BatchSource& source, RunObserver& observer);

// Decides after which batches the state is kept, and keeps it.  Called on the
// compute thread.
class SnapshotKeeper {
 public:
  virtual ~SnapshotKeeper() = default;
  // Where stage 0 is, before every training batch: sets `marked`, and where no
  // other batch is to follow `stops`.  May wait.
  // Errors: those that end the run
  virtual absl::Status OnBatch(BatchInfo& batch) = 0;
  // On every worker, when a batch that is marked has been applied or skipped:
  // copies the states of its stages, which are those after `step` steps.
  virtual void Deposit(int64_t step) = 0;
};

struct StageRunnerOptions {
  std::string schedule;
  std::vector<int> worker_of;  // [stages], as in ScheduleRequest
  int worker = 0;              // this one's index in worker_of
  // In a batch that is not the shorter last one of an epoch.
  int micro_batches = 1;
  bool vertical_sync = false;
  bool inference = false;      // a walk over the test set
  TrainSpec train;             // for the updates of asynchronous schedules
  std::vector<Tie> ties = {};  // of the whole run
  Turns turns = {};            // inference: the batches of this worker
  // Where stages have replicas that train: [stages], how many and their routes.
  // Each worker then holds one stage.  Else empty.
  std::vector<int> replicas = {};
  std::vector<RouteTable> routes = {};
  int replica = 0;          // of its stage, this worker
  int64_t first_batch = 0;  // inference: where the walk begins
  // The walk is over: there is no batch.
  bool trained = false;
  int64_t skipped_in_row = 0;  // steps before the first one
};

// The parts of a run.  All outlive the runner.
struct StageRunnerParts {
  std::map<int, StageEngine*> engines;  // by stage, one for each of ours
  Link& link;
  GateClient& gate;
  BatchSource* source = nullptr;  // where stage 0 is ours
  // Where the last stage of an inference job is ours.
  Predictions* predictions = nullptr;
  TimeMeter& time;
  const Clock& clock;
  RunObserver& observer;
  SnapshotKeeper* keeper = nullptr;  // null: nothing is kept
};

// Lives on the compute thread.
class StageRunner {
 public:
  StageRunner(StageRunnerOptions options, StageRunnerParts parts);

  // Runs batch after batch until the final one.  The first error of an engine,
  // a link or the gate ends it and is returned as it is.
  absl::Status Run();
  // After Run(): the number of steps after which the walk was ended early.
  std::optional<int64_t> stopped_at() const { return stopped_at_; }
  // An error leaves this of a synchronous schedule.
  struct Rest {
    std::optional<StepVerdict> applied;  // the last one; nothing: none was
    // The engines hold the sum of that step, counted from 1, which was reported
    // and not decided; 0: none.
    int64_t held = 0;
    // The step's record but for what the verdict says; where the last stage is.
    std::optional<v1::StepRecord> record = {};
  };
  // Nothing: the engines' states are of no step.
  std::optional<Rest> rest() const { return rest_; }

 private:
  // Tensors pass between two instructions by (stage, micro-batch).
  using Slot = std::pair<int, int>;

  bool holds_last() const { return own_stages_.back() == stages_ - 1; }
  // Nothing: the source has no batch for this worker.
  absl::StatusOr<std::optional<BatchInfo>> NextBatch(int64_t ordinal);
  // The batch as its source, or the first frame of it, says.
  absl::StatusOr<std::optional<BatchInfo>> OwnNextBatch(int64_t ordinal);
  absl::StatusOr<const InstructionList*> InstructionsFor(
      const BatchInfo& batch);
  absl::StatusOr<InstructionList> MakeInstructions(const BatchInfo& batch);
  absl::Status AwaitRoomAtReplicas(const BatchInfo& batch);
  absl::Status AwaitRoom(const BatchInfo& batch);
  absl::Status RunBatch(const BatchInfo& batch);
  // Training batches without a flush from `first` on; returns the last one,
  // after which the pipeline is empty.
  absl::StatusOr<BatchInfo> RunStream(const BatchInfo& first);
  absl::Status Execute(const Instruction& instruction, const BatchInfo& batch);

  absl::Status Load(const Instruction& instruction, const BatchInfo& batch);
  absl::Status Receive(FrameKind kind, const Instruction& instruction,
                       const BatchInfo& batch);
  absl::Status Forward(const Instruction& instruction, const BatchInfo& batch);
  absl::Status Backward(const Instruction& instruction, const BatchInfo& batch);
  absl::Status Send(FrameKind kind, const Instruction& instruction,
                    const BatchInfo& batch);
  absl::Status Step(const Instruction& instruction, const BatchInfo& batch);
  // Losses and gradient become those of all replicas.  Returns the gradient's
  // hash, as ReplicaExchange::Sum(); of an evaluation 0.
  absl::StatusOr<uint64_t> SumReplicas(const BatchInfo& batch);
  absl::Status Report(int stage, const BatchInfo& batch);
  absl::Status Apply(const BatchInfo& batch, const StepVerdict& verdict);
  void Deposit(const BatchInfo& batch);

  // Now, as the flow meter wants to know it.
  FlowMoment MomentOfFlow() const;
  void MeterLoad(const Instruction& instruction, const BatchInfo& batch,
                 Instant began);
  // The first stage's backward, or its part, is done.
  void MeterBackward(const Instruction& done, const BatchInfo& batch);
  void MeterReceive(const Instruction& instruction, bool activation,
                    Instant began, const FrameHeader& header);
  void MeterSend(const Slot& slot, bool activation, FrameHeader& header);
  void SayFlow(int64_t samples) {
    parts_.observer.OnFlow(flow_.times(), samples, holds_last());
  }

  // Inference: batches of one micro-batch.
  absl::Status TakeResult(const Slot& slot, const BatchInfo& batch,
                          ForwardResult& result);

  // A stream goes on a micro-batch at a time.
  struct InFlight {
    BatchInfo batch;
    int micro_batch = 0;
  };
  absl::Status StreamForward(const InFlight& what);
  absl::Status StreamBackward(const InFlight& what, int64_t next_version);
  absl::Status Update(const InFlight& what);
  // Tells of a batch whose last update was made.
  absl::Status FinishStreamedBatch(const BatchInfo& batch,
                                   const StepVerdict& last);
  absl::Status Do(Op op, const InFlight& what);

  // Where the last stage is.  All replicas tell of a step, so that it is known
  // whichever of them is lost, and the labels are in the first one's record.
  std::optional<v1::StepRecord> RecordHere(const StepVerdict& verdict,
                                           const BatchInfo& batch) const;
  // A training step has ended.
  void SayStep(const StepVerdict& verdict, const BatchInfo& batch,
               bool skipped);
  void FinishEvaluation();
  // Adds what a forward or backward took since `begin`.
  void AddStageTime(const Instruction& done, Instant begin,
                    const BatchInfo& batch);
  // The same for the trace of the batch, where it is traced.
  void Trace(const Instruction& done, Instant begin, const BatchInfo& batch);
  // A training batch has ended.
  void SayBatch(const BatchInfo& batch);
  void SayStageTimes(std::optional<absl::Duration> wall);

  const StageRunnerOptions options_;
  const StageRunnerParts parts_;
  const int stages_;
  const std::vector<int> own_stages_;
  TieExchange ties_;
  std::optional<ReplicaExchange> exchange_;  // where its stage has replicas

  // Instruction lists by (micro-batches, training); a job has at most four.
  // Training streams have none: they are as long as the job.
  std::map<std::pair<int, bool>, InstructionList> lists_;

  std::map<Slot, TensorList> inputs_;     // for F
  std::map<Slot, TensorList> outputs_;    // from F, for SEND_F
  std::map<Slot, TensorList> gradients_;  // for B, then from B for SEND_B
  std::vector<int> stepped_;         // stages of this batch that wait for it
  std::vector<StepReport> reports_;  // of this batch, waiting for the gate
  LossSums losses_;                  // of this batch
  int64_t labels_ = 0;               // of this batch, with exchange_
  std::map<int, v1::StageTime> stage_times_;  // of this batch, by stage
  // Traces under way, by stage and BatchInfo::step.
  std::map<std::pair<int, int64_t>, v1::BatchTrace> traces_;
  int64_t trace_every_ = 1;         // batches
  std::optional<Instant> trained_;  // when the training batch before ended
  int64_t updates_ = 0;  // of asynchronous schedules, made by this runner
  bool batch_skipped_ = false;  // an update of the streamed batch
  bool batch_applied_ = false;  // another one was not skipped
  SkipCount skips_;
  LossSums evaluation_;  // of the running evaluation

  FlowMeter flow_{options_.inference ? FlowMeter::Counts::kInputs
                                     : FlowMeter::Counts::kBatches};
  Instant asked_;     // when the wait for the newest batch's header began
  Instant answered_;  // and when it ended
  std::map<Slot, int64_t> admitted_us_;  // inference: of what is here
  // Training, on the first stage: (batch, micro-batch) in the pipeline.
  std::map<std::pair<int64_t, int>, Instant> entered_;
  int64_t evaluation_step_ = 0;
  std::optional<int64_t> stopped_at_;
  std::optional<Rest> rest_ = Rest();
};

}  // namespace paceline

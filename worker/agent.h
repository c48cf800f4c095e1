// Makes reality match the standing order: one run at a time, on the compute
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/clock.h"
#include "core/base/thread.h"
#include "core/cluster/measure_order.h"
#include "core/cluster/run_report.h"
#include "worker/cancel_token.h"
#include "worker/faults.h"
#include "worker/group_door.h"
#include "worker/prober.h"
#include "worker/record_outbox.h"
#include "worker/run_factory.h"
#include "worker/run_order.h"
#include "worker/stage_runner.h"
#include "worker/time_meter.h"

namespace paceline {

struct RoundDeskOptions;

// How far a heartbeat's records reach; handed back with its acknowledgement.
struct RecordMarks {
  int64_t steps = 0;
  int64_t evaluations = 0;
  int64_t logs = 0;
  int64_t rounds = 0;
};

// What a heartbeat carries.
struct HeartbeatContent {
  int64_t progress = 0;  // instructions done since the process began
  std::optional<RunReport> run;
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<LogRecord> logs;
  std::vector<RoundRecord> rounds;
  bool restarting = false;  // the process is about to execute itself anew
  bool stopping = false;    // the process ends on request
  std::optional<Measurement> measurement;  // finished and not withdrawn
  RecordMarks marks;
};

struct AgentOptions {
  // For orders to measure.
  std::string name;
  std::string cpu_model;
  // Predictions of more than that are refused too; 0: not known.
  int64_t memory_bytes = 0;
  Prober* prober = nullptr;  // outlives the agent; null: refuses to measure

  std::string cpu_capability;  // the level this process was started for
  // The level that the engine's kernels say they run at; empty: they do not
  // say.
  std::string active_capability;
  // Called, on any thread, when an order wants another level: the process
  // shall execute itself anew.  Must not block.
  std::function<void(const std::string& capability)> restart;
  // What has not ended this long after it was withdrawn never will (a user's
  // own code may loop for ever), and nothing can end it but the process's own
  // end: restart() is called.  Longer than the slowest machine takes for one
  // instruction.
  absl::Duration longest_end = absl::Minutes(1);
  // What jobs' fault scripts need; outlives the agent, null: such a job is
  // refused here.
  FaultActions* fault_actions = nullptr;
};

// Thread-safe.  The compute thread lives from construction to destruction,
// which cancels what is running.
class Agent final : private RunObserver, private RoundObserver {
 public:
  // `factory` and `clock` outlive this.
  Agent(AgentOptions options, RunFactory& factory, const Clock& clock);
  ~Agent() override;

  // The coordinator has given this worker its id.
  void OnWelcome(WorkerId self);

  // The standing order, whole; nothing: be idle.  The order of the present
  // fence again changes nothing but the round group, another one ends the run.
  void OnOrder(std::optional<RunOrder> order);

  // The standing order's other half: measure this, or nothing.  The same id
  // again changes nothing.  Never given beside a run.
  void OnMeasure(std::optional<MeasureOrder> order);

  // A new control stream: records not acknowledged are due again.
  void OnAttached();
  // Also judges whether what was withdrawn has ended.  Of a backlog of records
  // it has so many that a slow link carries them within a lease, and the next
  // one is due at once; a run says that it has ended with the last of them,
  // since the coordinator may forget it then.
  HeartbeatContent Heartbeat();
  // Waits until the run's phase has changed since the last Heartbeat(), or
  // `longest`: the next one is due.
  void AwaitChange(absl::Duration longest) const;
  void OnAck(const RecordMarks& marks);

  // From now on heartbeats say that the process is about to execute itself
  // anew.
  void AnnounceRestart();
  // The same, that it ends on request.
  void AnnounceStop();

  // Lines of the log, for the job that is running; dropped when none is.  They
  // are numbered here.
  void AddLog(LogRecord record);

  // A run was begun and has neither ended nor been withdrawn.
  bool running() const;
  TimeReading Time() const { return time_.Read(); }
  // Steps and samples of all runs of this process.
  int64_t total_steps() const { return total_steps_; }
  int64_t skipped_steps() const { return skipped_steps_; }
  int64_t total_samples() const { return total_samples_; }
  int64_t progress() const { return progress_; }
  // Of the present run, after its last batch; empty when there is none.
  std::vector<StageTime> StageTimes() const;
  std::optional<FlowTimes> Flow() const;
  // Of all runs of this process, and what is so in the present one.
  RoundReading Rounds() const;
  // Bytes of tensors that the present run is predicted to take at most; 0: not
  // known yet.
  int64_t predicted_memory_bytes() const { return predicted_memory_bytes_; }

 private:
  // RunObserver, on the compute thread.
  void OnStep(const StepVerdict& verdict, int64_t samples,
              const std::optional<StepRecord>& record) override;
  void OnSkippedUpdate(int64_t update, const std::string& why) override;
  void OnEvaluation(const EvaluationRecord& record) override;
  void OnFlow(const FlowTimes& flow, int64_t samples, bool last) override;
  void OnBatch(std::optional<absl::Duration> wall,
               const std::vector<StageTime>& stages) override;
  void OnUnreadable(int64_t samples) override;
  void OnProgress(const Instruction& done, const BatchInfo& batch) override;
  // RoundObserver, on the desk's thread.
  void OnRound(const RoundRecord& record) override;
  void OnMemberChanged() override;

  void ComputeLoop();
  // The next order to work on, of one of the two kinds; neither when the
  // agent ends.
  struct Work {
    std::optional<RunOrder> run;
    std::optional<MeasureOrder> measure;
  };
  Work AwaitWork();
  void Run(const RunOrder& order);
  void Measure(const MeasureOrder& order);
  void CloseRun();
  void EndWhatIsOverdue();
  absl::Status RunJob(const RunOrder& order);
  absl::StatusOr<std::map<int, std::unique_ptr<StageEngine>>> MakeEngines(
      const RunOrder& order, const ModelDescription& model, WorkerId self);
  // Trains or infers.
  absl::Status Compute(const RunOrder& order, const ModelDescription& model,
                       WorkerId self);
  // As a member of a round group (agent_group.cc).
  struct GroupRun;
  absl::Status ComputeInGroup(const RunOrder& order,
                              const ModelDescription& model, WorkerId self);
  absl::Status PrepareGroup(const RunOrder& order,
                            const ModelDescription& model, WorkerId self,
                            GroupRun& run);
  absl::StatusOr<RoundDeskOptions> DeskOptions(const RunOrder& order,
                                               GroupRun& run);
  absl::Status RunGroup(const RunOrder& order, const ModelDescription& model,
                        GroupRun& run);
  absl::Status TakeTurns(const RunOrder& order, const ModelDescription& model,
                         GroupRun& run);
  absl::Status HandOver(const RunOrder& order, StageEngine& engine);
  std::shared_ptr<GroupDoor> desk() const;

  absl::Status WarmUp(const RunOrder& order, const ModelDescription& model,
                      int stage, StageEngine& engine);
  absl::Status HandOver(
      const RunOrder& order,
      const std::map<int, std::unique_ptr<StageEngine>>& engines);
  absl::Status HandOver(const RunOrder& order, Predictions& predictions);
  // Says so, and has the process execute itself anew, when `capability` is not
  // what it was started for.
  bool NeedsRestart(const std::string& capability);
  absl::Status CheckActiveCapability(const RunOrder& order) const;
  void SetPhase(RunPhase phase, absl::Status error = absl::OkStatus());

  // Constant after construction.
  const AgentOptions options_;
  RunFactory& factory_;
  const Clock& clock_;

  TimeMeter time_;
  std::atomic<int64_t> progress_{0};
  std::atomic<int64_t> total_steps_{0};
  std::atomic<int64_t> skipped_steps_{0};
  std::atomic<int64_t> total_samples_{0};
  std::atomic<int64_t> predicted_memory_bytes_{0};

  mutable absl::Mutex mutex_;
  WorkerId self_ ABSL_GUARDED_BY(mutex_);
  std::optional<RunOrder> order_ ABSL_GUARDED_BY(mutex_);
  bool order_is_new_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<MeasureOrder> measure_ ABSL_GUARDED_BY(mutex_);
  bool measure_is_new_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Measurement> measurement_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Since when the compute thread is to leave what it is at; nothing while it
  // is not to, or has left.
  std::optional<Instant> ending_since_ ABSL_GUARDED_BY(mutex_);
  std::optional<RunReport> run_ ABSL_GUARDED_BY(mutex_);
  // Of run_, when that has ended.
  RunPhase phase_before_end_ ABSL_GUARDED_BY(mutex_) = RunPhase::kNone;
  // run_'s phase, its round group, measurement_, or what was announced; or
  // records are left that the last heartbeat had no room for.
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool restarting_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;   // on request
  int64_t log_lines_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last one
  RecordOutbox<StepRecord> steps_ ABSL_GUARDED_BY(mutex_);
  RecordOutbox<EvaluationRecord> evaluations_ ABSL_GUARDED_BY(mutex_);
  RecordOutbox<LogRecord> logs_ ABSL_GUARDED_BY(mutex_);
  RecordOutbox<RoundRecord> rounds_ ABSL_GUARDED_BY(mutex_);
  // Shared by the compute thread, which uses them, and by whoever ends the
  // run from outside: it must not lose them between lock and Cancel().
  std::shared_ptr<CancelToken> cancel_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<RunConnections> connections_ ABSL_GUARDED_BY(mutex_);
  // Of a round group's run; shared with whoever tells it of the group, ends it
  // or asks how it goes.
  std::shared_ptr<GroupDoor> desk_ ABSL_GUARDED_BY(mutex_);
  RoundStats ended_rounds_ ABSL_GUARDED_BY(mutex_);  // of runs before desk_
  // Notified when connections_ are gone; shared with their deleter.
  std::shared_ptr<absl::Notification> closed_ ABSL_GUARDED_BY(mutex_);

  Thread compute_;
};

}  // namespace paceline

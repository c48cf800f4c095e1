// Makes reality match the standing order: one run at a time, on the compute
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/cluster/run_order.h"
#include "core/os/thread.h"
#include "core/recover/run_state.h"
#include "worker/control/run_factory.h"
#include "worker/control/run_recorder.h"
#include "worker/control/worker_run.h"
#include "worker/meters/cpu.h"
#include "worker/meters/time_meter.h"
#include "worker/rounds/faults.h"

namespace paceline {

struct AgentOptions {
  // Carries out orders to measure, on the compute thread.
  std::function<v1::Measurement(const v1::MeasureOrder&, const CancelToken&)>
      measure;
  // Bounds what round groups keep; 0: not known.
  int64_t memory_bytes = 0;

  std::string cpu_capability;  // the level this process was started for
  // The level that the engine's kernels say they run at; empty: they do not
  // say.
  std::string active_capability;
  // Called, on any thread, when an order wants another level: the process
  // shall execute itself anew.  Must not block.
  std::function<void(const std::string& capability)> restart;
  // A run that has not ended this long after its order was withdrawn never ends
  // (a user's own code may loop for ever).  Only the end of the process ends
  // such a run, so the agent calls restart().  The limit is longer than the
  // slowest machine takes for one instruction.
  absl::Duration longest_end = absl::Minutes(1);
  // How often an idle worker looks whether files of jobs that failed here in
  // the last week have changed.
  absl::Duration look_period = absl::Seconds(5);
  // Carries out the jobs' fault scripts; outlives the agent.  Null only where
  // it joins no round group.
  FaultActions* fault_actions = nullptr;
  // As in RunContext; both outlive the agent.
  PieceStore* pieces = nullptr;
  PieceExchange* exchange = nullptr;
};

// How the process is about to end, as heartbeats say it.
enum class WorkerEnd : uint8_t {
  kNone,
  kLeaving,     // on request, when the coordinator releases it
  kStopping,    // on request, now
  kRestarting,  // it executes itself anew
};

// Thread-safe.  The compute thread lives from construction to destruction,
// which cancels what is running.
class Agent {
 public:
  // `factory` and `clock` outlive this.
  Agent(AgentOptions options, RunFactory& factory, const Clock& clock);
  ~Agent();

  // The coordinator has given this worker its id.
  void OnWelcome(WorkerId self);

  // The standing order, whole; nothing: be idle.  The order of the present
  // fence again changes nothing but the round group, and whether to stop;
  // another one ends the run.  A pipeline's fence that was left fails.
  //   number  of the standing order: heartbeats echo it from when it is carried
  //           out
  void OnOrder(std::optional<RunOrder> order, OrderNumber number = {});

  // Takes what the standing order says of pieces.  To be called before
  // OnOrder().
  void OnKeep(const KeepOrder& order);

  // The standing order's other half: measure this, or nothing.  The same id
  // again changes nothing.  Never given beside a run.
  void OnMeasure(std::optional<v1::MeasureOrder> order);

  // A new control stream: records not acknowledged are due again.
  void OnAttached();
  // The control stream has ended: no run waits for the coordinator.
  void OnDetached();
  // As RunRecorder::Fill.  Also judges whether what was withdrawn has ended.
  MarkedHeartbeat Heartbeat();
  // Waits until the next heartbeat is due at once, or `longest`.
  // Changes of pieces within 10 ms are told together.
  void AwaitChange(absl::Duration longest) const;
  void OnAck(const RecordMarks& marks);

  // From now on heartbeats say so.
  void Announce(WorkerEnd end);

  // As RunRecorder::AddLog.
  void AddLog(v1::LogLine line) { recorder_.AddLog(std::move(line)); }

  // The records of its runs, for the metrics.
  const RunRecorder& recorder() const { return recorder_; }
  v1::TimeSplit Time() const { return time_.Read(); }
  // As TimeMeter::Computing().
  std::optional<absl::Duration> Computing() const { return time_.Computing(); }
  // Totals of all runs of this process, and the state of the present one.
  RoundReading Rounds() const;

 private:
  // The next order to work on, of one of the two kinds; neither when the
  // agent ends.
  struct Work {
    std::optional<RunOrder> run;
    std::optional<v1::MeasureOrder> measure;
    std::shared_ptr<CancelToken> cancel;
  };

  // The files of a run, their StampOf() before it began, and when it failed.
  struct FailedRun {
    std::vector<std::string> files;
    size_t stamp = 0;
    Instant since;
  };

  void ComputeLoop();
  Work AwaitWork();
  void Run(const RunOrder& order, const CancelToken& cancel);
  absl::Status RunJob(const RunOrder& order, const CancelToken& cancel);
  void Measure(const v1::MeasureOrder& order, const CancelToken& cancel);
  bool IsOrdered(int64_t measurement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseRun();
  // The present run, or null.  It is not closed before ReturnRun(), which
  // follows unless it is null.
  WorkerRun* BorrowRun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnRun();
  // The compute thread does this next.  Where nothing is to be left, the newest
  // order is carried out, and the next heartbeat says so at once.
  void SetNext(WorkStep step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes what the order says of the state that a left run keeps.
  void JudgeKeptLocked(const KeepOrder& order)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out what is due to that state, on the compute thread.
  void TendKept();
  // A person may have brought what a run lacked.
  void LookAtFailed();
  void EndWhatIsOverdue();
  void OnPieces();
  void AddPieces(v1::PiecesHeld& held) const;
  bool OthersAreBack() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says so, and has the process execute itself anew, when `capability` is not
  // what it was started for.
  bool NeedsRestart(const std::string& capability);
  absl::Status CheckActiveCapability(const RunOrder& order) const;

  // Constant after construction.
  const AgentOptions options_;
  RunFactory& factory_;
  const Clock& clock_;

  TimeMeter time_;
  EnergyMeter energy_;
  RunRecorder recorder_;

  mutable SteadyMutex mutex_;
  WorkerId self_ ABSL_GUARDED_BY(mutex_);
  WorkState state_ ABSL_GUARDED_BY(mutex_);
  std::optional<RunOrder> order_ ABSL_GUARDED_BY(mutex_);  // the newest
  WorkStep next_ ABSL_GUARDED_BY(mutex_) = WorkStep::kNothing;
  std::optional<v1::MeasureOrder> measure_ ABSL_GUARDED_BY(mutex_);
  bool measure_is_new_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Measurement> measurement_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Since when the compute thread is to leave what it is at; nothing while it
  // is not to, or has left.
  std::optional<Instant> ending_since_ ABSL_GUARDED_BY(mutex_);
  Instant acknowledged_ ABSL_GUARDED_BY(mutex_) = {-absl::InfiniteDuration()};
  // When the stream was there again after a break.
  Instant returned_ ABSL_GUARDED_BY(mutex_) = {-absl::InfiniteDuration()};
  bool was_detached_ ABSL_GUARDED_BY(mutex_) = false;
  // Jobs whose floor the coordinator has told on this stream: it computes them.
  std::set<JobId> floors_ ABSL_GUARDED_BY(mutex_);
  bool pieces_are_new_ ABSL_GUARDED_BY(mutex_) = true;  // to the coordinator
  Instant pieces_said_ ABSL_GUARDED_BY(mutex_);
  WorkerEnd end_ ABSL_GUARDED_BY(mutex_) = WorkerEnd::kNone;
  std::set<JobId> repaired_ ABSL_GUARDED_BY(mutex_);
  // Cancels the present run or measurement.  Shared by the compute thread,
  // which uses it, and by the threads that end the work from outside.
  std::shared_ptr<CancelToken> cancel_ ABSL_GUARDED_BY(mutex_);
  bool cancel_is_runs_ ABSL_GUARDED_BY(mutex_) = false;
  // Until it is closed; made and destroyed by the compute thread.
  std::unique_ptr<WorkerRun> run_ ABSL_GUARDED_BY(mutex_);
  int users_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that have borrowed run_
  // The run before keeps this until it is dropped; and what is due to it.
  std::optional<v1::KeptState> kept_ ABSL_GUARDED_BY(mutex_);
  std::optional<FinishOrder> finish_ ABSL_GUARDED_BY(mutex_);
  bool drops_kept_ ABSL_GUARDED_BY(mutex_) = false;
  RoundStats closed_rounds_ ABSL_GUARDED_BY(mutex_);  // of runs before run_

  std::unique_ptr<WorkerRun> left_;  // the compute thread's: whose kept_ is
  int listener_ = -1;                // at the piece store
  // The compute thread's: the last jobs that failed here.
  std::map<JobId, FailedRun> failed_;
  Thread compute_;
};

}  // namespace paceline

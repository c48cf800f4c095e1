// Keeps what a run tells until the coordinator has it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/os/thread.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/pipeline/stage_runner.h"
#include "worker/rounds/group_exchange.h"

namespace paceline {

// Records on their way to the coordinator: kept until acknowledged.  Numbers
// its records from 0 on.  Bounded: above `capacity` the oldest goes.
// Thread-compatible.
template <typename Record>
class RecordOutbox {
 public:
  explicit RecordOutbox(size_t capacity) : capacity_(capacity) {}

  void Add(Record record) {
    records_.push_back(std::move(record));
    if (records_.size() <= capacity_) return;
    records_.pop_front();
    ++first_;
  }

  // Whether there is a record that was not taken since the last Rewind().
  bool has_new() const { return std::max(next_, first_) < end(); }

  // The oldest of these, which exists.
  const Record& TakeNew() {
    next_ = std::max(next_, first_) + 1;
    return records_[next_ - 1 - first_];
  }

  // All records below it were taken: the mark to acknowledge these with.
  int64_t taken() const { return next_; }

  // A new stream: everything not acknowledged counts as new again.
  void Rewind() { next_ = first_; }

  // All records below `mark` are durable.
  void Acknowledge(int64_t mark) {
    while (first_ < mark && !records_.empty()) {
      records_.pop_front();
      ++first_;
    }
  }

  // Forgets all; numbers go on, so that an old acknowledgement is harmless.
  void Clear() {
    first_ = end();
    records_.clear();
  }

 private:
  int64_t end() const { return first_ + static_cast<int64_t>(records_.size()); }

  const size_t capacity_;
  std::deque<Record> records_;
  int64_t first_ = 0;  // number of records_.front()
  int64_t next_ = 0;   // first one not yet taken
};

// How far a heartbeat's records reach; handed back with its acknowledgement.
struct RecordMarks {
  int64_t steps = 0;
  int64_t evaluations = 0;
  int64_t logs = 0;
  int64_t rounds = 0;
};

struct MarkedHeartbeat {
  v1::Heartbeat heartbeat;  // without its sequence
  RecordMarks marks;
};

// Thread-safe.
class RunRecorder final : public RunObserver, public RoundObserver {
 public:
  // A run begins; the one before has ended.
  void Begin(const Fence& fence);
  // The run is closed: it and its records are forgotten, but for those of steps
  // if a heartbeat says what the run has kept.
  void Clear();
  // A step was applied after Clear().
  void AddStep(const v1::StepRecord& record);
  void SetPhase(v1::RunState::Phase phase,
                const absl::Status& error = absl::OkStatus());
  // Has `set` write to the report of the run, under the lock.
  template <typename Set>
  void Say(const Set& set) {
    SteadyLock lock(&mutex_);
    set(*run_);
  }
  // A person should know it.  The same again changes nothing.
  void AddNote(const std::string& note);
  // samples: of the test set; names: of these, as they go into the result.
  void SetTotals(int64_t steps, int64_t samples,
                 const v1::NameBytes& names = {});
  // Predictions are stored for good up to this mark, which is above those
  // before.
  void AddPredicted(const v1::PredictedMark& mark);
  // Bytes of tensors that the run is predicted to take at most; 0: not known
  // yet.
  void SetPredictedMemory(int64_t bytes) { predicted_memory_bytes_ = bytes; }

  // Lines of the log, for the job that is running; dropped when none is.  They
  // are numbered here, and may be any bytes.
  void AddLog(v1::LogLine line);
  // The next heartbeat is due at once.
  void NoteChange();
  // Waits until the run's phase has changed, or something else that should not
  // wait, since the last Fill(), or `longest`.
  void AwaitChange(absl::Duration longest) const;

  // A new control stream: records not acknowledged are due again.
  void Rewind();
  void Acknowledge(const RecordMarks& marks);
  // From here on changes count as new.
  void BeginHeartbeat();
  // The run's report, and its newest records: of a backlog so many that a slow
  // link carries them within a lease, and the next heartbeat is due at once.  A
  // run says that it has ended with the last of them, since the coordinator may
  // forget it then.
  void Fill(MarkedHeartbeat& content);

  // A run was begun and has neither ended nor been closed.
  bool running() const;
  // Steps and samples of all runs of this process.
  int64_t total_steps() const { return total_steps_; }
  int64_t skipped_steps() const { return skipped_steps_; }
  int64_t total_samples() const { return total_samples_; }
  int64_t progress() const { return progress_; }
  int64_t predicted_memory_bytes() const { return predicted_memory_bytes_; }
  // The present run, or empty.
  v1::RunState Run() const;

  // RunObserver, on the compute thread.
  void OnStep(const StepVerdict& verdict, int64_t samples,
              const std::optional<v1::StepRecord>& record) override;
  void OnSkippedUpdate(int64_t update, const std::string& why) override;
  void OnEvaluation(const v1::EvaluationRecord& record) override;
  void OnFlow(const v1::FlowTimes& flow, int64_t samples, bool last) override;
  void OnBatch(std::optional<absl::Duration> wall,
               const std::vector<v1::StageTime>& stages) override;
  void OnUnreadable(const v1::Unreadable& unreadable) override;
  void OnProgress(const Instruction& done, const BatchInfo& batch) override;
  // RoundObserver, on the rounds' thread.
  void OnRound(const v1::RoundRecord& record) override;
  void OnMemberChanged() override { NoteChange(); }

 private:
  // Some hours of steps while the coordinator is away; then the oldest go.
  static constexpr size_t kMostSteps = 100'000;
  static constexpr size_t kMostLogs = 1'000;
  static constexpr size_t kMostRounds = 10'000;

  std::atomic<int64_t> progress_{0};
  std::atomic<int64_t> total_steps_{0};
  std::atomic<int64_t> skipped_steps_{0};
  std::atomic<int64_t> total_samples_{0};
  std::atomic<int64_t> predicted_memory_bytes_{0};

  mutable SteadyMutex mutex_;
  std::optional<v1::RunState> run_ ABSL_GUARDED_BY(mutex_);
  // The phase of run_ before it ended, when it has.
  v1::RunState::Phase phase_before_end_ ABSL_GUARDED_BY(mutex_) =
      v1::RunState::PHASE_UNSPECIFIED;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t log_lines_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last one
  RecordOutbox<v1::StepRecord> steps_ ABSL_GUARDED_BY(mutex_){kMostSteps};
  RecordOutbox<v1::EvaluationRecord> evaluations_ ABSL_GUARDED_BY(mutex_){
      kMostSteps};
  RecordOutbox<v1::LogLine> logs_ ABSL_GUARDED_BY(mutex_){kMostLogs};
  RecordOutbox<v1::RoundRecord> rounds_ ABSL_GUARDED_BY(mutex_){kMostRounds};
};

}  // namespace paceline

#include "worker/agent/run_recorder.h"

#include "core/base/tensor_memory.h"
#include "core/obs/log.h"

namespace paceline {
namespace {

// The bytes of records in one heartbeat: two seconds of 1 Mbit/s.
constexpr int64_t kMostRecordBytes = 256 << 10;

// At most so many bytes on the wire.
constexpr int64_t kMostFieldBytes = 100;  // all that have a fixed size
int64_t BytesOf(const StepRecord& /*step*/) { return kMostFieldBytes; }
int64_t BytesOf(const EvaluationRecord& /*record*/) { return kMostFieldBytes; }
int64_t BytesOf(const LogRecord& line) {
  return kMostFieldBytes + std::ssize(line.text);
}
int64_t BytesOf(const RoundRecord& round) {
  int64_t bytes = kMostFieldBytes;
  for (const RoundRecord::Skip& skip : round.skipped) {
    bytes += kMostFieldBytes + std::ssize(skip.reason);
  }
  return bytes;
}

// Moves new records while there is room; the last one may exceed it.
template <typename Record>
void TakeNew(RecordOutbox<Record>& outbox, int64_t& room,
             std::vector<Record>& into) {
  while (room > 0 && outbox.has_new()) {
    into.push_back(outbox.TakeNew());
    room -= BytesOf(into.back());
  }
}

bool HasEnded(const RunReport& run) {
  return run.phase == RunPhase::kDone || run.phase == RunPhase::kFailed;
}

}  // namespace

void RunRecorder::Begin(const Fence& fence) {
  predicted_memory_bytes_ = 0;
  absl::MutexLock lock(&mutex_);
  run_.emplace();
  run_->fence = fence;
  run_->phase = RunPhase::kPreparing;
}

void RunRecorder::Clear() {
  absl::MutexLock lock(&mutex_);
  run_.reset();
  steps_.Clear();
  evaluations_.Clear();
  rounds_.Clear();
}

void RunRecorder::SetPhase(RunPhase phase, absl::Status error) {
  absl::MutexLock lock(&mutex_);
  if (!HasEnded(*run_)) phase_before_end_ = run_->phase;
  run_->phase = phase;
  run_->error = std::move(error);
  changed_ = true;
}

void RunRecorder::SetTotals(int64_t steps, int64_t samples) {
  absl::MutexLock lock(&mutex_);
  run_->steps = steps;
  run_->total_samples = samples;
}

void RunRecorder::AddLog(LogRecord record) {
  absl::MutexLock lock(&mutex_);
  if (!run_.has_value()) return;
  record.origin_sequence = ++log_lines_;
  logs_.Add(std::move(record));
}

void RunRecorder::NoteChange() {
  absl::MutexLock lock(&mutex_);
  changed_ = true;
}

void RunRecorder::AwaitChange(absl::Duration longest) const {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&changed_), longest);
}

void RunRecorder::Rewind() {
  absl::MutexLock lock(&mutex_);
  steps_.Rewind();
  evaluations_.Rewind();
  logs_.Rewind();
  rounds_.Rewind();
}

void RunRecorder::Acknowledge(const RecordMarks& marks) {
  absl::MutexLock lock(&mutex_);
  steps_.Acknowledge(marks.steps);
  evaluations_.Acknowledge(marks.evaluations);
  logs_.Acknowledge(marks.logs);
  rounds_.Acknowledge(marks.rounds);
}

void RunRecorder::BeginHeartbeat() {
  absl::MutexLock lock(&mutex_);
  changed_ = false;
}

void RunRecorder::Fill(HeartbeatContent& content) {
  content.progress = progress_;
  absl::MutexLock lock(&mutex_);
  content.run = run_;
  if (content.run.has_value()) {
    content.run->peak_memory_bytes = TensorBytesPeak();
  }
  int64_t room = kMostRecordBytes;
  TakeNew(steps_, room, content.steps);
  TakeNew(evaluations_, room, content.evaluations);
  TakeNew(logs_, room, content.logs);
  TakeNew(rounds_, room, content.rounds);
  content.marks = {steps_.taken(), evaluations_.taken(), logs_.taken(),
                   rounds_.taken()};
  const bool more = steps_.has_new() || evaluations_.has_new() ||
                    logs_.has_new() || rounds_.has_new();
  changed_ = changed_ || more;
  if (more && content.run.has_value() && HasEnded(*content.run)) {
    content.run->phase = phase_before_end_;
    content.run->error = absl::OkStatus();
  }
}

bool RunRecorder::running() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value() && !HasEnded(*run_);
}

void RunRecorder::OnStep(const StepVerdict& verdict, int64_t samples,
                         const std::optional<StepRecord>& record) {
  const int64_t steps_done = verdict.step + 1;
  ++total_steps_;
  if (verdict.skip) {
    ++skipped_steps_;
    Log(LogLevel::kWarn, "step was skipped on all stages",
        {{"step", steps_done}, {"why", verdict.why}});
  }
  total_samples_ += samples;
  absl::MutexLock lock(&mutex_);
  run_->step = steps_done;
  run_->samples += samples;
  if (record.has_value()) steps_.Add(*record);
}

void RunRecorder::OnEvaluation(const EvaluationRecord& record) {
  absl::MutexLock lock(&mutex_);
  evaluations_.Add(record);
}

void RunRecorder::OnFlow(const FlowTimes& flow, int64_t samples, bool last) {
  total_samples_ += samples;
  absl::MutexLock lock(&mutex_);
  run_->flow = flow;
  if (!last || samples == 0) return;
  run_->step = flow.micro_batches;
  run_->samples = flow.samples;
}

void RunRecorder::OnBatch(std::optional<absl::Duration> wall,
                          const std::vector<StageTime>& stages) {
  absl::MutexLock lock(&mutex_);
  if (wall.has_value()) {
    run_->step_seconds += absl::ToDoubleSeconds(*wall);
    ++run_->timed_steps;
  }
  std::vector<StageTime>& sums = run_->stage_times;
  if (sums.empty()) {
    sums = stages;
    return;
  }
  // A worker holds the same stages as long as the run lasts.
  for (size_t i = 0; i < sums.size() && i < stages.size(); ++i) {
    sums[i].seconds += stages[i].seconds;
    sums[i].micro_batches += stages[i].micro_batches;
    sums[i].updates += stages[i].updates;
    sums[i].skipped_updates += stages[i].skipped_updates;
    sums[i].staleness += stages[i].staleness;
    sums[i].versions = std::max(sums[i].versions, stages[i].versions);
    sums[i].version_bytes =
        std::max(sums[i].version_bytes, stages[i].version_bytes);
  }
}

void RunRecorder::OnSkippedUpdate(int64_t update, const std::string& why) {
  Log(LogLevel::kWarn, "update was skipped on this stage",
      {{"update", update}, {"why", why}});
}

void RunRecorder::OnUnreadable(int64_t samples) {
  absl::MutexLock lock(&mutex_);
  run_->unreadable_samples = samples;
}

std::vector<StageTime> RunRecorder::StageTimes() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value() ? run_->stage_times : std::vector<StageTime>();
}

std::optional<FlowTimes> RunRecorder::Flow() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value() ? run_->flow : std::nullopt;
}

void RunRecorder::OnProgress(const Instruction& done, const BatchInfo& batch) {
  ++progress_;
  if (!LogEnabled(LogLevel::kDebug)) return;
  Log(LogLevel::kDebug, "instruction done",
      {{"instruction", ToText(done)},
       {"batch", batch.ordinal},
       {"step", batch.step}});
}

void RunRecorder::OnRound(const RoundRecord& record) {
  absl::MutexLock lock(&mutex_);
  rounds_.Add(record);
}

}  // namespace paceline

#include "worker/control/run_recorder.h"

#include "core/base/tensor.h"
#include "core/base/text.h"
#include "core/obs/log.h"
#include "core/rpc/convert/report_convert.h"
#include "core/rpc/status.h"

namespace paceline {
namespace {

// The bytes of records in one heartbeat: two seconds of 1 Mbit/s.
constexpr int64_t kMostRecordBytes = 256 << 10;
// A report has so many, so that those of replicas have one in common.
constexpr int kMostMarks = 32;

// Takes new records while there is room; the last one may pass it.
template <typename Record, typename Records>
void TakeNew(RecordOutbox<Record>& outbox, int64_t& room, Records& into) {
  while (room > 0 && outbox.has_new()) {
    Record& taken = *into.Add();
    taken = outbox.TakeNew();
    room -= static_cast<int64_t>(taken.ByteSizeLong());
  }
}

bool HasEnded(const v1::RunState& run) {
  return run.phase() == v1::RunState::PHASE_DONE ||
         run.phase() == v1::RunState::PHASE_FAILED ||
         run.phase() == v1::RunState::PHASE_STOPPED;
}

// Adds what a batch took to the sums of the run.
void AddTo(v1::StageTime& sum, const v1::StageTime& time) {
  sum.set_seconds(sum.seconds() + time.seconds());
  sum.set_micro_batches(sum.micro_batches() + time.micro_batches());
  if (time.has_trace()) *sum.mutable_trace() = time.trace();
  if (!time.has_versions()) return;
  const v1::StageVersions& more = time.versions();
  v1::StageVersions& all = *sum.mutable_versions();
  all.set_stage(time.stage());
  all.set_updates(all.updates() + more.updates());
  all.set_skipped_updates(all.skipped_updates() + more.skipped_updates());
  all.set_staleness(all.staleness() + more.staleness());
  all.set_versions(std::max(all.versions(), more.versions()));
  all.set_version_bytes(std::max(all.version_bytes(), more.version_bytes()));
}

}  // namespace

void RunRecorder::Begin(const Fence& fence) {
  predicted_memory_bytes_ = 0;
  SteadyLock lock(&mutex_);
  steps_.Clear();
  run_.emplace();
  run_->set_job(fence.job.value);
  run_->set_attempt(fence.attempt);
  run_->set_plan_version(fence.plan_version);
  run_->set_phase(v1::RunState::PHASE_PREPARING);
}

void RunRecorder::Clear() {
  SteadyLock lock(&mutex_);
  run_.reset();
  evaluations_.Clear();
  rounds_.Clear();
}

void RunRecorder::AddStep(const v1::StepRecord& record) {
  SteadyLock lock(&mutex_);
  steps_.Add(record);
}

void RunRecorder::SetPhase(v1::RunState::Phase phase,
                           const absl::Status& error) {
  SteadyLock lock(&mutex_);
  if (!HasEnded(*run_)) phase_before_end_ = run_->phase();
  run_->set_phase(phase);
  SetError(error, *run_);
  changed_ = true;
}

void RunRecorder::AddNote(const std::string& note) {
  const std::string text = ToUtf8(note, kMaxNoteBytes);
  SteadyLock lock(&mutex_);
  auto& notes = *run_->mutable_notes();
  if (notes.size() < kMaxNotes &&
      std::find(notes.begin(), notes.end(), text) == notes.end()) {
    *notes.Add() = text;
  }
}

void RunRecorder::SetTotals(int64_t steps, int64_t samples,
                            const v1::NameBytes& names) {
  SteadyLock lock(&mutex_);
  run_->set_steps(steps);
  run_->set_total_samples(samples);
  *run_->mutable_names() = names;
}

void RunRecorder::AddPredicted(const v1::PredictedMark& mark) {
  SteadyLock lock(&mutex_);
  if (!run_.has_value()) return;
  auto& marks = *run_->mutable_predicted();
  if (marks.size() == kMostMarks) marks.erase(marks.begin());
  *marks.Add() = mark;
}

void RunRecorder::AddLog(v1::LogLine line) {
  line.set_text(ToUtf8(line.text(), kMaxLogTextBytes));
  SteadyLock lock(&mutex_);
  if (!run_.has_value()) return;
  line.set_sequence(++log_lines_);
  logs_.Add(std::move(line));
}

void RunRecorder::NoteChange() {
  SteadyLock lock(&mutex_);
  changed_ = true;
}

void RunRecorder::AwaitChange(absl::Duration longest) const {
  SteadyLock lock(&mutex_);
  mutex_.AwaitFor(absl::Condition(&changed_), longest);
}

void RunRecorder::Rewind() {
  SteadyLock lock(&mutex_);
  steps_.Rewind();
  evaluations_.Rewind();
  logs_.Rewind();
  rounds_.Rewind();
}

void RunRecorder::Acknowledge(const RecordMarks& marks) {
  SteadyLock lock(&mutex_);
  steps_.Acknowledge(marks.steps);
  evaluations_.Acknowledge(marks.evaluations);
  logs_.Acknowledge(marks.logs);
  rounds_.Acknowledge(marks.rounds);
}

void RunRecorder::BeginHeartbeat() {
  SteadyLock lock(&mutex_);
  changed_ = false;
}

v1::RunState RunRecorder::Run() const {
  SteadyLock lock(&mutex_);
  if (!run_.has_value()) return {};
  v1::RunState run = *run_;
  run.set_peak_memory_bytes(TensorBytesPeak());
  return run;
}

void RunRecorder::Fill(MarkedHeartbeat& content) {
  v1::Heartbeat& heartbeat = content.heartbeat;
  heartbeat.set_progress(progress_);
  SteadyLock lock(&mutex_);
  int64_t room = kMostRecordBytes;
  const bool tells_steps = run_.has_value() || heartbeat.has_kept();
  if (tells_steps) TakeNew(steps_, room, *heartbeat.mutable_steps());
  TakeNew(evaluations_, room, *heartbeat.mutable_evaluations());
  TakeNew(logs_, room, *heartbeat.mutable_logs());
  TakeNew(rounds_, room, *heartbeat.mutable_rounds());
  content.marks = {steps_.taken(), evaluations_.taken(), logs_.taken(),
                   rounds_.taken()};
  const bool more = (tells_steps && steps_.has_new()) ||
                    evaluations_.has_new() || logs_.has_new() ||
                    rounds_.has_new();
  changed_ = changed_ || more;
  if (!run_.has_value()) return;
  v1::RunState& run = *heartbeat.mutable_run();
  run = *run_;
  run.set_peak_memory_bytes(TensorBytesPeak());
  if (more && HasEnded(run)) {
    run.set_phase(phase_before_end_);
    SetError(absl::OkStatus(), run);
  }
}

bool RunRecorder::running() const {
  SteadyLock lock(&mutex_);
  return run_.has_value() && !HasEnded(*run_);
}

void RunRecorder::OnStep(const StepVerdict& verdict, int64_t samples,
                         const std::optional<v1::StepRecord>& record) {
  const int64_t steps_done = verdict.step + 1;
  ++total_steps_;
  if (verdict.skip) {
    ++skipped_steps_;
    Log(LogLevel::kWarn, "step was skipped on all stages",
        {{"step", steps_done}, {"why", verdict.why}});
  }
  total_samples_ += samples;
  SteadyLock lock(&mutex_);
  run_->set_step(steps_done);
  run_->set_samples(run_->samples() + samples);
  if (record.has_value()) steps_.Add(*record);
}

void RunRecorder::OnEvaluation(const v1::EvaluationRecord& record) {
  SteadyLock lock(&mutex_);
  evaluations_.Add(record);
}

void RunRecorder::OnFlow(const v1::FlowTimes& flow, int64_t samples,
                         bool last) {
  total_samples_ += samples;
  SteadyLock lock(&mutex_);
  *run_->mutable_flow() = flow;
  if (!last || samples == 0) return;
  run_->set_step(flow.micro_batches());
  run_->set_samples(flow.samples());
}

void RunRecorder::OnBatch(std::optional<absl::Duration> wall,
                          const std::vector<v1::StageTime>& stages) {
  SteadyLock lock(&mutex_);
  if (wall.has_value()) {
    run_->set_step_seconds(run_->step_seconds() + absl::ToDoubleSeconds(*wall));
    run_->set_timed_steps(run_->timed_steps() + 1);
  }
  // A worker holds the same stages as long as the run lasts.
  for (int i = 0; i < std::ssize(stages); ++i) {
    if (i == run_->stage_times_size()) {
      run_->add_stage_times()->set_stage(stages[i].stage());
    }
    AddTo(*run_->mutable_stage_times(i), stages[i]);
  }
}

void RunRecorder::OnSkippedUpdate(int64_t update, const std::string& why) {
  Log(LogLevel::kWarn, "update was skipped on this stage",
      {{"update", update}, {"why", why}});
}

void RunRecorder::OnUnreadable(const v1::Unreadable& unreadable) {
  SteadyLock lock(&mutex_);
  *run_->mutable_unreadable() = unreadable;
}

void RunRecorder::OnProgress(const Instruction& done, const BatchInfo& batch) {
  ++progress_;
  if (!LogEnabled(LogLevel::kDebug)) return;
  Log(LogLevel::kDebug, "instruction done",
      {{"instruction", ToText(done)},
       {"batch", batch.ordinal},
       {"step", batch.step}});
}

void RunRecorder::OnRound(const v1::RoundRecord& record) {
  SteadyLock lock(&mutex_);
  rounds_.Add(record);
}

}  // namespace paceline

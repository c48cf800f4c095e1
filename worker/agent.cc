#include "worker/agent.h"

#include <algorithm>
#include <utility>

#include "core/base/tensor_memory.h"
#include "core/obs/log.h"
#include "worker/surveyor.h"

namespace paceline {
namespace {

// Some hours of steps while the coordinator is away; then the oldest go.
constexpr size_t kMostSteps = 100'000;
constexpr size_t kMostLogs = 1'000;
constexpr size_t kMostRounds = 10'000;

// Of records in one heartbeat: two seconds of 1 Mbit/s.
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

// What is new, while there is room; the last one may pass it.
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

RunReport NewReport(const Fence& fence) {
  RunReport report;
  report.fence = fence;
  report.phase = RunPhase::kPreparing;
  return report;
}

void CancelAll(CancelToken* cancel, RunConnections* connections,
               const absl::Status& why, GroupDoor* desk = nullptr) {
  if (cancel != nullptr) cancel->Cancel(why);
  if (desk != nullptr) desk->Cancel(why);
  if (connections == nullptr) return;
  connections->link->Cancel(why);
  connections->gate->Cancel(why);
}

}  // namespace

Agent::Agent(AgentOptions options, RunFactory& factory, const Clock& clock)
    : options_(std::move(options)),
      factory_(factory),
      clock_(clock),
      time_(clock),
      steps_(kMostSteps),
      evaluations_(kMostSteps),
      logs_(kMostLogs),
      rounds_(kMostRounds),
      compute_("compute", [this] { ComputeLoop(); }) {}

Agent::~Agent() {
  std::shared_ptr<CancelToken> cancel;
  std::shared_ptr<RunConnections> connections;
  std::shared_ptr<GroupDoor> desk;
  const absl::Status why = absl::CancelledError("the worker is stopping");
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    cancel = cancel_;
    connections = connections_;
    desk = desk_;
    // A desk that comes now finds this.
    if (cancel != nullptr) cancel->Cancel(why);
  }
  CancelAll(cancel.get(), connections.get(), why, desk.get());
  connections.reset();  // the compute thread waits for that
  compute_.Join();
}

void Agent::OnWelcome(WorkerId self) {
  absl::MutexLock lock(&mutex_);
  self_ = self;
}

void Agent::OnOrder(std::optional<RunOrder> order) {
  std::shared_ptr<CancelToken> cancel;
  std::shared_ptr<RunConnections> connections;
  std::shared_ptr<GroupDoor> desk;
  std::optional<GroupOrder> group;
  absl::Status why = absl::CancelledError("the standing order has changed");
  {
    absl::MutexLock lock(&mutex_);
    const bool same_run = order.has_value() == order_.has_value() &&
                          (!order.has_value() || order->fence == order_->fence);
    if (same_run && order.has_value() && order->group.has_value()) {
      // Members come and go; the run stays.
      order_ = std::move(order);
      group = *order_->group;
    } else if (same_run &&
               (!order.has_value() || order->stages == order_->stages)) {
      return;
    } else if (same_run) {
      // A worker that executes itself anew keeps its port.  Where it could
      // not, failing loudly beats dialling an address where nobody is.
      why = absl::AbortedError(
          "a neighbour has moved to another address in the middle of the run");
    } else {
      order_is_new_ = true;
      if (!ending_since_.has_value()) ending_since_ = clock_.Now();
    }
    if (!group.has_value()) order_ = std::move(order);
    cancel = cancel_;
    connections = connections_;
    desk = desk_;
    // A desk that comes now finds this.
    if (cancel != nullptr && !group.has_value()) cancel->Cancel(why);
  }
  if (!group.has_value()) {
    CancelAll(cancel.get(), connections.get(), why, desk.get());
  } else if (desk != nullptr) {
    desk->OnGroup(*group);
  }
}

void Agent::OnMeasure(std::optional<MeasureOrder> order) {
  std::shared_ptr<CancelToken> cancel;
  {
    absl::MutexLock lock(&mutex_);
    if (order == measure_) return;
    measure_ = std::move(order);
    measure_is_new_ = true;
    measurement_.reset();
    // A run has a token of its own, and no measuring beside it.
    if (!run_.has_value()) {
      cancel = cancel_;
      if (!ending_since_.has_value()) ending_since_ = clock_.Now();
    }
  }
  CancelAll(cancel.get(), nullptr,
            absl::CancelledError("the standing order has changed"));
}

void Agent::OnAttached() {
  absl::MutexLock lock(&mutex_);
  steps_.Rewind();
  evaluations_.Rewind();
  logs_.Rewind();
  rounds_.Rewind();
}

void Agent::EndWhatIsOverdue() {
  {
    absl::MutexLock lock(&mutex_);
    if (restarting_ || !ending_since_.has_value()) return;
    if (clock_.Now() - *ending_since_ < options_.longest_end) return;
    ending_since_.reset();
  }
  Log(LogLevel::kError,
      "what was withdrawn does not end: starting anew without it",
      {{"after", absl::FormatDuration(options_.longest_end)}});
  options_.restart(options_.cpu_capability);
}

HeartbeatContent Agent::Heartbeat() {
  EndWhatIsOverdue();
  const TimeReading seconds = time_.Read();
  HeartbeatContent content;
  content.progress = progress_;
  {
    // Before it is asked: what changes from here on is told once more.
    absl::MutexLock lock(&mutex_);
    changed_ = false;
  }
  std::optional<MemberReport> member;
  if (const auto desk = this->desk(); desk != nullptr) member = desk->Report();
  absl::MutexLock lock(&mutex_);
  content.run = run_;
  if (content.run.has_value()) {
    content.run->seconds = ToTimeSplit(seconds);
    content.run->peak_memory_bytes = TensorBytesPeak();
    if (desk_ != nullptr) content.run->member = std::move(member);
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
  content.restarting = restarting_;
  content.stopping = leaving_;
  content.measurement = measurement_;
  return content;
}

void Agent::AwaitChange(absl::Duration longest) const {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&changed_), longest);
}

void Agent::OnAck(const RecordMarks& marks) {
  absl::MutexLock lock(&mutex_);
  steps_.Acknowledge(marks.steps);
  evaluations_.Acknowledge(marks.evaluations);
  logs_.Acknowledge(marks.logs);
  rounds_.Acknowledge(marks.rounds);
}

void Agent::AnnounceRestart() {
  absl::MutexLock lock(&mutex_);
  restarting_ = true;
  changed_ = true;
}

void Agent::AnnounceStop() {
  absl::MutexLock lock(&mutex_);
  leaving_ = true;
  changed_ = true;
}

void Agent::AddLog(LogRecord record) {
  absl::MutexLock lock(&mutex_);
  if (!run_.has_value()) return;
  record.origin_sequence = ++log_lines_;
  logs_.Add(std::move(record));
}

bool Agent::running() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value() && (run_->phase == RunPhase::kPreparing ||
                              run_->phase == RunPhase::kRunning);
}

void Agent::OnStep(const StepVerdict& verdict, int64_t samples,
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

void Agent::OnEvaluation(const EvaluationRecord& record) {
  absl::MutexLock lock(&mutex_);
  evaluations_.Add(record);
}

void Agent::OnFlow(const FlowTimes& flow, int64_t samples, bool last) {
  total_samples_ += samples;
  absl::MutexLock lock(&mutex_);
  run_->flow = flow;
  if (!last || samples == 0) return;
  run_->step = flow.micro_batches;
  run_->samples = flow.samples;
}

void Agent::OnBatch(std::optional<absl::Duration> wall,
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

void Agent::OnSkippedUpdate(int64_t update, const std::string& why) {
  Log(LogLevel::kWarn, "update was skipped on this stage",
      {{"update", update}, {"why", why}});
}

void Agent::OnUnreadable(int64_t samples) {
  absl::MutexLock lock(&mutex_);
  run_->unreadable_samples = samples;
}

std::vector<StageTime> Agent::StageTimes() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value() ? run_->stage_times : std::vector<StageTime>();
}

std::optional<FlowTimes> Agent::Flow() const {
  absl::MutexLock lock(&mutex_);
  return run_.has_value() ? run_->flow : std::nullopt;
}

void Agent::OnProgress(const Instruction& done, const BatchInfo& batch) {
  ++progress_;
  if (!LogEnabled(LogLevel::kDebug)) return;
  Log(LogLevel::kDebug, "instruction done",
      {{"instruction", ToText(done)},
       {"batch", batch.ordinal},
       {"step", batch.step}});
}

Agent::Work Agent::AwaitWork() {
  const auto changed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || order_is_new_ || measure_is_new_;
  };
  for (;;) {
    bool run_is_new = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&changed));
      run_is_new = stopping_ || order_is_new_;
    }
    if (run_is_new) CloseRun();
    absl::MutexLock lock(&mutex_);
    if (stopping_) return {};
    ending_since_.reset();
    const bool begin =
        std::exchange(order_is_new_, false) && order_.has_value();
    const bool measure =
        std::exchange(measure_is_new_, false) && measure_.has_value();
    if (begin) {
      cancel_ = std::make_shared<CancelToken>();
      run_ = NewReport(order_->fence);
      return {order_, std::nullopt};
    }
    if (measure && !order_.has_value()) {
      cancel_ = std::make_shared<CancelToken>();
      return {std::nullopt, measure_};
    }
  }
}

// The next run may open only when this one is closed, and whoever cancels it
// may be the last to hold it.
void Agent::CloseRun() {
  std::shared_ptr<RunConnections> connections;
  std::shared_ptr<absl::Notification> closed;
  {
    absl::MutexLock lock(&mutex_);
    connections = std::move(connections_);
    closed = std::move(closed_);
    cancel_.reset();
    run_.reset();
    steps_.Clear();
    evaluations_.Clear();
    rounds_.Clear();
  }
  connections.reset();
  if (closed != nullptr) closed->WaitForNotification();
}

void Agent::ComputeLoop() {
  for (;;) {
    const Work work = AwaitWork();
    if (work.run.has_value()) {
      Run(*work.run);
    } else if (work.measure.has_value()) {
      Measure(*work.measure);
    } else {
      return;
    }
  }
}

void Agent::Run(const RunOrder& order) {
  const Fence& fence = order.fence;
  Log(LogLevel::kInfo, "run begins",
      {{"job", fence.job.value},
       {"attempt", fence.attempt},
       {"plan", fence.plan_version}});
  time_.Restart();
  BeginTensorPeak();
  predicted_memory_bytes_ = 0;
  const absl::Status status = RunJob(order);
  time_.Stop();

  const std::initializer_list<LogField> fields = {
      {"job", fence.job.value},
      {"attempt", fence.attempt},
      {"plan", fence.plan_version},
      {"status", status.ToString()}};
  if (status.ok()) {
    Log(LogLevel::kInfo, "run is done", fields);
    SetPhase(RunPhase::kDone);
  } else if (absl::IsCancelled(status)) {
    Log(LogLevel::kInfo, "run was ended", fields);
  } else {
    Log(LogLevel::kError, "run failed", fields);
    SetPhase(RunPhase::kFailed, status);
  }
}

void Agent::Measure(const MeasureOrder& order) {
  if (order.layers.has_value() && NeedsRestart(order.cpu_capability)) return;
  std::shared_ptr<CancelToken> cancel;
  {
    absl::MutexLock lock(&mutex_);
    cancel = cancel_;
  }
  Measurement measurement =
      CarryOut(order,
               {options_.name, options_.cpu_capability, options_.cpu_model,
                options_.memory_bytes, options_.prober, factory_, clock_},
               *cancel);
  Log(LogLevel::kInfo, "measured",
      {{"measurement", order.id},
       {"what", order.link.has_value() ? order.link->name : "layers"},
       {"status", measurement.error.ToString()}});
  absl::MutexLock lock(&mutex_);
  if (measure_ != order) return;  // withdrawn meanwhile
  measurement_ = std::move(measurement);
  changed_ = true;
}

void Agent::SetPhase(RunPhase phase, absl::Status error) {
  absl::MutexLock lock(&mutex_);
  if (!HasEnded(*run_)) phase_before_end_ = run_->phase;
  run_->phase = phase;
  run_->error = std::move(error);
  changed_ = true;
}

bool Agent::NeedsRestart(const std::string& capability) {
  if (capability == options_.cpu_capability) return false;
  Log(LogLevel::kInfo, "starting anew at another CPU capability",
      {{"from", options_.cpu_capability}, {"to", capability}});
  options_.restart(capability);
  return true;
}

}  // namespace paceline

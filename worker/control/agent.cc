#include "worker/control/agent.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/time/clock.h"
#include "core/base/errors.h"
#include "core/base/tensor.h"
#include "core/data/data_sets.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
#include "core/obs/log.h"
#include "core/os/files.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/convert/report_convert.h"
#include "worker/control/run_order.h"

namespace paceline {
namespace {

// Between two heartbeats that only say which pieces are held.
constexpr absl::Duration kPiecesPause = absl::Milliseconds(10);
// After a break all workers have dialled the coordinator again by then: between
// two tries the client and gRPC wait up to 2 s each.
constexpr absl::Duration kLongestReturn = absl::Seconds(5);
// The files of so many jobs that failed here are looked at again, for so long:
// nobody tells a worker that a job is over.
constexpr size_t kMostFailed = 8;
constexpr absl::Duration kLooksFor = absl::Hours(7 * 24);

size_t StampOf(const std::vector<std::string>& files) {
  size_t stamp = 0;
  for (const std::string& file : files) {
    if (!file.empty()) stamp = absl::HashOf(stamp, paceline::StampOf(file));
  }
  return stamp;
}

}  // namespace

Agent::Agent(AgentOptions options, RunFactory& factory, const Clock& clock)
    : options_(std::move(options)),
      factory_(factory),
      clock_(clock),
      time_(clock),
      listener_(options_.pieces == nullptr
                    ? -1
                    : options_.pieces->Listen([this] { OnPieces(); })),
      compute_("compute", [this] { ComputeLoop(); }) {}

Agent::~Agent() {
  if (options_.pieces != nullptr) options_.pieces->Unlisten(listener_);
  const absl::Status why = Cancelled("the worker is stopping");
  WorkerRun* run = nullptr;
  {
    SteadyLock lock(&mutex_);
    stopping_ = true;
    // A run that comes now finds this.
    if (cancel_ != nullptr) cancel_->Cancel(why);
    run = BorrowRun();
  }
  if (run != nullptr) {
    run->Cancel(why);
    ReturnRun();
  }
  compute_.Join();
}

void Agent::OnWelcome(WorkerId self) {
  SteadyLock lock(&mutex_);
  self_ = self;
}

void Agent::JudgeKeptLocked(const KeepOrder& order) {
  if (!kept_.has_value()) return;
  const JobId job{kept_->job()};
  const auto rule = order.keep.find(job);
  const auto finish = order.finish.find(job);
  if (rule == order.keep.end() ||
      (!rule->second.rows.empty() &&
       rule->second.rows.back().attempt > kept_->attempt())) {
    drops_kept_ = true;
  } else if (finish != order.finish.end()) {
    finish_ = finish->second;
  }
}

void Agent::TendKept() {
  std::optional<FinishOrder> finish;
  bool drops = false;
  {
    SteadyLock lock(&mutex_);
    finish.swap(finish_);
    drops = std::exchange(drops_kept_, false) || next_ == WorkStep::kBegin;
    if (drops) kept_.reset();
  }
  if (drops) left_.reset();
  if (left_ == nullptr || !finish.has_value()) return;
  v1::KeptState kept = left_->Finish(*finish);
  {
    SteadyLock lock(&mutex_);
    kept_ = std::move(kept);
  }
  recorder_.NoteChange();
}

void Agent::OnKeep(const KeepOrder& order) {
  if (options_.pieces == nullptr) return;
  {
    SteadyLock lock(&mutex_);
    JudgeKeptLocked(order);
    floors_.clear();
    for (const auto& [job, rule] : order.keep) {
      if (rule.floor.has_value()) floors_.insert(job);
    }
  }
  options_.pieces->OnKeep(order.keep, clock_.Now());
  {
    // Nobody waits to hear that old pieces are gone.
    SteadyLock lock(&mutex_);
    pieces_are_new_ = true;
  }
  options_.exchange->Follow(order.follow);
}

void Agent::OnAttached() {
  recorder_.Rewind();
  {
    SteadyLock lock(&mutex_);
    pieces_are_new_ = true;
    if (was_detached_) returned_ = clock_.Now();
  }
  // The coordinator may wait to hear what this process holds.
  recorder_.NoteChange();
}

void Agent::OnDetached() {
  SteadyLock lock(&mutex_);
  floors_.clear();
  was_detached_ = true;
}

// A coordinator that stood still has lost all streams; it computes no floor
// before the others are back.
bool Agent::OthersAreBack() const {
  return clock_.Now() - returned_ >= kLongestReturn;
}

void Agent::OnAck(const RecordMarks& marks) {
  recorder_.Acknowledge(marks);
  const Instant now = clock_.Now();
  {
    SteadyLock lock(&mutex_);
    acknowledged_ = now;
  }
  if (options_.pieces != nullptr) options_.pieces->OnAcknowledged(now);
}

void Agent::OnPieces() {
  {
    SteadyLock lock(&mutex_);
    pieces_are_new_ = true;
  }
  recorder_.NoteChange();
}

void Agent::AwaitChange(absl::Duration longest) const {
  recorder_.AwaitChange(longest);
  absl::Duration pause;
  {
    SteadyLock lock(&mutex_);
    if (pieces_are_new_) pause = pieces_said_ + kPiecesPause - clock_.Now();
  }
  absl::SleepFor(std::min(pause, kPiecesPause));
}

void Agent::AddPieces(v1::PiecesHeld& held) const {
  const PieceStore& store = *options_.pieces;
  held.set_refused(store.stats().refused_lately);
  for (const auto& [job, cuts] : store.Holdings()) {
    v1::PiecesHeld::OfJob& of_job = *held.add_jobs();
    of_job.set_job(job.value);
    if (const std::optional<Cut> floor = store.Floor(job)) {
      Write(*floor, *of_job.mutable_floor());
    }
    for (const auto& [cut, layers] : cuts) {
      v1::PiecesHeld::HeldCut& into = *of_job.add_cuts();
      Write(cut, *into.mutable_cut());
      WriteAll(layers, *into.mutable_layers());
    }
  }
}

void Agent::OnOrder(std::optional<RunOrder> order, OrderNumber number) {
  WorkerRun* run = nullptr;
  bool stop = false;
  std::optional<GroupOrder> group;
  absl::Status why;  // not OK: what the compute thread is at shall end
  {
    SteadyLock lock(&mutex_);
    const WorkStep step = state_.OnOrder(
        number, order.has_value() ? std::optional(order->fence) : std::nullopt);
    if (step != WorkStep::kNothing) {
      SetNext(step);
      if (!ending_since_.has_value()) ending_since_ = clock_.Now();
      why = Cancelled("the standing order has changed");
    } else if (!state_.GoesOn()) {
      recorder_.NoteChange();
    } else if (order->group.has_value()) {
      // Members come and go; the run stays.
      group = *order->group;
    } else if (order->stages == order_->stages) {
      stop = order->stop_after_batch;
    } else {
      // A worker that executes itself anew keeps its port.  Where it could
      // not, failing loudly beats dialling an address where nobody is.
      why = Aborted(
          "a neighbour has moved to another address in the middle of the run");
    }
    order_ = std::move(order);
    // A run that comes now finds this.
    if (!why.ok() && cancel_ != nullptr) cancel_->Cancel(why);
    // The order before this one began it: a run of this order may begin as soon
    // as the lock is let go.
    if (!why.ok() || stop || group.has_value()) run = BorrowRun();
  }
  if (run == nullptr) return;
  if (group.has_value()) {
    run->OnGroup(*group);
  } else if (stop) {
    run->OnStop();
  } else {
    run->Cancel(why);
  }
  ReturnRun();
}

bool Agent::IsOrdered(int64_t measurement) const {
  return measure_.has_value() && measure_->id() == measurement;
}

void Agent::OnMeasure(std::optional<v1::MeasureOrder> order) {
  SteadyLock lock(&mutex_);
  if (order.has_value() ? IsOrdered(order->id()) : !measure_.has_value()) {
    return;
  }
  measure_ = std::move(order);
  measure_is_new_ = true;
  measurement_.reset();
  // A run has a token of its own, and no measuring beside it.
  if (cancel_is_runs_) return;
  if (!ending_since_.has_value()) ending_since_ = clock_.Now();
  if (cancel_ != nullptr) {
    cancel_->Cancel(Cancelled("the standing order has changed"));
  }
}

void Agent::EndWhatIsOverdue() {
  {
    SteadyLock lock(&mutex_);
    if (end_ == WorkerEnd::kRestarting || !ending_since_.has_value()) return;
    if (clock_.Now() - *ending_since_ < options_.longest_end) return;
    ending_since_.reset();
  }
  Log(LogLevel::kError,
      "what was withdrawn does not end: starting anew without it",
      {{"after", absl::FormatDuration(options_.longest_end)}});
  options_.restart(options_.cpu_capability);
}

MarkedHeartbeat Agent::Heartbeat() {
  EndWhatIsOverdue();
  const v1::TimeSplit seconds = time_.Read();
  MarkedHeartbeat content;
  v1::Heartbeat& heartbeat = content.heartbeat;
  // Before anything is asked: what changes from here on is told once more.
  recorder_.BeginHeartbeat();
  WorkerRun* run = nullptr;
  bool says_pieces = false;
  {
    SteadyLock lock(&mutex_);
    run = BorrowRun();
    heartbeat.set_restarting(end_ == WorkerEnd::kRestarting);
    heartbeat.set_stopping(end_ == WorkerEnd::kStopping);
    heartbeat.set_leaving(end_ == WorkerEnd::kLeaving);
    Write(state_.echo(), *heartbeat.mutable_echo());
    says_pieces =
        options_.pieces != nullptr && std::exchange(pieces_are_new_, false);
    if (says_pieces) pieces_said_ = clock_.Now();
    if (kept_.has_value()) *heartbeat.mutable_kept() = *kept_;
    for (const JobId job : repaired_) heartbeat.add_repaired_jobs(job.value);
    if (measurement_.has_value()) {
      *heartbeat.mutable_measurement() = *measurement_;
    }
  }
  std::optional<MemberReport> member;
  std::map<WorkerId, int64_t> sent;
  if (run != nullptr) {
    member = run->Member();
    sent = run->SentBytes();
    ReturnRun();
  }
  recorder_.Fill(content);
  // After the echo was taken: what is deposited in between is told already.
  if (says_pieces) AddPieces(*heartbeat.mutable_pieces());
  if (heartbeat.has_run()) {
    *heartbeat.mutable_run()->mutable_seconds() = seconds;
    heartbeat.mutable_run()->set_energy_joules(energy_.Joules());
    for (const auto& [neighbour, bytes] : sent) {
      v1::SentBytes& to = *heartbeat.mutable_run()->add_sent();
      to.set_worker_id(neighbour.value);
      to.set_bytes(bytes);
    }
    if (member.has_value()) {
      *heartbeat.mutable_run()->mutable_member() = ToProto(*member);
    }
  }
  return content;
}

void Agent::Announce(WorkerEnd end) {
  {
    SteadyLock lock(&mutex_);
    end_ = end;
  }
  recorder_.NoteChange();
}

RoundReading Agent::Rounds() const {
  SteadyLock lock(&mutex_);  // a run that ends now is counted once
  RoundReading reading;
  if (run_ != nullptr) reading = run_->Rounds();
  reading.stats.AddCounts(closed_rounds_);
  return reading;
}

void Agent::SetNext(WorkStep step) {
  next_ = step;
  if (step == WorkStep::kLeave) return;
  if (step == WorkStep::kBegin) recorder_.Begin(*state_.run());
  recorder_.NoteChange();
}

WorkerRun* Agent::BorrowRun() {
  if (run_ != nullptr) ++users_;
  return run_.get();
}

void Agent::ReturnRun() {
  SteadyLock lock(&mutex_);
  --users_;
}

void Agent::ComputeLoop() {
  for (;;) {
    const Work work = AwaitWork();
    if (work.run.has_value()) {
      Run(*work.run, *work.cancel);
    } else if (work.measure.has_value()) {
      Measure(*work.measure, *work.cancel);
    } else {
      left_.reset();
      return;
    }
  }
}

Agent::Work Agent::AwaitWork() {
  const auto changed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || next_ != WorkStep::kNothing || measure_is_new_ ||
           finish_.has_value() || drops_kept_;
  };
  for (;;) {
    const absl::Duration longest =
        failed_.empty() ? absl::InfiniteDuration() : options_.look_period;
    bool leaves = false;
    bool looks = false;
    {
      SteadyLock lock(&mutex_);
      looks = !mutex_.AwaitFor(absl::Condition(&changed), longest);
      leaves = stopping_ || next_ == WorkStep::kLeave;
    }
    if (looks) LookAtFailed();
    if (leaves) CloseRun();
    TendKept();
    SteadyLock lock(&mutex_);
    if (!leaves && (stopping_ || next_ == WorkStep::kLeave)) continue;
    if (stopping_) return {};
    ending_since_.reset();
    if (leaves) SetNext(state_.OnLeft());
    const bool begin =
        std::exchange(next_, WorkStep::kNothing) == WorkStep::kBegin;
    const bool measure =
        std::exchange(measure_is_new_, false) && measure_.has_value();
    if (!begin && (!measure || order_.has_value())) continue;
    cancel_ = std::make_shared<CancelToken>();
    cancel_is_runs_ = begin;
    if (!begin) return {std::nullopt, measure_, cancel_};
    return {order_, std::nullopt, cancel_};
  }
}

void Agent::LookAtFailed() {
  const Instant now = clock_.Now();
  std::erase_if(failed_, [now](const auto& each) {
    return now - each.second.since >= kLooksFor;
  });
  std::set<JobId> repaired;
  for (const auto& [job, failed] : failed_) {
    if (StampOf(failed.files) != failed.stamp) repaired.insert(job);
  }
  {
    SteadyLock lock(&mutex_);
    if (repaired == repaired_) return;
    repaired_ = std::move(repaired);
  }
  recorder_.NoteChange();
}

// The next run may open only when this one is closed, and nobody may still be
// at this one.  From the first moment on nobody hears of it.
void Agent::CloseRun() {
  const auto unused = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return users_ == 0;
  };
  recorder_.Clear();
  std::unique_ptr<WorkerRun> run;
  {
    SteadyLock lock(&mutex_);
    mutex_.Await(absl::Condition(&unused));
    run = std::move(run_);
    if (run != nullptr) closed_rounds_.AddCounts(run->Rounds().stats);
    cancel_.reset();
    cancel_is_runs_ = false;
  }
  if (run == nullptr) return;
  std::optional<v1::KeptState> kept = run->Leave();
  if (kept.has_value()) left_ = std::move(run);
  SteadyLock lock(&mutex_);
  kept_ = std::move(kept);
}

void Agent::Run(const RunOrder& order, const CancelToken& cancel) {
  const Fence& fence = order.fence;
  Log(LogLevel::kInfo, "run begins",
      {{"job", fence.job.value},
       {"attempt", fence.attempt},
       {"plan", fence.plan_version}});
  time_.Restart();
  BeginTensorPeak();
  energy_.Begin();
  // A member of a group reads all files.  This stage of a pipeline may not read
  // those that another one lacked here.
  if (order.group.has_value()) failed_.erase(fence.job);
  {
    SteadyLock lock(&mutex_);
    repaired_.erase(fence.job);
  }
  // Before it opens them: what is repaired meanwhile is seen.
  FailedRun run;
  for (auto& [key, path] : FilesOf(order.spec)) run.files.push_back(path);
  run.stamp = StampOf(run.files);
  const absl::Status status = RunJob(order, cancel);
  time_.Stop();

  const std::initializer_list<LogField> fields = {
      {"job", fence.job.value},
      {"attempt", fence.attempt},
      {"plan", fence.plan_version},
      {"status", status.ToString()}};
  if (status.ok()) {
    const bool stopped = recorder_.Run().stopped_at() > 0;
    Log(LogLevel::kInfo, stopped ? "run has stopped" : "run is done", fields);
    recorder_.SetPhase(stopped ? v1::RunState::PHASE_STOPPED
                               : v1::RunState::PHASE_DONE);
  } else if (absl::IsCancelled(status)) {
    Log(LogLevel::kInfo, "run was ended", fields);
  } else {
    Log(LogLevel::kError, "run failed", fields);
    // Neither is for want of a file.
    if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) {
      run.since = clock_.Now();
      failed_[fence.job] = std::move(run);
      if (failed_.size() > kMostFailed) failed_.erase(failed_.begin());
    }
    recorder_.SetPhase(v1::RunState::PHASE_FAILED, status);
  }
}

// The level that the variables ask for and the level that a library takes may
// differ, for instance when a build lacks these kernels or a CPU hides them.
// The job's bytes depend on the level.  The job therefore fails and does not
// compute at another one.
absl::Status Agent::CheckActiveCapability(const RunOrder& order) const {
  if (options_.active_capability.empty() ||
      options_.active_capability == order.cpu_capability) {
    return absl::OkStatus();
  }
  return FailedPrecondition(
      "the job computes with cpu_capability ", order.cpu_capability,
      ", but this worker's kernels run at ", options_.active_capability,
      ": submit it with --set cpu_capability=", options_.active_capability,
      ", or stop this worker");
}

absl::Status Agent::RunJob(const RunOrder& order, const CancelToken& cancel) {
  PACELINE_RETURN_IF_ERROR(CheckSpecOfOrder(order.spec));
  WorkerId self;
  {
    SteadyLock lock(&mutex_);
    self = self_;
    // A member of a group may come back to it.
    if (!order.group.has_value()) PACELINE_RETURN_IF_ERROR(state_.CheckNew());
  }
  PACELINE_ASSIGN_OR_RETURN(ModelDescription model, DescribeModel(order.spec));
  const bool in_group = order.group.has_value();
  PACELINE_RETURN_IF_ERROR(in_group
                               ? CheckGroupOrder(order, model, self).status()
                               : CheckOrder(order, model, self));
  if (NeedsRestart(order.cpu_capability)) {
    return Cancelled("the process is starting anew");
  }
  PACELINE_RETURN_IF_ERROR(CheckActiveCapability(order));
  RunContext context{order,
                     std::move(model),
                     self,
                     factory_,
                     clock_,
                     time_,
                     recorder_,
                     cancel,
                     options_.memory_bytes,
                     options_.fault_actions,
                     options_.restart,
                     options_.pieces,
                     options_.exchange,
                     [this, job = order.fence.job] {
                       SteadyLock lock(&mutex_);
                       return floors_.contains(job) && OthersAreBack()
                                  ? acknowledged_
                                  : Instant{-absl::InfiniteDuration()};
                     }};
  std::unique_ptr<WorkerRun> made = in_group
                                        ? MakeGroupRun(std::move(context))
                                        : MakePipelineRun(std::move(context));
  WorkerRun& run = *made;
  {
    SteadyLock lock(&mutex_);
    run_ = std::move(made);
    // A view of the group may have arrived in the meantime.
    const bool same = order_.has_value() && order_->fence == order.fence;
    if (same && order_->group.has_value()) run.OnGroup(*order_->group);
    if (same && order_->stop_after_batch) run.OnStop();
  }
  return run.Run();
}

void Agent::Measure(const v1::MeasureOrder& order, const CancelToken& cancel) {
  if (order.has_layers() && NeedsRestart(order.layers().cpu_capability())) {
    return;
  }
  v1::Measurement measurement = options_.measure(order, cancel);
  Log(LogLevel::kInfo, "measured",
      {{"measurement", order.id()},
       {"what", order.has_link() ? order.link().name() : "layers"},
       {"status", ErrorOf(measurement).ToString()}});
  {
    SteadyLock lock(&mutex_);
    if (!IsOrdered(order.id())) return;  // withdrawn meanwhile
    measurement_ = std::move(measurement);
  }
  recorder_.NoteChange();
}

bool Agent::NeedsRestart(const std::string& capability) {
  if (capability == options_.cpu_capability) return false;
  Log(LogLevel::kInfo, "starting anew at another CPU capability",
      {{"from", options_.cpu_capability}, {"to", capability}});
  options_.restart(capability);
  return true;
}

}  // namespace paceline

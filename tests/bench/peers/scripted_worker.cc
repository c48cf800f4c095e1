#include "tests/bench/peers/scripted_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"

namespace paceline {

namespace {

// Half a second in which the worker did a step of eight micro-batches.
void AddStep(v1::RunState& run, v1::Heartbeat& beat) {
  constexpr double kBeat = 0.5;
  run.set_step(run.step() + 1);
  run.set_steps(1'000'000);
  v1::TimeSplit& time = *run.mutable_seconds();
  for (const auto set :
       {&v1::TimeSplit::set_forward, &v1::TimeSplit::set_backward,
        &v1::TimeSplit::set_receive_wait, &v1::TimeSplit::set_send,
        &v1::TimeSplit::set_optimizer}) {
    (time.*set)(0.19 * kBeat * static_cast<double>(run.step()));
  }
  time.set_wall(kBeat * static_cast<double>(run.step()));
  if (run.stage_times().empty()) return;
  v1::StageTime& stage = *run.mutable_stage_times(0);
  stage.set_seconds(0.37 * kBeat * static_cast<double>(run.step()));
  stage.set_micro_batches(8 * run.step());
  v1::BatchTrace& trace = *stage.mutable_trace();
  trace.Clear();
  trace.set_step(run.step());
  trace.set_begin_unix_us(absl::ToUnixMicros(SystemClock().Today()));
  for (int i = 0; i < 16; ++i) {
    trace.mutable_ops()->push_back(i % 2 == 0 ? 'F' : 'B');
    trace.add_micro_batches(i / 2);
    trace.add_begin_us(31'000 * i);
    trace.add_us(11'000 + i);
  }
  if (stage.stage() > 0) return;
  v1::StepRecord& record = *beat.add_steps();
  record.set_step(run.step());
  record.set_loss(1.0 / static_cast<double>(run.step()));
  record.set_samples(64);
  record.set_unix_ms(absl::ToUnixMillis(SystemClock().Today()));
}

}  // namespace

// One life of the control stream.  gRPC may call back before a start of an
// operation returns, so that none is started under the lock.
class ScriptedWorker::Stream final
    : public grpc::ClientBidiReactor<v1::WorkerMessage,
                                     v1::CoordinatorMessage> {
 public:
  explicit Stream(ScriptedWorker& worker) : worker_(worker) {}

  // Once, without the lock.
  void Open(const std::shared_ptr<grpc::Channel>& channel,
            uint64_t incarnation) {
    v1::Registration& hello = *out_.mutable_registration();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_name(absl::StrCat("bench-", worker_.number_));
    hello.set_machine_id(hello.name());
    hello.set_incarnation(incarnation);
    hello.set_address(absl::StrCat("127.0.0.1:", 20'000 + worker_.number_));
    hello.set_pid(1'000 + worker_.number_);
    hello.set_cpu_capability("default");
    hello.set_architecture("x86_64");
    hello.set_memory_bytes(int64_t{4} << 30);
    hello.set_cores(4);
    v1::Coordinator::NewStub(channel)->async()->Attach(&context_, this);
    AddHold();  // until nothing can be read, nor is written, any more
    StartWrite(&out_);
    StartRead(&in_);
    StartCall();
  }

  void Cancel() { context_.TryCancel(); }

  // Whether Send() is to be called, once.  The worker's mutex is held, here and
  // below; clang cannot tell that it is its caller's.
  bool Prepare() {
    worker_.mutex_.AssertHeld();
    if (writing_ || dead_ || !worker_.welcomed_) return false;
    out_.Clear();
    v1::Heartbeat& beat = *out_.mutable_heartbeat();
    beat.set_sequence(++sequence_);
    *beat.mutable_echo() = worker_.echo_;
    if (worker_.run_.job() > 0) {
      if (worker_.computes_) AddStep(worker_.run_, beat);
      *beat.mutable_run() = worker_.run_;
    }
    if (sequence_ == 1) beat.mutable_pieces();
    if (std::exchange(worker_.news_, false)) worker_.said_at_ = SteadyNow();
    writing_ = true;
    return true;
  }
  void Send() { StartWrite(&out_); }

  // gRPC calls no more.
  bool ended() const {
    worker_.mutex_.AssertHeld();
    return ended_;
  }

 private:
  void OnWriteDone(bool ok) override {
    bool again = false;
    bool last = false;
    {
      absl::MutexLock lock(&worker_.mutex_);
      writing_ = false;
      again = ok && worker_.news_ && Prepare();
      last = dead_ && !again;
    }
    if (again) Send();
    if (last) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    bool send = false;
    bool last = false;
    {
      absl::MutexLock lock(&worker_.mutex_);
      if (!ok) {
        dead_ = true;
        last = !writing_;
        worker_.welcomed_ = false;
      } else if (!worker_.stopped_ && in_.has_welcome()) {
        worker_.welcomed_ = true;
        send = Prepare();
      } else if (!worker_.stopped_ && in_.has_order()) {
        TakeOrder(in_.order());
        send = Prepare();
      }
    }
    if (ok && in_.has_order()) worker_.on_order_(worker_.number_, in_.order());
    if (send) Send();
    if (ok) StartRead(&in_);
    if (last) RemoveHold();
  }

  void TakeOrder(const v1::StandingOrder& order)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(worker_.mutex_) {
    v1::RunState& run = worker_.run_;
    worker_.echo_ = order.number();
    worker_.news_ = true;
    if (!order.has_run()) return run.Clear();
    if (run.job() == order.run().job() &&
        run.attempt() == order.run().attempt()) {
      return;
    }
    run.Clear();
    run.set_job(order.run().job());
    run.set_attempt(order.run().attempt());
    run.set_plan_version(order.run().plan_version());
    run.set_phase(v1::RunState::PHASE_RUNNING);
    run.set_step(order.run().base().step());
    const std::string name = absl::StrCat("bench-", worker_.number_);
    for (const v1::StagePlacement& stage : order.run().stages()) {
      if (stage.worker_name() == name) {
        run.add_stage_times()->set_stage(stage.stage());
      }
    }
  }

  void OnDone(const grpc::Status& /*status*/) override {
    absl::MutexLock lock(&worker_.mutex_);
    ended_ = true;
  }

  ScriptedWorker& worker_;  // outlives us
  grpc::ClientContext context_;
  v1::CoordinatorMessage in_;
  v1::WorkerMessage out_;  // of whoever has set writing_
  bool writing_ ABSL_GUARDED_BY(worker_.mutex_) = true;
  bool dead_ ABSL_GUARDED_BY(worker_.mutex_) = false;  // nothing can be read
  bool ended_ ABSL_GUARDED_BY(worker_.mutex_) = false;
  int64_t sequence_ ABSL_GUARDED_BY(worker_.mutex_) = 0;
};

ScriptedWorker::ScriptedWorker(std::string coordinator, int number,
                               OnOrder on_order)
    : coordinator_(std::move(coordinator)),
      number_(number),
      on_order_(std::move(on_order)) {}

ScriptedWorker::~ScriptedWorker() {
  Stop();
  Wait();
}

void ScriptedWorker::Start() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = false;
    channel_ = MakeChannel(coordinator_);
    incarnation_ =
        static_cast<uint64_t>(absl::ToUnixNanos(SystemClock().Today())) +
        number_;
    echo_.Clear();
    run_.Clear();
    news_ = false;
  }
  Beat();
}

void ScriptedWorker::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  welcomed_ = false;
  if (stream_ != nullptr) stream_->Cancel();
}

void ScriptedWorker::Wait() {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stream_ == nullptr || stream_->ended();
  };
  mutex_.Await(absl::Condition(&ended));
  DropEnded();
  channel_.reset();
}

void ScriptedWorker::DropEnded() {
  if (stream_ != nullptr && stream_->ended()) stream_.reset();
}

// A stream that ended before its time is opened again here.
void ScriptedWorker::Beat() {
  Stream* stream = nullptr;
  std::shared_ptr<grpc::Channel> channel;
  uint64_t incarnation = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    DropEnded();
    if (stream_ == nullptr) {
      stream_ = std::make_unique<Stream>(*this);
      channel = channel_;
      incarnation = incarnation_;
    } else if (!stream_->Prepare()) {
      return;
    }
    stream = stream_.get();
  }
  channel != nullptr ? stream->Open(channel, incarnation) : stream->Send();
}

void ScriptedWorker::FailRun(int64_t step) {
  {
    absl::MutexLock lock(&mutex_);
    if (run_.job() == 0) return;
    run_.set_step(step);
    run_.set_phase(v1::RunState::PHASE_FAILED);
    run_.set_error_code(static_cast<int>(absl::StatusCode::kUnavailable));
    run_.set_error_message("a neighbour is gone");
    news_ = true;
  }
  Beat();
}

void ScriptedWorker::Compute() {
  absl::MutexLock lock(&mutex_);
  computes_ = true;
}

bool ScriptedWorker::welcomed() const {
  absl::MutexLock lock(&mutex_);
  return welcomed_;
}

Instant ScriptedWorker::said_at() const {
  absl::MutexLock lock(&mutex_);
  return said_at_;
}

}  // namespace paceline

#include "tests/bench/scripted_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/rpc/channel.h"

namespace paceline {

struct ScriptedWorker::State {
  // Constant after construction.
  std::string coordinator;
  int number = 0;
  OnOrder on_order;

  mutable absl::Mutex mutex;
  std::shared_ptr<grpc::Channel> channel ABSL_GUARDED_BY(mutex);
  uint64_t incarnation ABSL_GUARDED_BY(mutex) = 0;
  Stream* stream ABSL_GUARDED_BY(mutex) = nullptr;  // owns itself
  bool welcomed ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = true;
  v1::OrderNumber echo ABSL_GUARDED_BY(mutex);
  v1::RunState run ABSL_GUARDED_BY(mutex);  // without a job: none
  bool news ABSL_GUARDED_BY(mutex) = false;
  absl::Time said_at ABSL_GUARDED_BY(mutex);
};

// One life of the control stream; deletes itself at its end.  gRPC may call
// back before a start of an operation returns, so that none is started under
// the lock.
class ScriptedWorker::Stream final
    : public grpc::ClientBidiReactor<v1::WorkerMessage,
                                     v1::CoordinatorMessage> {
 public:
  explicit Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Once, without the lock.
  void Open(const std::shared_ptr<grpc::Channel>& channel,
            uint64_t incarnation) {
    v1::Registration& hello = *out_.mutable_registration();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_name(absl::StrCat("bench-", state_->number));
    hello.set_machine_id(hello.name());
    hello.set_incarnation(incarnation);
    hello.set_address(absl::StrCat("127.0.0.1:", 20'000 + state_->number));
    hello.set_pid(1'000 + state_->number);
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

  // Whether Send() is to be called, once.
  bool Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    if (writing_ || dead_ || !state_->welcomed) return false;
    out_.Clear();
    v1::Heartbeat& beat = *out_.mutable_heartbeat();
    beat.set_sequence(++sequence_);
    *beat.mutable_echo() = state_->echo;
    if (state_->run.job() > 0) *beat.mutable_run() = state_->run;
    if (sequence_ == 1) beat.mutable_pieces();
    if (std::exchange(state_->news, false)) state_->said_at = absl::Now();
    writing_ = true;
    return true;
  }
  void Send() { StartWrite(&out_); }

 private:
  void OnWriteDone(bool ok) override {
    bool again = false;
    bool last = false;
    {
      absl::MutexLock lock(&state_->mutex);
      writing_ = false;
      again = ok && state_->news && state_->stream == this && Prepare();
      last = dead_ && !again;
    }
    if (again) Send();
    if (last) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    bool send = false;
    bool last = false;
    {
      absl::MutexLock lock(&state_->mutex);
      const bool present = state_->stream == this;
      if (!ok) {
        dead_ = true;
        last = !writing_;
        if (present) state_->stream = nullptr;
        if (present) state_->welcomed = false;
      } else if (present && in_.has_welcome()) {
        state_->welcomed = true;
        send = Prepare();
      } else if (present && in_.has_order()) {
        TakeOrder(in_.order());
        send = Prepare();
      }
    }
    if (ok && in_.has_order()) state_->on_order(state_->number, in_.order());
    if (send) Send();
    if (ok) StartRead(&in_);
    if (last) RemoveHold();
  }

  void TakeOrder(const v1::StandingOrder& order)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    v1::RunState& run = state_->run;
    state_->echo = order.number();
    state_->news = true;
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
  }

  void OnDone(const grpc::Status& /*status*/) override { delete this; }

  const std::shared_ptr<State> state_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage in_;
  v1::WorkerMessage out_;  // of whoever has set writing_
  bool writing_ ABSL_GUARDED_BY(state_->mutex) = true;
  bool dead_ ABSL_GUARDED_BY(state_->mutex) = false;  // nothing can be read
  int64_t sequence_ ABSL_GUARDED_BY(state_->mutex) = 0;
};

ScriptedWorker::ScriptedWorker(std::string coordinator, int number,
                               OnOrder on_order)
    : state_(std::make_shared<State>()) {
  state_->coordinator = std::move(coordinator);
  state_->number = number;
  state_->on_order = std::move(on_order);
}

ScriptedWorker::~ScriptedWorker() { Stop(); }

void ScriptedWorker::Start() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopped = false;
    state_->channel = MakeChannel(state_->coordinator);
    state_->incarnation =
        static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())) + state_->number;
    state_->echo.Clear();
    state_->run.Clear();
    state_->news = false;
  }
  Beat();
}

void ScriptedWorker::Stop() {
  absl::MutexLock lock(&state_->mutex);
  state_->stopped = true;
  state_->welcomed = false;
  if (state_->stream != nullptr) state_->stream->Cancel();
  state_->stream = nullptr;
  state_->channel.reset();
}

// A stream that ended before its time is opened again here.
void ScriptedWorker::Beat() {
  Stream* stream = nullptr;
  std::shared_ptr<grpc::Channel> channel;
  uint64_t incarnation = 0;
  bool opens = false;
  {
    absl::MutexLock lock(&state_->mutex);
    if (state_->stopped) return;
    opens = state_->stream == nullptr;
    if (opens) {
      state_->stream = new Stream(state_);
    } else if (!state_->stream->Prepare()) {
      return;
    }
    stream = state_->stream;
    channel = state_->channel;
    incarnation = state_->incarnation;
  }
  opens ? stream->Open(channel, incarnation) : stream->Send();
}

void ScriptedWorker::FailRun(int64_t step) {
  {
    absl::MutexLock lock(&state_->mutex);
    if (state_->run.job() == 0) return;
    state_->run.set_step(step);
    state_->run.set_phase(v1::RunState::PHASE_FAILED);
    state_->run.set_error_code(
        static_cast<int>(absl::StatusCode::kUnavailable));
    state_->run.set_error_message("a neighbour is gone");
    state_->news = true;
  }
  Beat();
}

bool ScriptedWorker::welcomed() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->welcomed;
}

absl::Time ScriptedWorker::said_at() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->said_at;
}

}  // namespace paceline

#include "worker/transport/stage/run_gate.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/status.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "worker/transport/stream/outbound_stream.h"

namespace paceline {
namespace {

// Time limit of one try.  The slowest stage may take longer; then the same
// report is sent and answered again.
constexpr absl::Duration kTry = absl::Seconds(20);
constexpr absl::Duration kFirstQuestionBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxQuestionBackoff = absl::Seconds(1);

std::vector<int> CountReplicas(const RunWiring& wiring) {
  std::vector<int> counts;
  for (const StageWiring& stage : wiring.stages) {
    counts.push_back(static_cast<int>(stage.replicas.size()));
  }
  return counts;
}

bool MayRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

// The reports of one Decide(); each is sent again until it is answered.
// Thread-safe.  Shared with its calls and timers, which may end after Decide().
class RunGate::Asking : public std::enable_shared_from_this<Asking> {
 public:
  // on_link: called under the lock when broken() has changed, or null.
  Asking(WorkerAddress first, std::shared_ptr<PlaneShared> shared,
         std::function<void()> on_link)
      : first_(std::move(first)),
        shared_(std::move(shared)),
        on_link_(std::move(on_link)),
        channel_(shared_->channels.Make(first_.address)),
        stub_(v1::Stage::NewStub(channel_)) {}

  // Blocks until all reports are answered or End() is called; returns the last
  // verdict.
  absl::StatusOr<StepVerdict> Ask(const Fence& fence,
                                  const std::vector<StepReport>& reports) {
    size_t first = 0;
    {
      absl::MutexLock lock(&mutex_);
      questions_.clear();
      first = ++round_;
      missing_ = reports.size();
      for (const StepReport& report : reports) {
        Question& question = questions_.emplace_back();
        question.request = ToProto(report);
        question.request.set_job(fence.job.value);
        question.request.set_attempt(fence.attempt);
        question.request.set_plan_version(fence.plan_version);
      }
    }
    for (size_t i = 0; i < reports.size(); ++i) Start(first, i);

    absl::MutexLock lock(&mutex_);
    const auto answered = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return missing_ == 0 || !ended_.ok();
    };
    mutex_.Await(absl::Condition(&answered));
    if (!ended_.ok()) return ended_;
    return verdict_;
  }

  // Also returns nothing while no report waits: then the link is not known.
  std::optional<BrokenLink> broken() {
    absl::MutexLock lock(&mutex_);
    NoteConnectionLocked();
    if (!broken_since_.has_value() || missing_ == 0 || !ended_.ok()) {
      return std::nullopt;
    }
    // At least 1 ms, since 0 would mean that the link is not broken.
    return BrokenLink{
        first_.worker,
        std::max(clock_.Now() - *broken_since_, absl::Milliseconds(1)),
        dial_refused_};
  }

  // Ends Ask() with `why` of the first call.
  void End(const absl::Status& why) {
    std::vector<std::shared_ptr<Try>> running;
    {
      absl::MutexLock lock(&mutex_);
      if (!ended_.ok()) return;
      ended_ = why;
      for (Question& question : questions_) {
        if (question.running) running.push_back(std::move(question.running));
      }
    }
    for (const auto& one : running) one->context.TryCancel();
  }

 private:
  struct Try {
    grpc::ClientContext context;
    v1::StepReport request;
    v1::StepVerdict response;
  };
  struct Question {
    v1::StepReport request;
    std::shared_ptr<Try> running;  // shared with the call
    absl::Duration backoff = kFirstQuestionBackoff;
  };

  void Start(size_t round, size_t index) {
    const auto one = std::make_shared<Try>();
    {
      absl::MutexLock lock(&mutex_);
      if (!ended_.ok() || round != round_ || missing_ == 0) return;
      one->request = questions_[index].request;
      questions_[index].running = one;
    }
    one->context.set_deadline(DeadlineAfter(kTry));
    shared_->channels.OnCallStarted();
    stub_->async()->ReportStep(
        &one->context, &one->request, &one->response,
        [self = shared_from_this(), one = one, round,
         index](grpc::Status status) mutable {
          self->OnAnswer(round, index, *one, FromGrpc(status));
          const std::shared_ptr<PlaneShared> shared = self->shared_;
          one = nullptr;
          self = nullptr;
          shared->timers.Run([shared] { shared->channels.DropUnused(); });
          shared->channels.OnCallEnded();
        });
  }

  void OnAnswer(size_t round, size_t index, const Try& one,
                const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!ended_.ok() || round != round_ || missing_ == 0) return;
    Question& question = questions_[index];
    question.running = nullptr;
    NoteAnswerLocked(status);
    if (status.ok()) {
      verdict_ = Taken<StepVerdict>(one.response);
      --missing_;
    } else if (!MayRetry(status)) {
      verdict_ = status;
      missing_ = 0;
    } else if (broken_since_.has_value() &&
               clock_.Now() - *broken_since_ >= shared_->options.reach) {
      verdict_ = Unavailable(
          "worker ", first_.worker.value, " at ", first_.address,
          ", which has the first stage, could not be reached for ",
          absl::FormatDuration(shared_->options.reach), " (", status.message(),
          "): its --advertise must be an address that every worker can dial");
      missing_ = 0;
    } else {
      shared_->timers.RunAfter(question.backoff,
                               [self = shared_from_this(), round, index] {
                                 self->Start(round, index);
                               });
      question.backoff = std::min(2 * question.backoff, kMaxQuestionBackoff);
    }
  }

  // A call waits for the slowest stage, so its answer may come long after the
  // link is back.  The connection's state shows it at once.
  void NoteConnectionLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
      broken_since_.reset();
    }
  }

  void NoteAnswerLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool was_broken = broken_since_.has_value();
    NoteConnectionLocked();
    if (absl::IsUnavailable(status)) {
      const bool refused = IsRefusedDial(status);
      const bool changed =
          !broken_since_.has_value() || refused != dial_refused_;
      if (!broken_since_.has_value()) broken_since_ = clock_.Now();
      dial_refused_ = refused;
      if (changed && on_link_ != nullptr) on_link_();
    } else if (was_broken && !broken_since_.has_value() &&
               on_link_ != nullptr) {
      on_link_();
    }
  }

  const WorkerAddress first_;
  const std::shared_ptr<PlaneShared> shared_;
  const std::function<void()> on_link_;
  const SystemClock clock_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Stage::Stub> stub_;

  absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  // When calls began to fail; not set while the first stage is in reach.
  std::optional<Instant> broken_since_ ABSL_GUARDED_BY(mutex_);
  // by the last failed call
  bool dial_refused_ ABSL_GUARDED_BY(mutex_) = false;
  size_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t missing_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Question> questions_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<StepVerdict> verdict_ ABSL_GUARDED_BY(mutex_) =
      absl::UnknownError("no answer");
};

RunGate::RunGate(const RunWiring& wiring, std::shared_ptr<PlaneShared> shared)
    : fence_(wiring.fence),
      self_(wiring.self),
      first_(wiring.stages.front().replicas.front()),
      replicas_(CountReplicas(wiring)),
      shared_(std::move(shared)),
      asking_(holds_first_stage() ? nullptr
                                  : std::make_shared<Asking>(
                                        first_, shared_, wiring.on_links)) {}

absl::Status RunGate::Open(const GateOptions& options) {
  if (!holds_first_stage()) {
    return InvalidArgument("worker ", self_.value,
                           " does not hold the first stage, ", "worker ",
                           first_.worker.value, " does");
  }
  absl::MutexLock lock(&mutex_);
  if (gate_ != nullptr) return AlreadyExists("the gate is open");
  gate_ = std::make_shared<SharedStepGate>(options.train, options.total_steps,
                                           replicas_, options.first_step);
  local_ = MakeLocalGateClient(gate_);
  return absl::OkStatus();
}

void RunGate::Report(const StepReport& report, SharedStepGate::Answer answer) {
  if (!holds_first_stage()) {
    answer(InvalidArgument("the first stage is on worker ", first_.worker.value,
                           ", this is ", self_.value));
    return;
  }
  if (const auto gate = this->gate()) {
    gate->Report(report, std::move(answer));
  } else {
    answer(FailedPrecondition("the gate is not open yet"));
  }
}

absl::StatusOr<StepVerdict> RunGate::Decide(
    const std::vector<StepReport>& reports) {
  if (reports.empty()) return InvalidArgument("no report");
  std::shared_ptr<GateClient> local;
  {
    absl::MutexLock lock(&mutex_);
    const auto open = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !holds_first_stage() || local_ != nullptr || !ended_.ok();
    };
    mutex_.Await(absl::Condition(&open));
    if (!ended_.ok()) return ended_;
    local = local_;
  }
  return local != nullptr ? local->Decide(reports)
                          : asking_->Ask(fence_, reports);
}

void RunGate::Cancel(absl::Status why) {
  std::shared_ptr<GateClient> local;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_.ok()) ended_ = why;
    local = local_;
  }
  if (local != nullptr) local->Cancel(why);
  if (asking_ != nullptr) asking_->End(why);
}

std::optional<BrokenLink> RunGate::broken() const {
  return asking_ == nullptr ? std::nullopt : asking_->broken();
}

void RunGate::Close() {
  Cancel(Cancelled("the run was closed"));
  if (const auto gate = this->gate()) {
    gate->Cancel(Aborted("the first stage has closed the run"));
  }
}

}  // namespace paceline

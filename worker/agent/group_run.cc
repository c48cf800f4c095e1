#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/model/precision.h"
#include "core/obs/log.h"
#include "core/optim/optimizer.h"
#include "worker/agent/run_order.h"
#include "worker/agent/worker_run.h"
#include "worker/rounds/gossip_exchange.h"
#include "worker/rounds/gossip_runner.h"
#include "worker/rounds/round_exchange.h"
#include "worker/rounds/round_runner.h"

namespace paceline {
namespace {

// A process that came to the group later is never killed.  In a later attempt
// the coordinator gives the faults only where nothing had begun before.
FaultPlan FaultsOf(const RunOrder& order, const MemberId& self) {
  std::string name;
  for (const GroupWorker& worker : order.group->workers) {
    if (worker.id == self) name = worker.name;
  }
  return {order.spec.faults, name, Contains(order.group->view, self)};
}

class GroupRun final : public WorkerRun {
 public:
  explicit GroupRun(RunContext context) : run_(std::move(context)) {}
  ~GroupRun() override { Close(); }

  absl::Status Run() override;
  void Cancel(const absl::Status& why) override;
  void OnGroup(const GroupOrder& group) override;
  std::optional<MemberReport> Member() const override;
  RoundReading Rounds() const override;
  std::map<WorkerId, int64_t> SentBytes() const override;

 private:
  absl::Status Prepare();
  absl::Status MakeEngine();
  absl::StatusOr<RoundExchangeOptions> ExchangeOptions();
  absl::Status TakeTurns();
  // Nothing comes any more, and what has come is counted.
  void Close();
  GroupExchange& exchange() const {
    return gossip_ != nullptr ? static_cast<GroupExchange&>(*gossip_)
                              : *rounds_;
  }

  const RunContext run_;
  // In the order in which they are made; what others borrow comes first.
  MemberId self_;
  std::unique_ptr<StageEngine> engine_;
  WeightsOrigin origin_;  // of the weights that it began with
  std::unique_ptr<BatchSource> source_;
  FaultPlan faults_;
  // One of the two, by the job's mode.
  std::unique_ptr<RoundExchange> rounds_;
  std::unique_ptr<GossipExchange> gossip_;
  std::unique_ptr<RoundTransport> transport_;

  mutable absl::Mutex mutex_;
  enum class State { kPreparing, kOpen, kClosed };
  State state_ ABSL_GUARDED_BY(mutex_) = State::kPreparing;  // of the exchange
  std::optional<GroupOrder> early_ ABSL_GUARDED_BY(mutex_);  // came before it
};

absl::Status GroupRun::Run() {
  absl::Status status = Prepare();
  if (status.ok()) status = run_.cancel.status();
  if (status.ok()) {
    run_.recorder.SetPhase(v1::RunState::PHASE_RUNNING);
    status = TakeTurns();
  }
  Close();
  if (source_ != nullptr) SayUnreadable(*source_, run_.recorder);
  // Excluded, or an earlier run of this very fence was ended here: the group
  // never takes this process again, but it does take another one.
  if (absl::IsAborted(status) && run_.restart != nullptr) {
    Log(LogLevel::kWarn, "starting anew, to join the round group again",
        {{"why", status.message()}});
    run_.restart(run_.order.cpu_capability);
    return absl::CancelledError("the process is starting anew");
  }
  return status;
}

void GroupRun::Cancel(const absl::Status& why) {
  {
    // Run() looks at the token once the exchange is open.
    absl::MutexLock lock(&mutex_);
    if (state_ != State::kOpen) return;
  }
  exchange().Cancel(why);
}

void GroupRun::OnGroup(const GroupOrder& group) {
  // Under the lock: a newer one must not come before an older one.
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kOpen) {
    exchange().OnGroup(group);
  } else {
    early_ = group;
  }
}

std::optional<MemberReport> GroupRun::Member() const {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kOpen) return std::nullopt;
  return exchange().Report();
}

RoundReading GroupRun::Rounds() const {
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kOpen) return {true, exchange().Stats()};
  RoundReading reading;
  if (state_ == State::kClosed) reading.stats.AddCounts(exchange().Stats());
  return reading;
}

std::map<WorkerId, int64_t> GroupRun::SentBytes() const {
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kPreparing) return {};
  return transport_->SentBytes();
}

// The transport calls the exchange, and the exchange the transport.  The
// engine's gradient goes last: what was sent of it may still be on its way out.
void GroupRun::Close() {
  if (transport_ != nullptr) transport_->Close();
  if (gossip_ != nullptr || rounds_ != nullptr) exchange().Stop();
  if (rounds_ != nullptr) rounds_->AwaitPartReleased();
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kOpen) state_ = State::kClosed;
}

absl::Status GroupRun::Prepare() {
  const RunOrder& order = run_.order;
  const ScopedPart part(run_.time, TimePart::kOrders);
  PACELINE_ASSIGN_OR_RETURN(self_,
                            CheckGroupOrder(order, run_.model, run_.self));
  if (!order.spec.faults.empty() && run_.fault_actions == nullptr) {
    return absl::FailedPreconditionError(
        "the job has faults on purpose, which this worker cannot commit: "
        "submit it without `faults`");
  }
  PACELINE_RETURN_IF_ERROR(MakeEngine());
  PACELINE_ASSIGN_OR_RETURN(source_, run_.factory.OpenData(order.spec, {}));
  PACELINE_ASSIGN_OR_RETURN(const v1::NameBytes names,
                            TakeFacts(run_, *source_, origin_, nullptr));
  run_.recorder.SetTotals(source_->total_steps(), /*samples=*/0, names);
  faults_ = FaultsOf(order, self_);
  PACELINE_ASSIGN_OR_RETURN(RoundExchangeOptions options, ExchangeOptions());
  // With those who are there now; who joins later is let in with room to spare.
  PACELINE_ASSIGN_OR_RETURN(int64_t bytes,
                            PredictBytes(order, run_.model, run_.self));
  PACELINE_ASSIGN_OR_RETURN(
      bytes, PredictWithData(bytes, order.spec, source_->memory_bytes(),
                             run_.memory_bytes));
  run_.recorder.SetPredictedMemory(bytes);
  options.unapplied_bytes = UnappliedBytes(run_.memory_bytes, bytes);
  RoundObserver& observer = run_.recorder;
  if (IsGossip(order.spec)) {
    gossip_ = std::make_unique<GossipExchange>(std::move(options), run_.clock,
                                               observer);
  } else {
    rounds_ = std::make_unique<RoundExchange>(std::move(options), run_.clock,
                                              observer);
  }
  PACELINE_ASSIGN_OR_RETURN(
      transport_, run_.factory.ConnectGroup(order.fence, self_, &exchange()));
  PACELINE_RETURN_IF_ERROR(exchange().Start(*transport_));
  absl::MutexLock lock(&mutex_);
  state_ = State::kOpen;
  exchange().OnGroup(early_.value_or(*order.group));
  return absl::OkStatus();
}

absl::Status GroupRun::MakeEngine() {
  const RunOrder& order = run_.order;
  run_.factory.SetThreads(order.threads);
  EngineOptions options;
  options.model = run_.model;
  options.layers = {0, static_cast<int>(run_.model.layers.size())};
  options.train = order.spec.train;
  options.precision =
      FindPrecision(order.spec.precision).value_or(Precision::kF32);
  options.flat_gradient = true;
  PACELINE_ASSIGN_OR_RETURN(options.teacher, MakeTeacher(run_, options));
  PACELINE_ASSIGN_OR_RETURN(engine_, run_.factory.MakeEngine(options));
  run_.recorder.AddUpdateBytes(UpdateBytes(options));
  if (order.spec.model.weights.empty()) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<NamedTensor> weights,
      run_.factory.ReadWeights(order.spec.model, run_.model, options.layers,
                               origin_));
  for (const std::string& note : origin_.notes) run_.recorder.AddNote(note);
  return engine_->SetWeights(weights);
}

absl::StatusOr<RoundExchangeOptions> GroupRun::ExchangeOptions() {
  const JobSpec& spec = run_.order.spec;
  RoundExchangeOptions options;
  options.attempt = run_.order.fence.attempt;
  options.self = self_;
  options.lease = run_.order.group->lease;
  options.aggregation = spec.aggregation;
  options.seed = static_cast<uint64_t>(spec.train.seed);
  PACELINE_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                            engine_->FlatGradient());
  options.values = gradient.size();
  options.state_bytes = engine_->StateBytes();
  options.total_steps = source_->total_steps();
  options.state_hash = engine_->StateHash();
  options.learning_rate = [rate = spec.train.learning_rate,
                           steps = options.total_steps](int64_t step) {
    return LearningRate(rate, step, steps);
  };
  if (spec.faults.empty()) return options;
  options.on_serving = [this](int64_t step, absl::string_view phase) {
    if (!faults_.KillsServer(step, phase)) return;
    Log(LogLevel::kWarn, "dies on purpose", {{"step", step}, {"phase", phase}});
    run_.fault_actions->Kill();
  };
  return options;
}

absl::Status GroupRun::TakeTurns() {
  MemberOptions options{run_.order.spec, run_.model, self_, faults_};
  ProcessFaults none;
  FaultActions& actions =
      run_.fault_actions != nullptr ? *run_.fault_actions : none;
  const auto on_done = [this](bool uploads) {
    if (!uploads) run_.recorder.SetPhase(v1::RunState::PHASE_DONE);
  };
  const auto upload = [this]() -> absl::Status {
    PACELINE_RETURN_IF_ERROR(UploadWeights(run_, *engine_));
    run_.recorder.SetPhase(v1::RunState::PHASE_DONE);
    return absl::OkStatus();
  };
  const MemberParts parts{*engine_,    *source_,   actions,
                          run_.time,   run_.clock, run_.recorder,
                          run_.cancel, on_done,    upload};
  if (gossip_ != nullptr) {
    return GossipRunner(std::move(options), parts, *gossip_).Run();
  }
  return RoundRunner(std::move(options), parts, *rounds_).Run();
}

}  // namespace

std::unique_ptr<WorkerRun> MakeGroupRun(RunContext context) {
  return std::make_unique<GroupRun>(std::move(context));
}

}  // namespace paceline

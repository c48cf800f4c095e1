#include <atomic>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/job/spec/job_spec.h"
#include "core/obs/log.h"
#include "core/optim/optimizer.h"
#include "worker/control/run_order.h"
#include "worker/control/worker_run.h"
#include "worker/rounds/gossip_exchange.h"
#include "worker/rounds/member_runner.h"
#include "worker/rounds/round_exchange.h"

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
  std::optional<v1::KeptState> Leave() override;
  std::optional<MemberReport> Member() const override;
  RoundReading Rounds() const override;
  std::map<WorkerId, int64_t> SentBytes() const override;

 private:
  absl::Status Prepare();
  absl::Status MakeEngine();
  absl::StatusOr<RoundExchangeOptions> ExchangeOptions();
  absl::Status TakeTurns();
  // MemberParts::on_state
  bool OnState(int64_t steps, std::optional<int64_t> compared);
  bool IsDue(int64_t steps);
  bool KeepsPieces() const {
    return run_.pieces != nullptr && run_.pieces->IsNamed(run_.order.fence.job);
  }
  void Deposit(const std::vector<PiecePtr>& pieces) {
    run_.pieces->Deposit(run_.order.fence.job, pieces);
  }
  // Nothing comes any more, and what has come is counted.
  void Close();
  GroupExchange& exchange() const {
    return gossip_ != nullptr ? static_cast<GroupExchange&>(*gossip_)
                              : *rounds_;
  }

  const RunContext run_;
  // Members of the first view begin with the order's base, joiners with another
  // member's state.
  bool begins_ = false;
  // As GroupOrder has them, in the newest one.
  std::atomic<int64_t> deposit_every_{0};
  std::atomic<int64_t> deposit_from_{0};
  int64_t deposited_from_ = 0;  // the newest deposit_from that was served
  std::optional<int64_t> state_step_;  // of the engine; nothing: no state yet
  // Deposited when the states of all members were compared after these steps or
  // later ones.
  struct Unconfirmed {
    int64_t steps = 0;
    std::vector<PiecePtr> pieces;
  };
  std::optional<Unconfirmed> unconfirmed_;
  bool withdrawn_ = false;  // the run ended by an order, its state is whole
  v1::Inputs inputs_;
  // In the order in which they are made; what others borrow comes first.
  MemberId self_;
  std::unique_ptr<StageEngine> engine_;
  WeightsOrigin origin_;  // of the weights that it began with
  std::unique_ptr<BatchSource> source_;
  FaultPlan faults_;
  // One of the two, by the job's mode.
  std::unique_ptr<RoundExchange> rounds_;
  std::unique_ptr<GossipExchange> gossip_;
  std::shared_ptr<RoundTransport> transport_;  // shared with its plane

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
  withdrawn_ = absl::IsCancelled(status);
  if (source_ != nullptr) SayUnreadable(*source_, run_.recorder);
  // Excluded, or an earlier run of this very fence was ended here: the group
  // never takes this process again, but it does take another one.
  if (absl::IsAborted(status) && run_.restart != nullptr) {
    Log(LogLevel::kWarn, "starting anew, to join the round group again",
        {{"why", status.message()}});
    run_.restart(run_.order.cpu_capability);
    return Cancelled("the process is starting anew");
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
  deposit_every_ = group.deposit_every;
  deposit_from_ = group.deposit_from;
  // Under the lock: a newer one must not come before an older one.
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kOpen) {
    exchange().OnGroup(group);
  } else {
    early_ = group;
  }
}

// Another attempt may go on from this state.
std::optional<v1::KeptState> GroupRun::Leave() {
  if (withdrawn_ && KeepsPieces() &&
      state_step_.value_or(0) > run_.order.base.step) {
    const ScopedPart part(run_.time, TimePart::kSnapshot);
    Deposit(CopyState(run_, {{0, engine_.get()}}, *state_step_));
  }
  return std::nullopt;
}

// --- Deposits ----------------------------------------------------------------

bool GroupRun::IsDue(int64_t steps) {
  const int64_t every = run_.order.spec.train.checkpoint_every;
  const int64_t also = deposit_every_;
  const int64_t from = deposit_from_;
  const bool asked = from > deposited_from_ && steps >= from;
  if (asked) deposited_from_ = from;
  return asked ||
         (every > 0 &&
          (steps % every == 0 || steps == source_->total_steps())) ||
         (also > 0 && steps % also == 0);
}

bool GroupRun::OnState(int64_t steps, std::optional<int64_t> compared) {
  state_step_ = steps;
  if (!compared.has_value()) unconfirmed_.reset();
  if (!compared.has_value() || !KeepsPieces()) return false;
  const ScopedPart part(run_.time, TimePart::kSnapshot);
  if (unconfirmed_.has_value() && unconfirmed_->steps <= *compared) {
    Deposit(std::exchange(unconfirmed_, std::nullopt)->pieces);
  }
  if (gossip_ != nullptr) {
    // States differ: the view names the member whose state is kept.
    const std::optional<View> view = exchange().view();
    if (IsDue(steps) && view.has_value() && view->leveller == self_) {
      Deposit(CopyState(run_, {{0, engine_.get()}}, steps));
    }
    return false;
  }
  const bool is_last = steps == source_->total_steps();
  if ((unconfirmed_.has_value() && !is_last) || !IsDue(steps)) return false;
  std::vector<PiecePtr> pieces = CopyState(run_, {{0, engine_.get()}}, steps);
  if (is_last) {
    Deposit(pieces);  // the coordinator compares the last hashes
    return false;
  }
  unconfirmed_ = {steps, std::move(pieces)};
  return true;
}

// --- The run -----------------------------------------------------------------

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
  begins_ = Contains(order.group->view, self_);
  PACELINE_RETURN_IF_ERROR(ReadWeightInputs(run_, inputs_));
  PACELINE_RETURN_IF_ERROR(TakeInputs(run_, inputs_));
  PACELINE_RETURN_IF_ERROR(MakeEngine());
  // With those who are there now; who joins later is let in with room to spare.
  PACELINE_ASSIGN_OR_RETURN(const int64_t predicted,
                            PredictBytes(order, run_.model, run_.self));
  run_.recorder.SetPredictedMemory(predicted);
  PACELINE_ASSIGN_OR_RETURN(const v1::NameBytes names,
                            OpenRunData(run_, origin_, inputs_, source_));
  run_.recorder.SetTotals(source_->total_steps(), /*samples=*/0, names);
  if (begins_) state_step_ = order.base.step;
  faults_ = FaultsOf(order, self_);
  PACELINE_ASSIGN_OR_RETURN(RoundExchangeOptions options, ExchangeOptions());
  options.unapplied_bytes =
      UnappliedBytes(run_.memory_bytes, run_.recorder.predicted_memory_bytes());
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
  options.precision = PrecisionOf(order.spec.precision);
  options.flat_gradient = true;
  PACELINE_ASSIGN_OR_RETURN(engine_, MakeRunEngine(run_, options, origin_));
  return begins_ && order.base != Cut()
             ? RestoreBase(run_, {{0, engine_.get()}})
             : absl::OkStatus();
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
  options.total_steps = source_->total_steps();
  options.next = begins_ ? run_.order.base.step : 0;
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
  const RunOrder& order = run_.order;
  MemberOptions options{order.spec, run_.model, self_, faults_};
  if (begins_) options.base = order.base.step;
  options.evaluates_base = begins_ && order.base != Cut() && !order.evaluated;
  options.skipped_in_row = order.skipped_in_row;
  const auto on_done = [this](bool uploads) {
    if (!uploads) run_.recorder.SetPhase(v1::RunState::PHASE_DONE);
  };
  const auto upload = [this]() -> absl::Status {
    PACELINE_RETURN_IF_ERROR(UploadWeights(run_, *engine_));
    run_.recorder.SetPhase(v1::RunState::PHASE_DONE);
    return absl::OkStatus();
  };
  const StageEngines engines = {{0, engine_.get()}};
  const auto offer = [this, &engines](int64_t steps) {
    std::vector<PiecePtr> state = CopyState(run_, engines, steps);
    if (run_.pieces != nullptr) run_.pieces->Offer(run_.order.fence.job, state);
    return state;
  };
  const auto fetch = [this, &engines](int64_t steps, PieceSource source) {
    source.layers = {0, static_cast<int>(run_.model.layers.size())};
    return FetchCut(run_, engines, {run_.order.fence.attempt, steps}, {source});
  };
  const MemberParts parts{
      *engine_,
      *source_,
      *run_.fault_actions,
      run_.time,
      run_.clock,
      run_.recorder,
      run_.cancel,
      on_done,
      upload,
      [this](int64_t steps, std::optional<int64_t> compared) {
        return OnState(steps, compared);
      },
      offer,
      fetch};
  if (gossip_ != nullptr) {
    return RunGossip(std::move(options), parts, *gossip_);
  }
  return RunRounds(std::move(options), parts, *rounds_);
}

}  // namespace

std::unique_ptr<WorkerRun> MakeGroupRun(RunContext context) {
  return std::make_unique<GroupRun>(std::move(context));
}

}  // namespace paceline

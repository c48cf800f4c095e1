// The agent's part for orders with a round group: data parallelism.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/aggregation.h"
#include "core/obs/log.h"
#include "core/optim/optimizer.h"
#include "worker/agent.h"
#include "worker/gossip_desk.h"
#include "worker/gossip_runner.h"
#include "worker/round_desk.h"
#include "worker/round_runner.h"

namespace paceline {

// In the order in which they are made; what others borrow comes first.
struct Agent::GroupRun {
  MemberId self;
  LayerHook hook;
  std::unique_ptr<StageEngine> engine;
  std::unique_ptr<BatchSource> source;
  std::shared_ptr<CancelToken> cancel;
  // One of the two, by the job's mode.  Shared with whoever tells the agent of
  // the group, ends the run or asks how it goes.
  std::shared_ptr<RoundDesk> rounds;
  std::shared_ptr<GossipDesk> gossip;
  std::unique_ptr<RoundTransport> transport;
  FaultPlan faults;

  std::shared_ptr<GroupDoor> desk() const {
    if (gossip != nullptr) return gossip;
    return rounds;
  }
  // The transport calls the desk, and the desk the transport.  The engine's
  // gradient goes last: what was sent of it may still be on its way out.
  ~GroupRun() { Close(); }

  // Nothing comes any more, and what has come is counted.
  void Close() {
    if (transport != nullptr) transport->Close();
    if (desk() != nullptr) desk()->Stop();
    if (rounds != nullptr) rounds->AwaitPartReleased();
  }
};

std::shared_ptr<GroupDoor> Agent::desk() const {
  absl::MutexLock lock(&mutex_);
  return desk_;
}

RoundReading Agent::Rounds() const {
  absl::MutexLock lock(&mutex_);  // a run that ends now is counted once
  RoundReading reading{desk_ != nullptr, {}};
  if (desk_ != nullptr) reading.stats = desk_->Stats();
  reading.stats.AddCounts(ended_rounds_);
  return reading;
}

void Agent::OnRound(const RoundRecord& record) {
  absl::MutexLock lock(&mutex_);
  rounds_.Add(record);
}

void Agent::OnMemberChanged() {
  absl::MutexLock lock(&mutex_);
  changed_ = true;
}

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

}  // namespace

absl::Status Agent::PrepareGroup(const RunOrder& order,
                                 const ModelDescription& model, WorkerId self,
                                 GroupRun& run) {
  const ScopedPart part(time_, TimePart::kOrders);
  PACELINE_ASSIGN_OR_RETURN(run.self, CheckGroupOrder(order, model, self));
  if (!order.spec.faults.empty() && options_.fault_actions == nullptr) {
    return absl::FailedPreconditionError(
        "the job has faults on purpose, which this worker cannot commit: "
        "submit it without `faults`");
  }
  factory_.SetThreads(order.threads);
  EngineOptions options;
  options.model = model;
  options.layers = {0, static_cast<int>(model.layers.size())};
  options.train = order.spec.train;
  options.precision =
      FindPrecision(order.spec.precision).value_or(Precision::kF32);
  options.flat_gradient = true;
  options.on_layer = [&hook = run.hook](const LayerDone& done) {
    if (hook.call) hook.call(done);
  };
  PACELINE_ASSIGN_OR_RETURN(run.engine, factory_.MakeEngine(options));
  if (!order.spec.model.weights.empty()) {
    PACELINE_ASSIGN_OR_RETURN(
        const std::vector<NamedTensor> weights,
        factory_.ReadWeights(order.spec.model, model, options.layers));
    PACELINE_RETURN_IF_ERROR(run.engine->SetWeights(weights));
  }
  PACELINE_ASSIGN_OR_RETURN(run.source, factory_.OpenData(order.spec, {}));

  run.faults = FaultsOf(order, run.self);
  PACELINE_ASSIGN_OR_RETURN(RoundDeskOptions desk, DeskOptions(order, run));
  // With those who are there now; who joins later is let in with room to spare.
  PACELINE_ASSIGN_OR_RETURN(predicted_memory_bytes_,
                            PredictBytes(order, model, self));
  desk.unapplied_bytes =
      UnappliedBytes(options_.memory_bytes, predicted_memory_bytes_);
  RoundObserver& observer = *this;
  if (IsGossip(order.spec)) {
    run.gossip =
        std::make_shared<GossipDesk>(std::move(desk), clock_, observer);
  } else {
    run.rounds = std::make_shared<RoundDesk>(std::move(desk), clock_, observer);
  }
  PACELINE_ASSIGN_OR_RETURN(
      run.transport,
      factory_.ConnectGroup(order.fence, run.self, run.desk().get()));
  return run.desk()->Start(*run.transport);
}

absl::StatusOr<RoundDeskOptions> Agent::DeskOptions(const RunOrder& order,
                                                    GroupRun& run) {
  RoundDeskOptions desk;
  desk.attempt = order.fence.attempt;
  desk.self = run.self;
  desk.lease = order.group->lease;
  desk.aggregation = order.spec.aggregation;
  desk.seed = static_cast<uint64_t>(order.spec.train.seed);
  PACELINE_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                            run.engine->FlatGradient());
  desk.values = gradient.size();
  desk.state_bytes = run.engine->StateBytes();
  desk.total_steps = run.source->total_steps();
  PACELINE_ASSIGN_OR_RETURN(desk.state_hash, run.engine->StateHash());
  desk.learning_rate = [rate = order.spec.train.learning_rate,
                        steps = desk.total_steps](int64_t step) {
    return LearningRate(rate, step, steps);
  };
  if (order.spec.faults.empty()) return desk;
  desk.on_serving = [this, &run](int64_t step, absl::string_view phase) {
    if (!run.faults.KillsServer(step, phase)) return;
    Log(LogLevel::kWarn, "dies on purpose", {{"step", step}, {"phase", phase}});
    options_.fault_actions->Kill();
  };
  return desk;
}

absl::Status Agent::ComputeInGroup(const RunOrder& order,
                                   const ModelDescription& model,
                                   WorkerId self) {
  absl::Status status;
  {
    GroupRun run;
    status = PrepareGroup(order, model, self, run);
    if (status.ok()) status = RunGroup(order, model, run);
    run.Close();
    absl::MutexLock lock(&mutex_);
    if (desk_ != nullptr) ended_rounds_.AddCounts(desk_->Stats());
    desk_ = nullptr;
  }
  // Excluded, or an earlier run of this very fence was ended here: the group
  // never takes this process again, but it does take another one.
  if (absl::IsAborted(status) && options_.restart != nullptr) {
    Log(LogLevel::kWarn, "starting anew, to join the round group again",
        {{"why", status.message()}});
    options_.restart(order.cpu_capability);
    return absl::CancelledError("the process is starting anew");
  }
  return status;
}

absl::Status Agent::RunGroup(const RunOrder& order,
                             const ModelDescription& model, GroupRun& run) {
  GroupOrder group;
  {
    absl::MutexLock lock(&mutex_);
    run.cancel = cancel_;
    desk_ = run.desk();
    run_->steps = run.source->total_steps();
    // What has come meanwhile.
    const bool same = order_.has_value() && order_->fence == order.fence &&
                      order_->group.has_value();
    group = same ? *order_->group : *order.group;
    // Under the lock: a newer one must not come before it.
    run.desk()->OnGroup(group);
  }
  PACELINE_RETURN_IF_ERROR(run.cancel->status());
  SetPhase(RunPhase::kRunning);
  return TakeTurns(order, model, run);
}

absl::Status Agent::TakeTurns(const RunOrder& order,
                              const ModelDescription& model, GroupRun& run) {
  RoundRunnerOptions options;
  options.spec = order.spec;
  options.model = model;
  options.self = run.self;
  options.faults = run.faults;
  ProcessFaults none;
  FaultActions& actions =
      options_.fault_actions != nullptr ? *options_.fault_actions : none;
  const auto on_done = [this](bool uploads) {
    if (!uploads) SetPhase(RunPhase::kDone);
  };
  const auto upload = [&]() -> absl::Status {
    PACELINE_RETURN_IF_ERROR(HandOver(order, *run.engine));
    SetPhase(RunPhase::kDone);
    return absl::OkStatus();
  };
  if (run.gossip != nullptr) {
    return GossipRunner(std::move(options),
                        {*run.engine, *run.source, actions, time_, clock_,
                         *this, *run.cancel},
                        *run.gossip, on_done, upload)
        .Run();
  }
  return RoundRunner(std::move(options),
                     {*run.engine, run.hook, *run.source, *run.rounds, actions,
                      time_, clock_, *this, *run.cancel, on_done, upload})
      .Run();
}

}  // namespace paceline

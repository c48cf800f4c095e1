// A round group that trains in one process: a compute thread, an exchange and
// an engine a member, a FakeEngine unless the test makes another one, and a
// test in the coordinator's place.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/data/data_sets.h"
#include "core/job/aggregation.h"
#include "core/optim/optimizer.h"
#include "core/os/thread.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/fake_engine.h"
#include "tests/support/pipeline/round_group.h"
#include "tests/support/pipeline/whole_state.h"
#include "worker/data/sample_set.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/gossip_exchange.h"
#include "worker/rounds/member_runner.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {

inline JobSpec TrainingJob(int64_t steps = 8) {
  JobSpec spec;
  spec.model.name = "mlp";
  spec.model.hidden = {5, 4};
  spec.data.name = "synthetic";
  spec.data.shape = {2, 3};
  spec.data.classes = 3;
  spec.data.train_samples = 96;
  spec.data.test_samples = 24;
  spec.train.batch = 24;
  spec.train.micro_batch = 2;
  spec.train.steps = steps;
  spec.train.seed = 5;
  spec.train.optimizer.name = "adamw";
  spec.aggregation.mode = "rolling";
  spec.aggregation.shards = 1;
  spec.aggregation.deadline = 30;
  return spec;
}

// With a member that is slow now and then, so that something is left to join.
inline JobSpec JobToJoin(const std::string& mode, int64_t steps) {
  JobSpec spec = TrainingJob(steps);
  spec.aggregation.mode = mode;
  for (int64_t step = 5; step < steps; ++step) {
    spec.faults.push_back({"w0", step, "delay", 1, 0.01});
  }
  return spec;
}

using MemberEngineMaker =
    std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
        const EngineOptions&)>;

inline absl::StatusOr<std::unique_ptr<StageEngine>> MakeMembersFake(
    const EngineOptions& options) {
  return std::make_unique<FakeEngine>(options);
}

// Tells of what is prepared.
class ToldSource final : public BatchSource {
 public:
  ToldSource(std::unique_ptr<BatchSource> source,
             std::function<void(const BatchInfo&)> on_prepare)
      : source_(std::move(source)), on_prepare_(std::move(on_prepare)) {}

  int64_t total_steps() const override { return source_->total_steps(); }
  int64_t test_samples() const override { return source_->test_samples(); }
  void BeginAt(int64_t step, bool evaluated) override {
    source_->BeginAt(step, evaluated);
  }
  absl::StatusOr<std::optional<BatchInfo>> NextBatch() override {
    return source_->NextBatch();
  }
  BatchInfo Training(int64_t step) const override {
    return source_->Training(step);
  }
  BatchInfo Evaluation(int64_t steps) const override {
    return source_->Evaluation(steps);
  }
  void Prepare(const BatchInfo& batch, const std::vector<int>& own) override {
    on_prepare_(batch);
    source_->Prepare(batch, own);
  }
  absl::StatusOr<TensorList> NextMicroBatch() override {
    return source_->NextMicroBatch();
  }

 private:
  const std::unique_ptr<BatchSource> source_;
  const std::function<void(const BatchInfo&)> on_prepare_;
};

// States that members offer to joiners.  Thread-safe.
class OfferedStates final {
 public:
  void Offer(const MemberId& holder, int64_t steps,
             absl::Span<const PiecePtr> state) {
    const SteadyLock lock(&mutex_);
    states_[{holder, steps}].assign(state.begin(), state.end());
  }
  absl::StatusOr<std::vector<PiecePtr>> Fetch(const MemberId& holder,
                                              int64_t steps) const {
    const SteadyLock lock(&mutex_);
    std::vector<PiecePtr> state;
    const auto found = states_.find({holder, steps});
    if (found == states_.end()) return absl::NotFoundError("not offered");
    for (const auto& piece : found->second) state.push_back(piece.lock());
    if (absl::c_linear_search(state, nullptr)) {
      return absl::NotFoundError("not offered any more");
    }
    return state;
  }

 private:
  mutable SteadyMutex mutex_;
  std::map<std::pair<MemberId, int64_t>,
           std::vector<std::weak_ptr<const StoredPiece>>>
      states_ ABSL_GUARDED_BY(mutex_);
};

// One member, from its start to its end.
class Trainer final : public RunObserver, public FaultActions {
 public:
  Trainer(MemoryRoundNetwork& network, OfferedStates& offers,
          const JobSpec& spec, const MemberId& self, bool joins = false,
          const MemberEngineMaker& make = MakeMembersFake)
      : network_(network),
        offers_(offers),
        spec_(spec),
        self_(self),
        time_(clock_) {
    const ModelDescription model =
        DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
    EngineOptions options;
    options.model = model;
    options.layers = {0, static_cast<int>(model.layers.size())};
    options.train = spec.train;
    options.flat_gradient = true;
    options.on_layer = [this](const LayerDone& done) {
      if (after_layer_) after_layer_(done);
    };
    engine_ = make(options).value();
    source_ = std::make_unique<ToldSource>(
        OpenBatchSource(spec).value(), [this](const BatchInfo& batch) {
          const SteadyLock lock(&mutex_);
          if (batch.phase != BatchPhase::kTrain) return;
          seen_.prepared.emplace(batch.step, std::ssize(seen_.steps));
        });
    RoundExchangeOptions options_of_exchange;
    options_of_exchange.attempt = 1;
    options_of_exchange.self = self;
    options_of_exchange.aggregation = spec.aggregation;
    options_of_exchange.values = engine_->FlatGradient()->size();
    options_of_exchange.state_hash = engine_->StateHash();
    options_of_exchange.total_steps = source_->total_steps();
    options_of_exchange.learning_rate = [spec](int64_t step) {
      return LearningRate(spec.train.learning_rate, step, spec.train.steps);
    };
    options_of_exchange.seed = static_cast<uint64_t>(spec.train.seed);
    options_of_exchange.retry_period = absl::Milliseconds(20);
    RoundExchange* rounds = nullptr;
    GossipExchange* gossip = nullptr;
    if (IsGossip(spec)) {
      exchange_.reset(
          gossip = new GossipExchange(options_of_exchange, clock_, observer));
    } else {
      exchange_.reset(
          rounds = new RoundExchange(options_of_exchange, clock_, observer));
    }
    transport_ = network.Connect(self, exchange_.get());
    EXPECT_TRUE(exchange_->Start(*transport_).ok());
    const MemberOptions member{
        spec, model, self,
        FaultPlan(spec.faults, absl::StrCat("w", self.worker.value), !joins)};
    const MemberParts parts{
        *engine_,
        *source_,
        *this,
        time_,
        clock_,
        *this,
        cancel_,
        [this](bool) { SetDone(); },
        [this] {
          const SteadyLock lock(&mutex_);
          ++seen_.uploads;
          return absl::OkStatus();
        },
        [this](int64_t steps, std::optional<int64_t> compared) {
          const SteadyLock lock(&mutex_);
          seen_.states.emplace_back(steps, compared.has_value(),
                                    seen_.steps.contains(steps));
          return false;
        },
        [this](int64_t steps) { return Offer(steps); },
        [this](int64_t steps, const PieceSource& source) {
          return offers_.Fetch(source.holder, steps);
        }};
    compute_ = std::thread([=, this] {
      status_ = gossip != nullptr ? RunGossip(member, parts, *gossip)
                                  : RunRounds(member, parts, *rounds);
    });
  }
  ~Trainer() override { Stop(); }

  void Stop() {
    cancel_.Cancel(absl::CancelledError("the test is over"));
    exchange_->Cancel(absl::CancelledError("the test is over"));
    if (compute_.joinable()) compute_.join();
    transport_->Close();
    exchange_->Stop();
  }
  // Waits until its run has ended by itself.
  void Join() { compute_.join(); }
  // As by SIGKILL; from any thread, the compute thread ends soon.
  void Kill() override {
    network_.Kill(self_);
    exchange_->Cancel(absl::CancelledError("killed"));
    cancel_.Cancel(absl::CancelledError("killed"));
    const SteadyLock lock(&mutex_);
    seen_.killed = true;
  }
  void Hang(absl::Duration) override {
    const SteadyLock lock(&mutex_);
    ++seen_.hangs;
  }

  // Called on the compute thread after each layer.
  // Before it begins.
  void SetAfterLayer(std::function<void(const LayerDone&)> after_layer) {
    after_layer_ = std::move(after_layer);
  }

  bool AwaitDone() {
    return Await([](const Seen& seen) { return seen.done; });
  }
  bool AwaitUpload() {
    return Await([](const Seen& seen) { return seen.uploads > 0; });
  }
  // Waits until `steps` are applied.
  bool AwaitStep(int64_t steps) {
    return Await([steps](const Seen& seen) {
      return !seen.steps.empty() && seen.steps.rbegin()->first >= steps;
    });
  }

  // After AwaitDone(), or a kill and Stop().
  std::vector<uint8_t> State() { return WholeStateOf(*engine_); }
  std::vector<NamedTensor> Weights() { return *engine_->Weights(); }
  GroupExchange& exchange() { return *exchange_; }
  const MemberId& self() const { return self_; }
  // All that has happened so far.
  struct Seen {
    bool done = false;
    bool killed = false;
    int uploads = 0;
    int hangs = 0;
    int progress = 0;  // instructions that the compute thread has finished
    std::map<int64_t, StepVerdict> steps;  // by the steps that there are then
    std::vector<v1::EvaluationRecord> evaluations;
    int64_t loss_samples = 0;  // of all steps
    // Steps that were applied when a step's data were first asked for.
    std::map<int64_t, int64_t> prepared;
    // Steps of each state that was told, whether it may be deposited, and
    // whether the last step's record came before.
    std::vector<std::tuple<int64_t, bool, bool>> states;
  };
  Seen seen() const {
    const SteadyLock lock(&mutex_);
    return seen_;
  }
  absl::Status status() const { return status_; }
  // How often the engine was told of weights that it did not write; after the
  // end.
  int times_written() const {
    return dynamic_cast<const FakeEngine&>(*engine_).times_written();
  }
  v1::TimeSplit time() const { return time_.Read(); }
  RecordingObserver observer;

 private:
  template <typename Condition>
  bool Await(const Condition& holds) {
    const auto reached = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return holds(seen_);
    };
    const SteadyLock lock(&mutex_);
    return mutex_.AwaitFor(absl::Condition(&reached), absl::Seconds(60));
  }
  void OnStep(const StepVerdict& verdict, int64_t,
              const std::optional<v1::StepRecord>& record) override {
    const SteadyLock lock(&mutex_);
    if (record.has_value()) seen_.loss_samples += record->loss_samples();
    seen_.steps[verdict.step + 1] = verdict;
  }
  void OnSkippedUpdate(int64_t, const std::string&) override {}
  void OnEvaluation(const v1::EvaluationRecord& record) override {
    const SteadyLock lock(&mutex_);
    seen_.evaluations.push_back(record);
  }
  void OnFlow(const v1::FlowTimes&, int64_t, bool) override {}
  void OnBatch(std::optional<absl::Duration>,
               const std::vector<v1::StageTime>&) override {}
  void OnUnreadable(const v1::Unreadable&) override {}
  void OnProgress(const Instruction&, const BatchInfo&) override {
    const SteadyLock lock(&mutex_);
    ++seen_.progress;
  }
  void SetDone() {
    const SteadyLock lock(&mutex_);
    seen_.done = true;
  }

  std::vector<PiecePtr> Offer(int64_t steps) {
    std::vector<PiecePtr> state;
    for (const ScatteredBytes& layer : engine_->State()) {
      const int number = static_cast<int>(state.size());
      state.push_back(CopyPiece({{1, steps}, number}, layer));
    }
    offers_.Offer(self_, steps, state);
    return state;
  }

  MemoryRoundNetwork& network_;
  OfferedStates& offers_;
  const JobSpec spec_;
  const MemberId self_;
  SystemClock clock_;
  TimeMeter time_;
  CancelToken cancel_;
  std::function<void(const LayerDone&)> after_layer_;
  std::unique_ptr<StageEngine> engine_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<GroupExchange> exchange_;
  std::unique_ptr<RoundTransport> transport_;
  absl::Status status_;

  mutable SteadyMutex mutex_;
  Seen seen_ ABSL_GUARDED_BY(mutex_);

  std::thread compute_;
};

// Between their weights, the largest.
inline double Distance(Trainer& a, Trainer& b) {
  const std::vector<NamedTensor> of_a = a.Weights();
  const std::vector<NamedTensor> of_b = b.Weights();
  double most = 0;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const auto x = of_a[i].tensor.As<float>();
    const auto y = of_b[i].tensor.As<float>();
    for (size_t j = 0; j < x.size(); ++j) {
      most = std::max<double>(most, std::abs(x[j] - y[j]));
    }
  }
  return most;
}

// Members and their views.
class TrainingGroup {
 public:
  TrainingGroup(const JobSpec& spec, const std::vector<double>& shares,
                const MemberEngineMaker& make = MakeMembersFake)
      : spec_(spec) {
    for (size_t i = 0; i < shares.size(); ++i) {
      members_.push_back({MemberOf(static_cast<int>(i)), 0, shares[i]});
    }
    for (const ViewMember& member : members_) {
      trainers_.push_back(std::make_unique<Trainer>(
          network, offers_, spec_, member.id, /*joins=*/false, make));
    }
  }

  void Begin() { TellAll(); }

  // A view without it, as the coordinator makes one when a member is lost.
  void Remove(const MemberId& lost) {
    const SteadyLock lock(&mutex_);
    std::erase_if(members_, [&lost](const ViewMember& member) {
      return member.id == lost;
    });
    ++counter_;
    TellAllLocked();
  }
  // A new process, that listens.
  Trainer& AddListener(const MemberId& id) {
    auto trainer = std::make_unique<Trainer>(network, offers_, spec_, id, true);
    Trainer& added = *trainer;
    const SteadyLock lock(&mutex_);
    trainers_.push_back(std::move(trainer));
    listeners_.push_back(id);
    TellAllLocked();
    return added;
  }
  // Once the listener has the state it takes part, from three steps on.
  void Admit(Trainer& joiner) {
    while (!joiner.exchange().Report().level) joiner.observer.AwaitChange();
    const int64_t step = trainer(0).exchange().Report().next + 3;
    const MemberId& id = joiner.self();
    const SteadyLock lock(&mutex_);
    std::erase(listeners_, id);
    members_.push_back({id, step});
    absl::c_sort(members_,
                 [](const auto& a, const auto& b) { return a.id < b.id; });
    ++counter_;
    TellAllLocked();
  }

  Trainer& trainer(size_t i) { return *trainers_[i]; }
  size_t size() const { return trainers_.size(); }
  // The sum of what `of` makes of each trainer.
  template <typename Of>
  int64_t Sum(const Of& of) {
    int64_t sum = 0;
    for (auto& each : trainers_) sum += of(*each);
    return sum;
  }

  // From the beginning to the end.
  void Train() {
    Begin();
    ExpectAllDone();
  }
  void TrainToEqualStates() {
    Begin();
    ExpectAllDoneAndEqual();
  }
  // Waits for all that live.
  void ExpectAllDone() {
    for (auto& trainer : trainers_) {
      if (trainer->seen().killed) continue;
      ASSERT_TRUE(trainer->AwaitDone())
          << "worker " << trainer->self().worker.value << " is at step "
          << trainer->exchange().Report().next << ": " << trainer->status();
    }
    for (auto& trainer : trainers_) trainer->Stop();
  }
  // And expects them to have the same state.
  void ExpectAllDoneAndEqual() {
    ExpectAllDone();
    std::optional<std::vector<uint8_t>> first;
    for (auto& trainer : trainers_) {
      if (trainer->seen().killed) continue;
      if (!first.has_value()) first = trainer->State();
      EXPECT_EQ(trainer->State(), *first)
          << "worker " << trainer->self().worker.value;
    }
  }

  MemoryRoundNetwork network;

 private:
  OfferedStates offers_;

  void TellAll() {
    const SteadyLock lock(&mutex_);
    TellAllLocked();
  }
  void TellAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    View view = MakeView(counter_, members_);
    for (auto& trainer : trainers_) {
      if (trainer->seen().killed) continue;
      // A joiner is no leveller.
      for (const ViewMember& member : members_) {
        if (member.from_step == 0) {
          view.leveller = member.id;
          break;
        }
      }
      trainer->exchange().OnGroup(MakeGroup(view, listeners_));
    }
  }

  const JobSpec spec_;
  SteadyMutex mutex_;
  std::vector<ViewMember> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<MemberId> listeners_ ABSL_GUARDED_BY(mutex_);
  int64_t counter_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

}  // namespace paceline

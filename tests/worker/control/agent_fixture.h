// An agent that is alone in its plan, on a factory that needs no network.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/os/thread.h"
#include "core/rpc/convert/report_convert.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/pipeline/memory_link.h"
#include "tests/worker/control/await_beat.h"
#include "tests/worker/control/fake_run_factory.h"
#include "worker/control/agent.h"
#include "worker/pipeline/shared_step_gate.h"
#include "worker/profile/profiler.h"

namespace paceline {

inline constexpr WorkerId kSelf{5};
inline constexpr absl::Duration kLongest = absl::Seconds(60);

// How many links are open, and a moment for somebody to open a second one.
struct OpenLinks {
  std::atomic<int> count{0};
  SteadyMutex mutex;
  int connects ABSL_GUARDED_BY(mutex) = 0;

  // Returns when Connect() was called again, or after a while.
  void GiveTimeForAnotherConnect() {
    SteadyLock lock(&mutex);
    const int before = connects;
    const auto called = [this, before]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
      return connects > before;
    };
    mutex.AwaitFor(absl::Condition(&called), absl::Milliseconds(50));
  }
};

// A link that counts its life, and whose Cancel() is slow to return.
class CountedLink final : public Link {
 public:
  CountedLink(std::unique_ptr<Link> link, OpenLinks& open)
      : link_(std::move(link)), open_(open) {
    ++open_.count;
  }
  ~CountedLink() override { --open_.count; }

  absl::Status Send(Frame frame) override {
    return link_->Send(std::move(frame));
  }
  absl::StatusOr<Frame> Receive(const FrameKey& key) override {
    return link_->Receive(key);
  }
  absl::StatusOr<BatchInfo> AwaitBatch(int32_t boundary,
                                       int64_t ordinal) override {
    return link_->AwaitBatch(boundary, ordinal);
  }
  absl::StatusOr<absl::Duration> AwaitRoom(int32_t boundary, int64_t ordinal,
                                           int frames,
                                           int micro_batch) override {
    return link_->AwaitRoom(boundary, ordinal, frames, micro_batch);
  }
  void Cancel(absl::Status why) override {
    link_->Cancel(std::move(why));
    open_.GiveTimeForAnotherConnect();
  }

 private:
  const std::unique_ptr<Link> link_;
  OpenLinks& open_;
};

// A gate to a first stage that is out of reach.
class BrokenGate final : public GateClient {
 public:
  explicit BrokenGate(const BrokenLink& link) : link_(link) {}

  absl::StatusOr<StepVerdict> Decide(const std::vector<StepReport>&) override {
    cancelled_.WaitForNotification();
    return absl::CancelledError("cancelled");
  }
  void Cancel(absl::Status) override {
    if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
  }
  std::optional<BrokenLink> broken() const override { return link_; }

 private:
  const BrokenLink link_;
  SteadyNotification cancelled_;
};

// A worker alone in its plan.  Keeps the names of what is uploaded.
class LonelyFactory final : public FakeRunFactory {
 public:
  void SetThreads(int threads) override { threads_ = threads; }

  absl::StatusOr<ScriptModel> ReadScript(const JobSpec& spec) override {
    script_begun_.Notify();
    if (script_ends_ != nullptr) script_ends_->WaitForNotification();
    ScriptModel script;
    script.sha256 = "hash of " + spec.model.file;
    script.layers.resize(1);
    return script;
  }
  // Zeros for the first parameter of the layers.
  absl::StatusOr<std::vector<NamedTensor>> ReadWeights(
      const ModelSpec& spec, const ModelDescription& model,
      const LayerRange& layers, WeightsOrigin& origin) override {
    if (spec.weights != "/good") {
      return absl::NotFoundError(spec.weights + ": no such file");
    }
    origin.notes = {"/good: made with model.dropout 0.5"};
    if (layers.last == 0) return std::vector<NamedTensor>();
    const Parameter& first = model.layers[layers.first].parameters[0];
    Tensor zeros = Tensor::Allocate(DType::kF32, first.shape);
    for (float& value : zeros.As<float>()) value = 0;
    return std::vector<NamedTensor>{{first.name, zeros}};
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) override {
    if (data_ends_ != nullptr) {
      data_begun_.Notify();
      data_ends_->WaitForNotification();
    }
    return OpenBatchSource(spec, turns);
  }
  // As the data plane: one run at a time.
  absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) override {
    {
      SteadyLock lock(&open_links_.mutex);
      ++open_links_.connects;
    }
    if (open_links_.count > 0) {
      return absl::FailedPreconditionError("another run is open");
    }
    auto links = MakeMemoryLinks(
        {std::vector<std::vector<int>>(wiring.stages.size(), {0}),
         wiring.bounds, wiring.fence});
    if (!links.ok()) return links.status();
    auto link =
        std::make_unique<CountedLink>(std::move((*links)[0]), open_links_);
    if (broken_.has_value()) {
      return RunConnections{std::move(link),
                            std::make_shared<BrokenGate>(*broken_)};
    }
    return RunConnections{
        std::move(link),
        MakeLocalGateClient(std::make_shared<SharedStepGate>(
            train_, train_.steps, std::vector<int>(wiring.stages.size(), 1)))};
  }
  absl::Status UploadWeights(const Fence&, const std::vector<TensorPart>& parts,
                             const CancelToken& cancel) override {
    if (upload_blocks_) return cancel.Pause(kLongest);
    for (const TensorPart& part : parts) {
      uploaded_.push_back(part.name);
      if (uploaded_.size() == 1) first_upload_ = part.tensor;
    }
    return absl::OkStatus();
  }

  int threads_ = 0;
  bool upload_blocks_ = false;
  std::optional<BrokenLink> broken_;  // nothing: the first stage is here
  SteadyNotification data_begun_;
  SteadyNotification* data_ends_ = nullptr;  // null: at once
  SteadyNotification script_begun_;
  SteadyNotification* script_ends_ = nullptr;  // null: at once
  std::vector<std::string> uploaded_;
  Tensor first_upload_;
  TrainSpec train_;
  OpenLinks open_links_;
};

class AgentTest : public ::testing::Test {
 protected:
  RunOrder Order(int64_t job) {
    JobSpec spec;
    spec.model.name = "mlp";
    spec.model.hidden = {6};
    spec.data.name = "synthetic";
    spec.data.shape = {1, 3, 3};
    spec.data.train_samples = 32;
    spec.data.test_samples = 8;
    spec.train.steps = 4;
    spec.train.batch = 8;
    spec.train.micro_batch = 4;
    RunOrder order = WholeModelOrder({JobId{job}, 1, 1}, spec, kSelf);
    order.threads = 3;
    factory_.train_ = order.spec.train;
    return order;
  }

  // The agent, from its first use on.
  Agent& agent() {
    if (agent_ != nullptr) return *agent_;
    AgentOptions options;
    options.measure = [this](const v1::MeasureOrder& order,
                             const CancelToken& cancel) {
      return CarryOut(
          order, {"w", "avx2", "", 0, prober_used_, factory_, *clock_used_},
          cancel);
    };
    options.cpu_capability = "avx2";
    options.active_capability = active_capability_;
    options.look_period = absl::Milliseconds(5);
    options.restart = [this](const std::string& capability) {
      restart_at_ = capability;
      restarted_.Notify();
    };
    agent_ =
        std::make_unique<Agent>(std::move(options), factory_, *clock_used_);
    agent_->OnWelcome(kSelf);
    return *agent_;
  }

  // Orders a run, and heartbeats until it is in `phase`.
  v1::RunState Run(const RunOrder& order, v1::RunState::Phase phase) {
    agent().OnOrder(order);
    return Await(phase);
  }
  v1::RunState RunToItsEnd(const RunOrder& order) {
    return Run(order, v1::RunState::PHASE_DONE);
  }
  v1::Heartbeat Beat() { return agent().Heartbeat().heartbeat; }

  // Heartbeats until the run is in `phase`; collects the records on the way.
  v1::RunState Await(v1::RunState::Phase phase) {
    const v1::RunState last =
        AwaitBeat(agent(), [&](const v1::Heartbeat& beat) {
          for (const auto& step : beat.steps()) steps_.push_back(step);
          for (const auto& one : beat.evaluations())
            evaluations_.push_back(one);
          return beat.run().phase() == phase ||
                 beat.run().phase() == v1::RunState::PHASE_FAILED;
        }).run();
    EXPECT_EQ(last.phase(), phase) << last.ShortDebugString();
    return last;
  }

  LonelyFactory factory_;
  const SystemClock clock_{};
  FakeClock fake_clock_;
  const Clock* clock_used_ = &clock_;
  Prober* prober_used_ = nullptr;
  std::string active_capability_;
  std::string restart_at_;
  SteadyNotification restarted_;
  std::vector<v1::StepRecord> steps_;
  std::vector<v1::EvaluationRecord> evaluations_;
  std::unique_ptr<Agent> agent_;
};

}  // namespace paceline

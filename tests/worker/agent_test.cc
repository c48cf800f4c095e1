#include "worker/agent.h"

#include <atomic>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "worker/data/open.h"
#include "worker/fake_engine.h"
#include "worker/gate_desk.h"
#include "worker/memory_link.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr WorkerId kSelf{5};
constexpr absl::Duration kLongest = absl::Seconds(30);

// How many links are open, and a moment for somebody to open a second one.
struct OpenLinks {
  std::atomic<int> count{0};
  absl::Mutex mutex;
  int connects ABSL_GUARDED_BY(mutex) = 0;

  // Returns when Connect() was called again, or after a while.
  void GiveTimeForAnotherConnect() {
    absl::MutexLock lock(&mutex);
    const int before = connects;
    const auto called = [this, before]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
      return connects > before;
    };
    mutex.AwaitWithTimeout(absl::Condition(&called), absl::Milliseconds(50));
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
                                           int frames) override {
    return link_->AwaitRoom(boundary, ordinal, frames);
  }
  void Cancel(absl::Status why) override {
    link_->Cancel(std::move(why));
    open_.GiveTimeForAnotherConnect();
  }

 private:
  const std::unique_ptr<Link> link_;
  OpenLinks& open_;
};

// A worker alone in its plan.  Keeps the names of what is uploaded.
class LonelyFactory final : public RunFactory {
 public:
  void SetThreads(int threads) override { threads_ = threads; }

  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const EngineOptions& options) override {
    return std::make_unique<FakeEngine>(options);
  }
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
      const LayerRange& layers) override {
    if (spec.weights != "/good") {
      return absl::NotFoundError(spec.weights + ": no such file");
    }
    const Parameter& first = model.layers[layers.first].parameters[0];
    Tensor zeros = Tensor::Allocate(DType::kF32, first.shape);
    for (float& value : zeros.As<float>()) value = 0;
    return std::vector<NamedTensor>{{first.name, zeros}};
  }
  absl::StatusOr<std::unique_ptr<BatchSource>> OpenData(
      const JobSpec& spec, const Turns& turns) override {
    return OpenBatchSource(spec, turns);
  }
  // As the data plane: one run at a time.
  absl::StatusOr<RunConnections> Connect(const RunWiring& wiring) override {
    {
      absl::MutexLock lock(&open_links_.mutex);
      ++open_links_.connects;
    }
    if (open_links_.count > 0) {
      return absl::FailedPreconditionError("another run is open");
    }
    auto links = MakeMemoryLinks(
        {std::vector<std::vector<int>>(wiring.stages.size(), {0}),
         wiring.bounds, wiring.fence});
    if (!links.ok()) return links.status();
    return RunConnections{
        std::make_unique<CountedLink>(std::move((*links)[0]), open_links_),
        MakeLocalGateClient(std::make_shared<GateDesk>(
            train_, train_.steps, static_cast<int>(wiring.stages.size())))};
  }
  absl::Status OpenGate(const Fence&, const GateOptions&) override {
    return absl::OkStatus();
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
  absl::Notification script_begun_;
  absl::Notification* script_ends_ = nullptr;  // null: at once
  std::vector<std::string> uploaded_;
  Tensor first_upload_;
  TrainSpec train_;
  OpenLinks open_links_;
};

class AgentTest : public ::testing::Test {
 protected:
  RunOrder Order(int64_t job) {
    RunOrder order;
    order.fence = {JobId{job}, 1, 1};
    order.spec.model.name = "mlp";
    order.spec.model.hidden = {6};
    order.spec.data.name = "synthetic";
    order.spec.data.shape = {1, 3, 3};
    order.spec.data.train_samples = 32;
    order.spec.data.test_samples = 8;
    order.spec.train.steps = 4;
    order.spec.train.batch = 8;
    order.spec.train.micro_batch = 4;
    const auto model = DescribeModel(order.spec.model, order.spec.data.shape,
                                     order.spec.data.classes);
    order.stages = {
        {0, {0, static_cast<int>(model->layers.size())}, kSelf, "w", "h:1"}};
    order.cpu_capability = "avx2";
    order.threads = 3;
    factory_.train_ = order.spec.train;
    return order;
  }

  void MakeAgent() {
    AgentOptions options;
    options.name = "w";
    options.prober = prober_used_;
    options.cpu_capability = "avx2";
    options.active_capability = active_capability_;
    options.restart = [this](const std::string& capability) {
      restart_at_ = capability;
      restarted_.Notify();
    };
    agent_ =
        std::make_unique<Agent>(std::move(options), factory_, *clock_used_);
    agent_->OnWelcome(kSelf);
  }

  // Heartbeats until the run is in `phase`; collects the records on the way.
  RunReport Await(RunPhase phase) {
    const absl::Time give_up = absl::Now() + kLongest;
    for (;;) {
      HeartbeatContent beat = agent_->Heartbeat();
      for (const StepRecord& step : beat.steps) steps_.push_back(step);
      for (const auto& one : beat.evaluations) evaluations_.push_back(one);
      if (beat.run.has_value() && beat.run->phase == phase) return *beat.run;
      if (beat.run.has_value() && beat.run->phase == RunPhase::kFailed) {
        ADD_FAILURE() << beat.run->error;
        return *beat.run;
      }
      if (absl::Now() > give_up) break;
      agent_->AwaitChange(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "phase " << static_cast<int>(phase) << " never came";
    return {};
  }

  LonelyFactory factory_;
  const SystemClock clock_{};
  FakeClock fake_clock_;
  const Clock* clock_used_ = &clock_;
  Prober* prober_used_ = nullptr;
  std::string active_capability_;
  std::string restart_at_;
  absl::Notification restarted_;
  std::vector<StepRecord> steps_;
  std::vector<EvaluationRecord> evaluations_;
  std::unique_ptr<Agent> agent_;
};

TEST_F(AgentTest, RunsAnOrderToItsEndAndHandsTheWeightsOver) {
  MakeAgent();

  agent_->OnOrder(Order(1));
  const RunReport status = Await(RunPhase::kDone);

  EXPECT_EQ(status.step, 4);
  EXPECT_EQ(status.steps, 4);
  EXPECT_EQ(status.samples, 32);
  EXPECT_THAT(steps_, SizeIs(4));
  EXPECT_THAT(evaluations_, SizeIs(1));
  EXPECT_THAT(factory_.uploaded_, SizeIs(4));  // two weights, two biases
  EXPECT_GT(status.peak_memory_bytes, 0);
  EXPECT_GT(agent_->predicted_memory_bytes(), 0);
  EXPECT_EQ(factory_.threads_, 3);
}

TEST_F(AgentTest, DoesNothingWhenTheSameOrderComesAgain) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kDone);

  agent_->OnOrder(Order(1));

  EXPECT_EQ(Await(RunPhase::kDone).step, 4);
  EXPECT_EQ(agent_->total_steps(), 4);
}

TEST_F(AgentTest, RepeatsRecordsThatWereNotAcknowledged) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kDone);
  EXPECT_THAT(agent_->Heartbeat().steps, IsEmpty());

  agent_->OnAttached();
  const HeartbeatContent again = agent_->Heartbeat();
  EXPECT_THAT(again.steps, SizeIs(4));

  agent_->OnAck(again.marks);
  agent_->OnAttached();
  EXPECT_THAT(agent_->Heartbeat().steps, IsEmpty());
}

TEST_F(AgentTest, EndsARunWhenItsOrderIsWithdrawn) {
  factory_.upload_blocks_ = true;
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kRunning);

  agent_->OnOrder(std::nullopt);
  factory_.upload_blocks_ = false;
  agent_->OnOrder(Order(2));

  EXPECT_EQ(Await(RunPhase::kDone).fence.job, JobId{2});
}

// The control thread may still be cancelling the old run when the compute
// thread has already left it.
TEST_F(AgentTest, OpensTheNextRunOnlyWhenTheLastOneIsClosed) {
  MakeAgent();
  for (int64_t job = 1; job <= 3; ++job) {
    agent_->OnOrder(Order(job));
    EXPECT_EQ(Await(RunPhase::kDone).fence.job, JobId{job});
  }
}

TEST_F(AgentTest, AsksForARestartWhenAnotherCapabilityIsOrdered) {
  MakeAgent();
  RunOrder order = Order(1);
  order.cpu_capability = "default";

  agent_->OnOrder(order);

  ASSERT_TRUE(restarted_.WaitForNotificationWithTimeout(kLongest));
  EXPECT_EQ(restart_at_, "default");
  EXPECT_EQ(agent_->total_steps(), 0);
}

TEST_F(AgentTest, FailsTheRunWhenItsKernelsAreAtAnotherCapability) {
  active_capability_ = "default";
  MakeAgent();

  agent_->OnOrder(Order(1));
  const RunReport status = Await(RunPhase::kFailed);

  EXPECT_EQ(status.error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.error.message()),
              AllOf(HasSubstr("cpu_capability avx2"),
                    HasSubstr("kernels run at default")));
  EXPECT_EQ(agent_->total_steps(), 0);
}

TEST_F(AgentTest, RunsWhenItsKernelsSayTheOrderedCapability) {
  active_capability_ = "avx2";
  MakeAgent();

  agent_->OnOrder(Order(1));

  EXPECT_EQ(Await(RunPhase::kDone).step, 4);
}

TEST_F(AgentTest, SaysThatItRestartsInEveryHeartbeatFromThenOn) {
  MakeAgent();
  EXPECT_FALSE(agent_->Heartbeat().restarting);

  agent_->AnnounceRestart();

  EXPECT_TRUE(agent_->Heartbeat().restarting);
  EXPECT_TRUE(agent_->Heartbeat().restarting);
}

TEST_F(AgentTest, NumbersTheLinesOfItsLog) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kDone);
  agent_->AddLog({0, 0, "info", "", "one"});
  agent_->AddLog({0, 0, "info", "", "two"});

  agent_->Heartbeat();
  agent_->OnAttached();  // nothing was acknowledged
  const HeartbeatContent again = agent_->Heartbeat();

  ASSERT_EQ(again.logs.size(), 2u);
  EXPECT_EQ(again.logs[0].origin_sequence, 1);
  EXPECT_EQ(again.logs[1].origin_sequence, 2);
}

TEST_F(AgentTest, FailsTheRunWhenANeighbourHasMoved) {
  factory_.upload_blocks_ = true;
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kRunning);
  RunOrder moved = Order(1);
  moved.stages[0].address = "h:2";

  agent_->OnOrder(moved);

  EXPECT_EQ(Await(RunPhase::kFailed).error.code(), absl::StatusCode::kAborted)
      << "a new submit mends it";
}

TEST_F(AgentTest, ReportsWhyARunFailed) {
  MakeAgent();
  RunOrder order = Order(1);
  order.spec.data.name = "idx";
  order.spec.data.path = "/no/such/folder";

  agent_->OnOrder(order);

  const RunReport status = Await(RunPhase::kFailed);
  EXPECT_FALSE(status.error.ok());
  EXPECT_THAT(std::string(status.error.message()),
              HasSubstr("/no/such/folder"));
}

TEST_F(AgentTest, BeginsWithTheWeightsOfAFile) {
  MakeAgent();
  RunOrder order = Order(1);
  order.spec.model.weights = "/good";
  // Too small to change a value.
  order.spec.train.learning_rate.base = 1e-30;
  factory_.train_ = order.spec.train;

  agent_->OnOrder(order);
  Await(RunPhase::kDone);

  for (const float value : factory_.first_upload_.As<float>()) {
    ASSERT_NEAR(value, 0, 1e-25);
  }
}

TEST_F(AgentTest, FailsTheRunWhenItsWeightsCannotBeRead) {
  MakeAgent();
  RunOrder order = Order(1);
  order.spec.model.weights = "/gone";

  agent_->OnOrder(order);

  const RunReport report = Await(RunPhase::kFailed);
  EXPECT_TRUE(absl::IsNotFound(report.error)) << report.error;
}

TEST_F(AgentTest, RefusesAnOrderWhoseLayersDoNotFit) {
  MakeAgent();
  RunOrder order = Order(1);
  order.stages[0].layers.last = 99;

  agent_->OnOrder(order);

  EXPECT_EQ(Await(RunPhase::kFailed).error.code(),
            absl::StatusCode::kInvalidArgument);
}

// The worker divides by these numbers, or breaks an invariant by that name.
TEST_F(AgentTest, FailsTheRunOfASpecThatCannotBe) {
  const auto refusal = [this](const std::function<void(TrainSpec&)>& spoil) {
    MakeAgent();
    RunOrder order = Order(1);
    spoil(order.spec.train);
    agent_->OnOrder(order);
    const absl::Status error = Await(RunPhase::kFailed).error;
    EXPECT_TRUE(absl::IsInvalidArgument(error)) << error;
    return std::string(error.message());
  };

  EXPECT_THAT(refusal([](TrainSpec& train) { train.micro_batch = 0; }),
              HasSubstr("order: train.micro_batch: must be from 1"));
  EXPECT_THAT(refusal([](TrainSpec& train) { train.batch = 0; }),
              HasSubstr("order: train.batch: must be"));
  EXPECT_THAT(refusal([](TrainSpec& train) { train.optimizer.name = "no"; }),
              HasSubstr("order: train.optimizer.name: unknown optimizer"));
}

TEST_F(AgentTest, StopsInTheMiddleOfARun) {
  factory_.upload_blocks_ = true;
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kRunning);

  agent_.reset();  // joins the compute thread

  EXPECT_THAT(factory_.uploaded_, IsEmpty());
}

// --- measuring --------------------------------------------------------------

class FakeProber final : public Prober {
 public:
  absl::StatusOr<std::vector<LinkMeasurement>> ProbeLink(
      const std::string& self, const LinkTarget& target,
      const CancelToken& cancel) override {
    if (blocks) {
      const absl::Status why = cancel.Pause(kLongest);
      cancelled.Notify();
      return why;
    }
    return std::vector<LinkMeasurement>{{self, target.name, 1e8, 1e-3, 0},
                                        {target.name, self, 2e8, 1e-3, 0}};
  }
  absl::StatusOr<FrameCost> MeasureFrames(const CancelToken&) override {
    return FrameCost{1e-4, 1e-9, 2e-4};
  }

  bool blocks = false;
  absl::Notification cancelled;
};

class MeasuringAgentTest : public AgentTest {
 protected:
  MeasuringAgentTest() { prober_used_ = &prober_; }

  MeasureOrder LinkOrder(int64_t id) {
    MeasureOrder order;
    order.id = id;
    order.link = LinkTarget{"b", "b:1"};
    return order;
  }
  MeasureOrder ScriptOrder() {
    MeasureOrder order;
    order.id = 1;
    order.layers = Order(1).spec;
    order.layers->model.name = kScriptModel;
    order.layers->model.file = "/net.pt";
    order.cpu_capability = "avx2";
    return order;
  }
  Measurement AwaitMeasurement() {
    const absl::Time give_up = absl::Now() + kLongest;
    while (absl::Now() < give_up) {
      const HeartbeatContent beat = agent_->Heartbeat();
      if (beat.measurement.has_value()) return *beat.measurement;
      agent_->AwaitChange(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "no measurement came";
    return {};
  }

  FakeProber prober_;
};

TEST_F(MeasuringAgentTest, AnswersUntilTheOrderIsWithdrawn) {
  MakeAgent();

  agent_->OnMeasure(LinkOrder(7));
  const Measurement answer = AwaitMeasurement();

  EXPECT_EQ(answer.id, 7);
  EXPECT_TRUE(answer.error.ok()) << answer.error;
  EXPECT_THAT(answer.links, SizeIs(2));
  EXPECT_EQ(answer.links[0].from, "w");
  EXPECT_TRUE(agent_->Heartbeat().measurement.has_value());
  agent_->OnMeasure(std::nullopt);
  EXPECT_FALSE(agent_->Heartbeat().measurement.has_value());
}

TEST_F(MeasuringAgentTest, MeasuresTheLayersOfASpec) {
  MakeAgent();
  MeasureOrder order;
  order.id = 1;
  order.layers = Order(1).spec;
  order.layers->threads = 2;
  order.cpu_capability = "avx2";

  agent_->OnMeasure(order);
  const Measurement answer = AwaitMeasurement();

  ASSERT_TRUE(answer.error.ok()) << answer.error;
  ASSERT_TRUE(answer.profile.has_value());
  EXPECT_EQ(answer.profile->key.device, "w");
  EXPECT_EQ(answer.profile->key.micro_batch, 4);
  EXPECT_EQ(answer.profile->key.threads, 2);
  EXPECT_EQ(answer.profile->frame_seconds, 1e-4);
  EXPECT_GT(answer.profile->runs, 0);
  EXPECT_EQ(factory_.threads_, 2);
}

TEST_F(MeasuringAgentTest, LooksIntoAScriptThatNobodyHasLookedInto) {
  MakeAgent();

  agent_->OnMeasure(ScriptOrder());
  const Measurement answer = AwaitMeasurement();

  ASSERT_TRUE(answer.error.ok()) << answer.error;
  EXPECT_FALSE(answer.profile.has_value());
  ASSERT_TRUE(answer.script.has_value());
  EXPECT_EQ(answer.script->sha256, "hash of /net.pt");
}

TEST_F(MeasuringAgentTest, DoesNotMeasureASpecThatCannotBe) {
  MakeAgent();
  MeasureOrder order;
  order.id = 1;
  order.layers = Order(1).spec;
  order.layers->train.micro_batch = 0;
  order.cpu_capability = "avx2";

  agent_->OnMeasure(order);
  const Measurement answer = AwaitMeasurement();

  EXPECT_TRUE(absl::IsInvalidArgument(answer.error)) << answer.error;
  EXPECT_THAT(std::string(answer.error.message()),
              HasSubstr("order: train.micro_batch: must be from 1"));
}

TEST_F(MeasuringAgentTest, StartsAnewForAnotherCapabilityBeforeItMeasures) {
  MakeAgent();
  MeasureOrder order;
  order.id = 1;
  order.layers = Order(1).spec;
  order.cpu_capability = "default";

  agent_->OnMeasure(order);
  restarted_.WaitForNotification();

  EXPECT_EQ(restart_at_, "default");
}

TEST_F(MeasuringAgentTest, StartsAnewWhenAScriptThatWasWithdrawnDoesNotEnd) {
  clock_used_ = &fake_clock_;
  absl::Notification ends;
  factory_.script_ends_ = &ends;
  MakeAgent();
  agent_->OnMeasure(ScriptOrder());
  factory_.script_begun_.WaitForNotification();
  fake_clock_.Advance(absl::Hours(1));  // as long as it is wanted

  agent_->OnMeasure(std::nullopt);
  fake_clock_.Advance(absl::Seconds(59));
  agent_->Heartbeat();
  EXPECT_FALSE(restarted_.HasBeenNotified());
  fake_clock_.Advance(absl::Seconds(1));
  agent_->Heartbeat();
  agent_->Heartbeat();  // says it once: Notify() twice is fatal

  EXPECT_TRUE(restarted_.HasBeenNotified());
  EXPECT_EQ(restart_at_, "avx2");
  ends.Notify();
  agent_.reset();
}

TEST_F(MeasuringAgentTest, LetsARunThatCameAfterAMeasurementTakeItsTime) {
  clock_used_ = &fake_clock_;
  prober_.blocks = true;
  factory_.upload_blocks_ = true;
  MakeAgent();
  agent_->OnMeasure(LinkOrder(7));
  agent_->OnOrder(Order(1));
  Await(RunPhase::kRunning);

  agent_->OnMeasure(std::nullopt);
  fake_clock_.Advance(absl::Hours(1));
  agent_->Heartbeat();

  EXPECT_FALSE(restarted_.HasBeenNotified());
}

TEST_F(MeasuringAgentTest, LeavesAMeasurementForARun) {
  prober_.blocks = true;
  MakeAgent();
  agent_->OnMeasure(LinkOrder(7));

  agent_->OnMeasure(std::nullopt);
  agent_->OnOrder(Order(1));

  Await(RunPhase::kDone);
  EXPECT_FALSE(agent_->Heartbeat().measurement.has_value());
}

TEST_F(MeasuringAgentTest, SaysThatItCannotMeasureWithoutAProber) {
  prober_used_ = nullptr;
  MakeAgent();

  agent_->OnMeasure(LinkOrder(7));

  EXPECT_TRUE(absl::IsUnimplemented(AwaitMeasurement().error));
}

TEST_F(MeasuringAgentTest, EndsWhileItMeasures) {
  prober_.blocks = true;
  MakeAgent();
  agent_->OnMeasure(LinkOrder(7));

  agent_.reset();
}

}  // namespace
}  // namespace paceline

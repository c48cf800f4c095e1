#include "worker/agent/agent.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/agent_fixture.h"
#include "worker/rpc/attach_client.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
  EXPECT_GT(agent_->recorder().predicted_memory_bytes(), 0);
  EXPECT_EQ(factory_.threads_, 3);
}

TEST_F(AgentTest, DoesNothingWhenTheSameOrderComesAgain) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(RunPhase::kDone);

  agent_->OnOrder(Order(1));

  EXPECT_EQ(Await(RunPhase::kDone).step, 4);
  EXPECT_EQ(agent_->recorder().total_steps(), 4);
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

TEST_F(AgentTest, StartsAnewWhenARunThatWasWithdrawnDoesNotEnd) {
  clock_used_ = &fake_clock_;
  absl::Notification ends;
  factory_.data_ends_ = &ends;
  MakeAgent();
  agent_->OnOrder(Order(1));
  factory_.data_begun_.WaitForNotification();
  fake_clock_.Advance(absl::Hours(1));  // as long as it is wanted
  agent_->Heartbeat();
  EXPECT_FALSE(restarted_.HasBeenNotified());

  agent_->OnOrder(std::nullopt);
  fake_clock_.Advance(absl::Seconds(60));
  agent_->Heartbeat();

  EXPECT_TRUE(restarted_.HasBeenNotified());
  EXPECT_EQ(restart_at_, "avx2");
  ends.Notify();
  agent_.reset();
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
  EXPECT_EQ(agent_->recorder().total_steps(), 0);
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
  EXPECT_EQ(agent_->recorder().total_steps(), 0);
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

// The records that had gathered while the coordinator was away did not fit into
// a message, and so were never heard.
TEST_F(AgentTest, SendsABacklogOfRecordsInHeartbeatsOfBoundedSize) {
  constexpr int kLines = 900;
  constexpr size_t kMostBytes = 300'000;
  absl::Notification ends;
  factory_.data_ends_ = &ends;
  MakeAgent();
  agent_->OnOrder(Order(1));
  factory_.data_begun_.WaitForNotification();
  for (int line = 0; line < kLines; ++line) {
    agent_->AddLog({0, 0, "info", "", std::string(8000, 'x')});
  }
  ends.Notify();
  while (agent_->recorder().running()) std::this_thread::yield();

  int heartbeats = 0;
  std::vector<LogRecord> lines;
  RunPhase phase = RunPhase::kNone;
  for (; phase != RunPhase::kDone; ++heartbeats) {
    const HeartbeatContent beat = agent_->Heartbeat();
    EXPECT_LE(ToProto(beat, 1).ByteSizeLong(), kMostBytes);
    ASSERT_FALSE(beat.logs.empty()) << "an end without the last lines";
    lines.insert(lines.end(), beat.logs.begin(), beat.logs.end());
    phase = beat.run->phase;
    agent_->OnAck(beat.marks);
    agent_->OnAttached();  // what was not acknowledged is sent again
    // The rest is due, however long the period is.
    if (phase != RunPhase::kDone) agent_->AwaitChange(absl::InfiniteDuration());
  }

  EXPECT_GT(heartbeats, 1);
  ASSERT_THAT(lines, SizeIs(kLines));
  for (int i = 0; i < kLines; ++i) EXPECT_EQ(lines[i].origin_sequence, i + 1);
  EXPECT_THAT(agent_->Heartbeat().logs, IsEmpty());
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

}  // namespace
}  // namespace paceline

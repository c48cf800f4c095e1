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
  const v1::RunState status = Await(v1::RunState::PHASE_DONE);

  EXPECT_EQ(status.step(), 4);
  EXPECT_EQ(status.steps(), 4);
  EXPECT_EQ(status.samples(), 32);
  EXPECT_THAT(steps_, SizeIs(4));
  EXPECT_THAT(evaluations_, SizeIs(1));
  EXPECT_THAT(factory_.uploaded_, SizeIs(4));  // two weights, two biases
  EXPECT_GT(agent_->recorder().predicted_memory_bytes(), 0);
  EXPECT_EQ(factory_.threads_, 3);
}

TEST_F(AgentTest, DoesNothingWhenTheSameOrderComesAgain) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(v1::RunState::PHASE_DONE);

  agent_->OnOrder(Order(1));

  EXPECT_EQ(Await(v1::RunState::PHASE_DONE).step(), 4);
  EXPECT_EQ(agent_->recorder().total_steps(), 4);
}

TEST_F(AgentTest, RepeatsRecordsThatWereNotAcknowledged) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(v1::RunState::PHASE_DONE);
  EXPECT_THAT(agent_->Heartbeat().heartbeat.steps(), IsEmpty());

  agent_->OnAttached();
  const MarkedHeartbeat again = agent_->Heartbeat();
  EXPECT_THAT(again.heartbeat.steps(), SizeIs(4));

  agent_->OnAck(again.marks);
  agent_->OnAttached();
  EXPECT_THAT(agent_->Heartbeat().heartbeat.steps(), IsEmpty());
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
  Await(v1::RunState::PHASE_RUNNING);

  agent_->OnOrder(std::nullopt);
  factory_.upload_blocks_ = false;
  agent_->OnOrder(Order(2));

  EXPECT_EQ(Await(v1::RunState::PHASE_DONE).job(), 2);
}

// The control thread may still be cancelling the old run when the compute
// thread has already left it.
TEST_F(AgentTest, OpensTheNextRunOnlyWhenTheLastOneIsClosed) {
  MakeAgent();
  for (int64_t job = 1; job <= 3; ++job) {
    agent_->OnOrder(Order(job));
    EXPECT_EQ(Await(v1::RunState::PHASE_DONE).job(), job);
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
  const v1::RunState status = Await(v1::RunState::PHASE_FAILED);

  EXPECT_EQ(ErrorOf(status).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ErrorOf(status).message()),
              AllOf(HasSubstr("cpu_capability avx2"),
                    HasSubstr("kernels run at default")));
  EXPECT_EQ(agent_->recorder().total_steps(), 0);
}

TEST_F(AgentTest, RunsWhenItsKernelsSayTheOrderedCapability) {
  active_capability_ = "avx2";
  MakeAgent();

  agent_->OnOrder(Order(1));

  EXPECT_EQ(Await(v1::RunState::PHASE_DONE).step(), 4);
}

TEST_F(AgentTest, SaysThatItRestartsInEveryHeartbeatFromThenOn) {
  MakeAgent();
  EXPECT_FALSE(agent_->Heartbeat().heartbeat.restarting());

  agent_->AnnounceRestart();

  EXPECT_TRUE(agent_->Heartbeat().heartbeat.restarting());
  EXPECT_TRUE(agent_->Heartbeat().heartbeat.restarting());
}

TEST_F(AgentTest, NumbersTheLinesOfItsLog) {
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(v1::RunState::PHASE_DONE);
  agent_->AddLog(LineOf("one"));
  agent_->AddLog(LineOf("skipped caf\xE9.png"));

  agent_->Heartbeat();
  agent_->OnAttached();  // nothing was acknowledged
  const MarkedHeartbeat again = agent_->Heartbeat();

  const auto& logs = again.heartbeat.logs();
  ASSERT_EQ(logs.size(), 2);
  EXPECT_EQ(logs[0].sequence(), 1);
  EXPECT_EQ(logs[1].sequence(), 2);
  EXPECT_EQ(logs[1].text(), "skipped caf\\xe9.png") << "must be UTF-8";
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
    agent_->AddLog(LineOf(std::string(8000, 'x')));
  }
  ends.Notify();
  while (agent_->recorder().running()) std::this_thread::yield();

  int heartbeats = 0;
  std::vector<v1::LogLine> lines;
  v1::RunState::Phase phase = v1::RunState::PHASE_UNSPECIFIED;
  for (; phase != v1::RunState::PHASE_DONE; ++heartbeats) {
    const auto [beat, marks] = agent_->Heartbeat();
    EXPECT_LE(beat.ByteSizeLong(), kMostBytes);
    ASSERT_FALSE(beat.logs().empty()) << "an end without the last lines";
    lines.insert(lines.end(), beat.logs().begin(), beat.logs().end());
    phase = beat.run().phase();
    agent_->OnAck(marks);
    agent_->OnAttached();  // what was not acknowledged is sent again
    // The rest is due, however long the period is.
    if (phase != v1::RunState::PHASE_DONE)
      agent_->AwaitChange(absl::InfiniteDuration());
  }

  EXPECT_GT(heartbeats, 1);
  ASSERT_THAT(lines, SizeIs(kLines));
  for (int i = 0; i < kLines; ++i) EXPECT_EQ(lines[i].sequence(), i + 1);
  EXPECT_THAT(agent_->Heartbeat().heartbeat.logs(), IsEmpty());
}

TEST_F(AgentTest, FailsTheRunWhenANeighbourHasMoved) {
  factory_.upload_blocks_ = true;
  MakeAgent();
  agent_->OnOrder(Order(1));
  Await(v1::RunState::PHASE_RUNNING);
  RunOrder moved = Order(1);
  moved.stages[0].address = "h:2";

  agent_->OnOrder(moved);

  EXPECT_EQ(ErrorOf(Await(v1::RunState::PHASE_FAILED)).code(),
            absl::StatusCode::kAborted)
      << "a new submit mends it";
}

TEST_F(AgentTest, ReportsWhyARunFailed) {
  MakeAgent();
  RunOrder order = Order(1);
  order.spec.data.name = "idx";
  order.spec.data.path = "/no/such/folder";

  agent_->OnOrder(order);

  const v1::RunState status = Await(v1::RunState::PHASE_FAILED);
  EXPECT_FALSE(ErrorOf(status).ok());
  EXPECT_THAT(std::string(ErrorOf(status).message()),
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
  Await(v1::RunState::PHASE_DONE);

  for (const float value : factory_.first_upload_.As<float>()) {
    ASSERT_NEAR(value, 0, 1e-25);
  }
}

TEST_F(AgentTest, FailsTheRunWhenItsWeightsCannotBeRead) {
  MakeAgent();
  RunOrder order = Order(1);
  order.spec.model.weights = "/gone";

  agent_->OnOrder(order);

  const v1::RunState report = Await(v1::RunState::PHASE_FAILED);
  EXPECT_TRUE(absl::IsNotFound(ErrorOf(report))) << ErrorOf(report);
}

TEST_F(AgentTest, SaysWhatItHasReadAndRefusesWhatTheJobDidNotBeginWith) {
  MakeAgent();
  RunOrder order = Order(1);
  order.spec.model.weights = "/good";
  order.spec.data.path = "/data";
  agent_->OnOrder(order);
  const v1::RunState first = Await(v1::RunState::PHASE_DONE);
  EXPECT_EQ(first.inputs().weights(), 7u);
  EXPECT_NE(first.inputs().data(), 0u);

  order.inputs = first.inputs();
  order.fence.job = JobId{2};
  agent_->OnOrder(order);
  EXPECT_EQ(Await(v1::RunState::PHASE_DONE).job(), 2);

  order.inputs.set_weights(8);
  order.fence.job = JobId{3};
  agent_->OnOrder(order);
  v1::RunState failed = Await(v1::RunState::PHASE_FAILED);
  EXPECT_TRUE(absl::IsFailedPrecondition(ErrorOf(failed)));
  EXPECT_THAT(std::string(ErrorOf(failed).message()),
              AllOf(HasSubstr("model.weights /good"),
                    HasSubstr("fingerprint 0000000000000007 on this worker"),
                    HasSubstr("began with 0000000000000008")));
  EXPECT_EQ(failed.inputs().weights(), 0u);

  order.inputs.set_weights(7);
  order.inputs.set_data(1);
  order.fence.job = JobId{4};
  agent_->OnOrder(order);
  failed = Await(v1::RunState::PHASE_FAILED);
  EXPECT_TRUE(absl::IsNotFound(ErrorOf(failed))) << ErrorOf(failed);
  EXPECT_THAT(std::string(ErrorOf(failed).message()),
              HasSubstr("data.path /data has fingerprint"));
  EXPECT_EQ(failed.step(), 0);
}

TEST_F(AgentTest, RefusesAnOrderWhoseLayersDoNotFit) {
  MakeAgent();
  RunOrder order = Order(1);
  order.stages[0].layers.last = 99;

  agent_->OnOrder(order);

  EXPECT_EQ(ErrorOf(Await(v1::RunState::PHASE_FAILED)).code(),
            absl::StatusCode::kInvalidArgument);
}

// The worker divides by these numbers, or breaks an invariant by that name.
TEST_F(AgentTest, FailsTheRunOfASpecThatCannotBe) {
  const auto refusal = [this](const std::function<void(TrainSpec&)>& spoil) {
    MakeAgent();
    RunOrder order = Order(1);
    spoil(order.spec.train);
    agent_->OnOrder(order);
    const absl::Status error = ErrorOf(Await(v1::RunState::PHASE_FAILED));
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
  Await(v1::RunState::PHASE_RUNNING);

  agent_.reset();  // joins the compute thread

  EXPECT_THAT(factory_.uploaded_, IsEmpty());
}

}  // namespace
}  // namespace paceline

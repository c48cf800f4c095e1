#include "worker/control/agent.h"

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/os/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/control/agent_fixture.h"
#include "worker/transport/attach_client.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(AgentTest, RunsAnOrderToItsEndAndHandsTheWeightsOver) {
  const v1::RunState status = RunToItsEnd(Order(1));

  EXPECT_EQ(status.step(), 4);
  EXPECT_EQ(status.steps(), 4);
  EXPECT_EQ(status.samples(), 32);
  EXPECT_THAT(steps_, SizeIs(4));
  EXPECT_THAT(evaluations_, SizeIs(1));
  EXPECT_THAT(factory_.uploaded_, SizeIs(4));  // two weights, two biases
  EXPECT_GT(agent().recorder().predicted_memory_bytes(), 0);
  EXPECT_EQ(factory_.threads_, 3);
}

TEST_F(AgentTest, DoesNothingWhenTheSameOrderComesAgain) {
  RunToItsEnd(Order(1));

  EXPECT_EQ(RunToItsEnd(Order(1)).step(), 4);
  EXPECT_EQ(agent().recorder().total_steps(), 4);
}

TEST_F(AgentTest, RepeatsRecordsThatWereNotAcknowledged) {
  RunToItsEnd(Order(1));
  EXPECT_THAT(Beat().steps(), IsEmpty());

  agent().OnAttached();
  const MarkedHeartbeat again = agent().Heartbeat();
  EXPECT_THAT(again.heartbeat.steps(), SizeIs(4));

  agent().OnAck(again.marks);
  agent().OnAttached();
  EXPECT_THAT(Beat().steps(), IsEmpty());
}

TEST_F(AgentTest, StartsAnewWhenARunThatWasWithdrawnDoesNotEnd) {
  clock_used_ = &fake_clock_;
  SteadyNotification ends;
  factory_.data_ends_ = &ends;
  agent().OnOrder(Order(1));
  factory_.data_begun_.WaitForNotification();
  fake_clock_.Advance(absl::Hours(1));  // as long as it is wanted
  agent().Heartbeat();
  EXPECT_FALSE(restarted_.HasBeenNotified());

  agent().OnOrder(std::nullopt);
  fake_clock_.Advance(absl::Seconds(60));
  agent().Heartbeat();

  EXPECT_TRUE(restarted_.HasBeenNotified());
  EXPECT_EQ(restart_at_, "avx2");
  ends.Notify();
  agent_.reset();
}

TEST_F(AgentTest, EndsARunWhenItsOrderIsWithdrawn) {
  factory_.upload_blocks_ = true;
  Run(Order(1), v1::RunState::PHASE_RUNNING);

  agent().OnOrder(std::nullopt);
  factory_.upload_blocks_ = false;

  EXPECT_EQ(RunToItsEnd(Order(2)).job(), 2);
}

TEST_F(AgentTest, SaysThatItsReportsDoNotReachTheFirstStage) {
  factory_.broken_ = {WorkerId{9}, absl::Seconds(2), /*refused=*/true};
  agent().OnOrder(Order(1));

  const auto run = AwaitBeat(agent(), [](const v1::Heartbeat& beat) {
                     return !beat.run().member().peers().empty();
                   }).run();

  ASSERT_EQ(run.member().peers_size(), 1);
  const v1::PeerState& peer = run.member().peers(0);
  EXPECT_EQ(peer.peer().worker_id(), 9);
  EXPECT_EQ(peer.broken_ms(), 2000);
  EXPECT_TRUE(peer.refused());
}

// The control thread may still be cancelling the old run when the compute
// thread has already left it.
TEST_F(AgentTest, OpensTheNextRunOnlyWhenTheLastOneIsClosed) {
  for (int64_t job = 1; job <= 3; ++job) {
    EXPECT_EQ(RunToItsEnd(Order(job)).job(), job);
  }
}

TEST_F(AgentTest, AsksForARestartWhenAnotherCapabilityIsOrdered) {
  RunOrder order = Order(1);
  order.cpu_capability = "default";

  agent().OnOrder(order);

  ASSERT_TRUE(restarted_.WaitFor(kLongest));
  EXPECT_EQ(restart_at_, "default");
  EXPECT_EQ(agent().recorder().total_steps(), 0);
}

TEST_F(AgentTest, RunsWhenItsKernelsSayTheOrderedCapability) {
  active_capability_ = "avx2";
  EXPECT_EQ(RunToItsEnd(Order(1)).step(), 4);
}

TEST_F(AgentTest, SaysThatItRestartsInEveryHeartbeatFromThenOn) {
  EXPECT_FALSE(Beat().restarting());

  agent().Announce(WorkerEnd::kRestarting);

  EXPECT_TRUE(Beat().restarting());
  EXPECT_TRUE(Beat().restarting());
}

TEST_F(AgentTest, NumbersTheLinesOfItsLog) {
  RunToItsEnd(Order(1));
  agent().AddLog(LineOf("one"));
  agent().AddLog(LineOf("skipped caf\xE9.png"));

  agent().Heartbeat();
  agent().OnAttached();  // nothing was acknowledged
  const MarkedHeartbeat again = agent().Heartbeat();

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
  SteadyNotification ends;
  factory_.data_ends_ = &ends;
  agent().OnOrder(Order(1));
  factory_.data_begun_.WaitForNotification();
  for (int line = 0; line < kLines; ++line) {
    agent().AddLog(LineOf(std::string(8000, 'x')));
  }
  ends.Notify();
  while (agent().recorder().running()) std::this_thread::yield();

  int heartbeats = 0;
  std::vector<v1::LogLine> lines;
  v1::RunState::Phase phase = v1::RunState::PHASE_UNSPECIFIED;
  for (; phase != v1::RunState::PHASE_DONE; ++heartbeats) {
    const auto [beat, marks] = agent().Heartbeat();
    EXPECT_LE(beat.ByteSizeLong(), kMostBytes);
    ASSERT_FALSE(beat.logs().empty()) << "an end without the last lines";
    lines.insert(lines.end(), beat.logs().begin(), beat.logs().end());
    phase = beat.run().phase();
    agent().OnAck(marks);
    agent().OnAttached();  // what was not acknowledged is sent again
    // The rest is due, however long the period is.
    if (phase != v1::RunState::PHASE_DONE)
      agent().AwaitChange(absl::InfiniteDuration());
  }

  EXPECT_GT(heartbeats, 1);
  ASSERT_THAT(lines, SizeIs(kLines));
  for (int i = 0; i < kLines; ++i) EXPECT_EQ(lines[i].sequence(), i + 1);
  EXPECT_THAT(Beat().logs(), IsEmpty());
}

TEST_F(AgentTest, FailsTheRunWhenANeighbourHasMoved) {
  factory_.upload_blocks_ = true;
  Run(Order(1), v1::RunState::PHASE_RUNNING);
  RunOrder moved = Order(1);
  moved.stages[0].address = "h:2";

  agent().OnOrder(moved);

  EXPECT_EQ(ErrorOf(Await(v1::RunState::PHASE_FAILED)).code(),
            absl::StatusCode::kAborted)
      << "a new submit mends it";
}

TEST_F(AgentTest, BeginsWithTheWeightsOfAFile) {
  RunOrder order = Order(1);
  order.spec.model.weights = "/good";
  // Too small to change a value.
  order.spec.train.learning_rate.base = 1e-30;
  factory_.train_ = order.spec.train;

  RunToItsEnd(order);

  for (const float value : factory_.first_upload_.As<float>()) {
    ASSERT_NEAR(value, 0, 1e-25);
  }
}

TEST_F(AgentTest, SaysWhatItHasReadAndRefusesWhatTheJobDidNotBeginWith) {
  RunOrder order = Order(1);
  order.spec.model.weights = "/good";
  order.spec.data.path = "/data";
  const v1::RunState first = Run(order, v1::RunState::PHASE_DONE);
  EXPECT_EQ(first.inputs().weights(), 7u);
  EXPECT_NE(first.inputs().data(), 0u);

  order.inputs = first.inputs();
  order.fence.job = JobId{2};
  EXPECT_EQ(Run(order, v1::RunState::PHASE_DONE).job(), 2);

  order.inputs.set_weights(8);
  order.fence.job = JobId{3};
  v1::RunState failed = Run(order, v1::RunState::PHASE_FAILED);
  EXPECT_TRUE(absl::IsFailedPrecondition(ErrorOf(failed)));
  EXPECT_THAT(std::string(ErrorOf(failed).message()),
              AllOf(HasSubstr("model.weights /good"),
                    HasSubstr("fingerprint 0000000000000007 on this worker"),
                    HasSubstr("began with 0000000000000008")));
  EXPECT_EQ(failed.inputs().weights(), 0u);

  agent_.reset();  // whose last report stays
  order.inputs.set_weights(7);
  order.inputs.set_teacher(8);
  order.spec.pipeline.stages = 1;
  order.spec.train.distill.weights = "/good";
  order.fence.job = JobId{5};
  failed = Run(order, v1::RunState::PHASE_FAILED);
  EXPECT_THAT(std::string(ErrorOf(failed).message()),
              HasSubstr("train.distill.weights /good has fingerprint"));

  agent_.reset();
  order.inputs.set_teacher(7);
  order.inputs.set_data(1);
  order.fence.job = JobId{4};
  failed = Run(order, v1::RunState::PHASE_FAILED);
  EXPECT_TRUE(absl::IsNotFound(ErrorOf(failed))) << ErrorOf(failed);
  EXPECT_THAT(std::string(ErrorOf(failed).message()),
              HasSubstr("data.path /data has fingerprint"));
  EXPECT_EQ(failed.step(), 0);
}

TEST_F(AgentTest, FailsTheRunOfAnOrderThatItCannotCarryOut) {
  const struct {
    absl::StatusCode code;
    const char* says;
    void (*spoil)(RunOrder&);
  } kBad[] = {
      {absl::StatusCode::kNotFound, "/no/such/folder",
       [](RunOrder& order) {
         order.spec.data.name = "idx";
         order.spec.data.path = "/no/such/folder";
       }},
      {absl::StatusCode::kNotFound, "/gone",
       [](RunOrder& order) { order.spec.model.weights = "/gone"; }},
      {absl::StatusCode::kInvalidArgument, "99 layers",
       [](RunOrder& order) { order.stages[0].layers.last = 99; }},
      // The worker divides by this number.
      {absl::StatusCode::kInvalidArgument, "order: train.micro_batch: must be",
       [](RunOrder& order) { order.spec.train.micro_batch = 0; }},
  };
  for (const auto& bad : kBad) {
    agent_.reset();
    RunOrder order = Order(1);
    bad.spoil(order);

    ExpectError(ErrorOf(Run(order, v1::RunState::PHASE_FAILED)), bad.code,
                HasSubstr(bad.says));
  }
}

// As when somebody copies it there, and the next attempt fails again.
TEST_F(AgentTest, SaysThatAFileOfAFailedRunHasChanged) {
  const TempFolder folder;
  RunOrder order = Order(1);
  order.spec.data.name = "idx";
  order.spec.data.path = folder.Path("data");
  const auto says = [](const v1::Heartbeat& beat) {
    return beat.repaired_jobs_size() == 1 && beat.repaired_jobs(0) == 1;
  };
  Run(order, v1::RunState::PHASE_FAILED);
  EXPECT_FALSE(says(agent().Heartbeat().heartbeat));

  folder.Write("data/t10k-labels-idx1-ubyte", "damaged");
  EXPECT_TRUE(says(AwaitBeat(agent(), says)));

  ++order.fence.attempt;
  agent().OnOrder(order, {1, 2});
  EXPECT_FALSE(says(AwaitBeat(agent(), [](const v1::Heartbeat& beat) {
    return beat.run().attempt() == 2 &&
           beat.run().phase() == v1::RunState::PHASE_FAILED;
  })));
}

// Were forgotten: the job stayed paused for good after they had been mended.
TEST_F(AgentTest, LooksAtTheFilesOfAFailedRunAfterAnotherStageOfItsJobToo) {
  for (const bool withdrawn : {true, false}) {
    agent_.reset();
    const TempFolder folder;
    RunOrder order = Order(1);
    order.spec.data.name = "idx";
    order.spec.data.path = folder.Path("data");
    factory_.upload_blocks_ = true;
    Run(order, v1::RunState::PHASE_FAILED);

    folder.Write("data/t10k-labels-idx1-ubyte", "mended");
    RunOrder other = Order(1);  // reads no file
    other.fence.attempt = 2;
    agent().OnOrder(other, {1, 2});
    AwaitBeat(agent(), [](const v1::Heartbeat& beat) {
      return beat.run().attempt() == 2 &&
             beat.run().phase() == v1::RunState::PHASE_RUNNING;
    });
    other.stages[0].address = "h:2";  // ends it too
    agent().OnOrder(withdrawn ? std::nullopt : std::optional(other), {1, 3});

    const v1::Heartbeat last =
        AwaitBeat(agent(), [](const v1::Heartbeat& beat) {
          return beat.repaired_jobs_size() == 1 &&
                 beat.run().phase() != v1::RunState::PHASE_RUNNING;
        });
    EXPECT_THAT(last.repaired_jobs(), ElementsAre(1)) << withdrawn;
  }
}

// The job is over, and the worker would look for ever.
TEST_F(AgentTest, ForgetsTheFilesOfAFailedRunAfterAWeek) {
  clock_used_ = &fake_clock_;
  const TempFolder folder;
  const auto fail = [&](int64_t job) {
    RunOrder order = Order(job);
    order.spec.data.name = "idx";
    order.spec.data.path = folder.Path(std::to_string(job));
    agent().OnOrder(order);
    AwaitBeat(agent(), [&](const v1::Heartbeat& beat) {
      return beat.run().job() == job &&
             beat.run().phase() == v1::RunState::PHASE_FAILED;
    });
  };
  fail(1);
  fake_clock_.Advance(absl::Hours(7 * 24));
  fail(2);

  folder.Write("1/train-images-idx3-ubyte", "");
  folder.Write("2/train-images-idx3-ubyte", "");

  const v1::Heartbeat last = AwaitBeat(agent(), [](const v1::Heartbeat& beat) {
    return absl::c_linear_search(beat.repaired_jobs(), 2);
  });
  EXPECT_THAT(last.repaired_jobs(), ElementsAre(2));
}

TEST_F(AgentTest, FailsTheRunWhenItsKernelsAreAtAnotherCapability) {
  active_capability_ = "default";

  ExpectError(ErrorOf(Run(Order(1), v1::RunState::PHASE_FAILED)),
              absl::StatusCode::kFailedPrecondition,
              HasSubstr("kernels run at default"));
  EXPECT_EQ(agent().recorder().total_steps(), 0);
}

TEST_F(AgentTest, StopsInTheMiddleOfARun) {
  factory_.upload_blocks_ = true;
  Run(Order(1), v1::RunState::PHASE_RUNNING);

  agent_.reset();  // joins the compute thread

  EXPECT_THAT(factory_.uploaded_, IsEmpty());
}

}  // namespace
}  // namespace paceline

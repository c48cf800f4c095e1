// Orders with a round group: what an agent makes of them, of new views, and of
// a group that it is no member of any more.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/os/thread.h"
#include "core/rpc/convert/report_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/control/await_beat.h"
#include "tests/worker/control/fake_run_factory.h"
#include "tests/worker/rounds/training_group.h"
#include "worker/control/agent.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kLongestTurn = absl::Seconds(60);

// Groups only.  Thread-safe, as the compute thread uses it and tests look.
class GroupFactory final : public FakeRunFactory {
 public:
  explicit GroupFactory(MemoryRoundNetwork& network) : network_(network) {}

  absl::StatusOr<std::shared_ptr<RoundTransport>> ConnectGroup(
      const Fence& fence, const MemberId& self, RoundSink* sink) override {
    const absl::MutexLock lock(&mutex_);
    attempts_.push_back(fence.attempt);
    return network_.Connect(self, sink);
  }
  absl::Status UploadWeights(const Fence&, const std::vector<TensorPart>&,
                             const CancelToken&) override {
    const absl::MutexLock lock(&mutex_);
    ++uploads_;
    return absl::OkStatus();
  }

  // The attempts of the fences that were opened.
  std::vector<int64_t> attempts() const {
    const absl::MutexLock lock(&mutex_);
    return attempts_;
  }
  int uploads() const {
    const absl::MutexLock lock(&mutex_);
    return uploads_;
  }

 private:
  MemoryRoundNetwork& network_;
  mutable absl::Mutex mutex_;
  std::vector<int64_t> attempts_ ABSL_GUARDED_BY(mutex_);
  int uploads_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Remembers the kill, and lives on.
class FakeFaults final : public FaultActions {
 public:
  void Kill() override {
    if (!killed.HasBeenNotified()) killed.Notify();
  }
  void Hang(absl::Duration) override {}

  SteadyNotification killed;
};

// A worker that is a member of a group in this process.
class GroupAgent {
 public:
  GroupAgent(MemoryRoundNetwork& network, int number)
      : factory(network), self_(MemberOf(number)) {
    AgentOptions options;
    options.cpu_capability = "avx2";
    options.fault_actions = &faults;
    options.restart = [this](const std::string&) {
      if (!restarted.HasBeenNotified()) restarted.Notify();
    };
    agent_ = std::make_unique<Agent>(std::move(options), factory, clock_);
    agent_->OnWelcome(self_.worker);
  }

  void Order(const JobSpec& spec, const GroupOrder& group,
             int64_t attempt = 1) {
    RunOrder order =
        WholeModelOrder({JobId{1}, attempt, attempt}, spec, self_.worker);
    order.group = group;
    agent_->OnOrder(std::move(order));
  }

  // Heartbeats until one is as wanted; the last one.
  v1::RunState Await(const std::function<bool(const v1::RunState&)>& wanted) {
    const v1::RunState report =
        AwaitBeat(*agent_, [&](const v1::Heartbeat& beat) {
          return wanted(beat.run());
        }).run();
    EXPECT_TRUE(wanted(report)) << report.ShortDebugString();
    return report;
  }
  v1::RunState AwaitPhase(v1::RunState::Phase phase) {
    return Await([phase](const v1::RunState& r) { return r.phase() == phase; });
  }
  // Until `steps` are applied.
  v1::RunState AwaitStep(int64_t steps) {
    return Await([steps](const v1::RunState& r) {
      return r.has_member() && r.member().next() >= steps;
    });
  }

  // Takes the order back, and waits until the run is over.
  void Stop() {
    agent_->OnOrder(std::nullopt);
    AwaitBeat(*agent_,
              [&](const v1::Heartbeat&) { return !rounds().in_group; });
  }
  RoundReading rounds() const { return agent_->Rounds(); }

  int64_t predicted_memory_bytes() const {
    return agent_->recorder().predicted_memory_bytes();
  }

  GroupFactory factory;
  FakeFaults faults;
  SteadyNotification restarted;

 private:
  const MemberId self_;
  const SystemClock clock_{};
  std::unique_ptr<Agent> agent_;
};

constexpr int64_t kForEver = 1'000'000;

class AgentGroupTest : public ::testing::Test {
 protected:
  // The first view: of workers 1 and 2.
  static GroupOrder Both() {
    return MakeGroup(MakeView(1, {{MemberOf(1), 0}, {MemberOf(2), 0}}));
  }
  static GroupOrder Alone() {
    return MakeGroup(MakeView(1, {{MemberOf(1), 0}}));
  }

  // Both members begin with the first view.
  static void Begin(GroupAgent& first, GroupAgent& second,
                    const JobSpec& spec) {
    first.Order(spec, Both());
    second.Order(spec, Both());
  }

  MemoryRoundNetwork network_;
};

TEST_F(AgentGroupTest, MembersTrainTogetherAndOneHandsTheWeightsOver) {
  GroupAgent first(network_, 1);
  GroupAgent second(network_, 2);

  Begin(first, second, TrainingJob(8));
  first.AwaitPhase(v1::RunState::PHASE_DONE);
  second.AwaitPhase(v1::RunState::PHASE_DONE);

  const auto whole = [](const v1::RunState& report) {
    return report.has_member() && report.member().state_step() == 8;
  };
  EXPECT_EQ(first.Await(whole).member().state_hash(),
            second.Await(whole).member().state_hash());
  // It does so once it is done.
  first.Await([&](const v1::RunState&) { return first.factory.uploads() > 0; });
  EXPECT_EQ(first.factory.uploads(), 1);
  EXPECT_EQ(second.factory.uploads(), 0);
  EXPECT_GT(first.predicted_memory_bytes(), 0);
}

TEST_F(AgentGroupTest, CountsAllRoundsOfRunsThatAreOver) {
  GroupAgent agent(network_, 1);

  for (int64_t attempt = 1; attempt <= 2; ++attempt) {
    agent.Order(TrainingJob(8), Alone(), attempt);
    agent.Await([attempt](const v1::RunState& report) {
      return report.attempt() == attempt &&
             report.phase() == v1::RunState::PHASE_DONE;
    });
    agent.Stop();
  }

  EXPECT_FALSE(agent.rounds().in_group);
  EXPECT_EQ(agent.rounds().stats.committed, 2 * 8);
}

TEST_F(AgentGroupTest, AViewOfTheSameFenceGoesToTheRunThatIsThere) {
  GroupAgent first(network_, 1);
  GroupAgent second(network_, 2);
  Begin(first, second, TrainingJob(kForEver));
  first.AwaitStep(3);
  network_.Kill(MemberOf(2));

  GroupOrder without = Alone();
  without.view.id.counter = 2;
  first.Order(TrainingJob(kForEver), without);

  const v1::RunState adopted = first.Await([&](const v1::RunState& report) {
    return report.has_member() && report.member().view().counter() == 2;
  });
  first.AwaitStep(adopted.member().next() + 3);
  EXPECT_THAT(first.factory.attempts(), ElementsAre(1)) << "one run, all along";
}

// Worker 2 is a member, and nobody is there.
TEST_F(AgentGroupTest, SaysWhoOwesAnAnswerForTheCoordinatorsLease) {
  GroupAgent first(network_, 1);
  GroupOrder order = Both();
  order.lease = absl::Milliseconds(150);
  first.Order(TrainingJob(kForEver), order);

  const v1::RunState report = first.Await([](const v1::RunState& report) {
    return report.has_member() && !report.member().peers().empty() &&
           report.member().peers(0).owing_ms() > 0;
  });

  ASSERT_FALSE(report.member().peers().empty());
  const v1::PeerState& peer = report.member().peers(0);
  EXPECT_EQ(peer.peer().worker_id(), 2);
  EXPECT_GE(absl::Milliseconds(peer.owing_ms()), order.lease);
  EXPECT_LT(absl::Milliseconds(peer.owing_ms()), RoundExchangeOptions().lease);
}

TEST_F(AgentGroupTest, WhoIsNoMemberAnyMoreAsksToStartAnew) {
  GroupAgent first(network_, 1);
  GroupAgent second(network_, 2);
  Begin(first, second, TrainingJob(kForEver));
  second.AwaitStep(3);

  GroupOrder without =
      MakeGroup(MakeView(2, {{MemberOf(1), 0}}), {MemberOf(2)});
  second.Order(TrainingJob(kForEver), without);

  EXPECT_TRUE(second.restarted.WaitFor(kLongestTurn));
  EXPECT_NE(second.Await([](const v1::RunState&) { return true; }).phase(),
            v1::RunState::PHASE_FAILED);
  EXPECT_FALSE(first.restarted.HasBeenNotified());
}

TEST_F(AgentGroupTest, AnotherAttemptEndsTheRunAndBeginsAtTheBeginning) {
  GroupAgent agent(network_, 1);
  agent.Order(TrainingJob(kForEver), Alone());
  const int64_t before = agent.AwaitStep(20).member().next();

  agent.Order(TrainingJob(8), Alone(), /*attempt=*/2);
  const v1::RunState done = agent.Await([](const v1::RunState& report) {
    return report.attempt() == 2 && report.phase() == v1::RunState::PHASE_DONE;
  });

  EXPECT_GE(before, 20);
  EXPECT_EQ(done.step(), 8);
  EXPECT_THAT(agent.factory.attempts(), ElementsAre(1, 2));
  EXPECT_FALSE(agent.restarted.HasBeenNotified());
}

// The first attempt ended before anybody began: a process had to start anew.
TEST_F(AgentGroupTest, FaultsOnPurposeWorkInALaterAttemptToo) {
  JobSpec spec = TrainingJob(kForEver);
  spec.faults = {{"w1", 1, "kill"}};
  GroupAgent agent(network_, 1);

  agent.Order(spec, Alone(), /*attempt=*/2);

  EXPECT_TRUE(agent.faults.killed.WaitFor(kLongestTurn));
}

// A hung trainer is told by this where a round waits for all.
TEST_F(AgentGroupTest, SaysWhetherItsComputeThreadIsAtWork) {
  JobSpec spec = TrainingJob(100);
  spec.aggregation.min_parts = 2;
  spec.faults = {{"w2", 1, "delay", 1, 3600}};
  GroupAgent first(network_, 1);
  GroupAgent second(network_, 2);
  Begin(first, second, spec);

  const auto stands = [](bool at_work) {
    return [at_work](const v1::RunState& report) {
      return report.has_member() && report.member().next() == 1 &&
             (report.member().turn() > 0) == at_work;
    };
  };
  const int64_t turn = second.Await(stands(true)).member().turn();
  first.Await(stands(false));

  EXPECT_EQ(second.Await(stands(true)).member().turn(), turn);
}

}  // namespace
}  // namespace paceline

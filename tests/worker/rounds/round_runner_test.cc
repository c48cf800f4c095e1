// Whole members of a round group in one process: whatever happens, all who
// live end with the same bytes.

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/worker/rounds/training_group.h"

namespace paceline {
namespace {

TEST(RoundRunner, MembersEndWithTheSameBytesAndNearOneProcess) {
  TrainingGroup one(TrainingJob(), {1});
  one.TrainToEqualStates();
  for (const std::vector<double>& shares :
       {std::vector<double>{1, 1, 1}, {3, 1, 2}}) {
    JobSpec all = TrainingJob();
    all.aggregation.min_parts = 3;  // however busy the machine is
    TrainingGroup group(all, shares);
    group.TrainToEqualStates();

    EXPECT_LT(Distance(group.trainer(0), one.trainer(0)), 1e-5);
  }
}

TEST(RoundRunner, ShardsAndTheServersModeChangeNothing) {
  JobSpec spec = TrainingJob();
  spec.aggregation.min_parts = 3;
  TrainingGroup plain(spec, {1, 1, 1});
  plain.TrainToEqualStates();
  for (const char* const mode : {"rolling", "central"}) {
    spec.aggregation.mode = mode;
    spec.aggregation.shards = 3;
    TrainingGroup group(spec, {1, 1, 1});
    group.TrainToEqualStates();

    EXPECT_EQ(group.trainer(0).State(), plain.trainer(0).State()) << mode;
  }
}

// A coordinator takes out who finishes no instruction while others go on.
TEST(RoundRunner, EachLossThatZenoAsksForIsProgress) {
  JobSpec spec = TrainingJob(2);
  spec.aggregation.min_parts = 3;
  const auto progress_with = [&spec](const char* rule, int k) {
    spec.aggregation.rule = rule;
    spec.aggregation.k = k;
    TrainingGroup group(spec, {1, 1, 1});
    group.TrainToEqualStates();
    return group.Sum([](const Trainer& each) { return each.seen().progress; });
  };

  const int64_t with_mean = progress_with("mean", 0);
  const int64_t with_zeno = progress_with("zeno", 1);

  // At present and after each of three parts, at least a micro-batch, twice.
  EXPECT_GE(with_zeno, with_mean + 2 * 4);
}

// It steps along each part and back, in the engine's own memory.
TEST(RoundRunner, TheEngineIsToldOfWeightsThatZenoWrites) {
  JobSpec spec = TrainingJob(2);
  spec.aggregation.rule = "zeno";
  spec.aggregation.k = 1;
  spec.aggregation.min_parts = 3;
  TrainingGroup group(spec, {1, 1, 1});
  group.TrainToEqualStates();

  const int64_t times =
      group.Sum([](const Trainer& each) { return each.times_written(); });
  // Two rounds of three parts.
  EXPECT_GE(times, 2 * 2 * 3);
  EXPECT_EQ(times % 2, 0);
}

TEST(RoundRunner, TheTestSetIsDividedAmongTheMembers) {
  TrainingGroup group(TrainingJob(4), {2, 1, 1});
  group.TrainToEqualStates();

  int64_t samples = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    for (const v1::EvaluationRecord& record :
         group.trainer(i).seen().evaluations) {
      if (record.step() == 4) samples += record.samples();
    }
  }
  EXPECT_EQ(samples, 24);
}

// The coordinator waits for every member.
TEST(RoundRunner, AMemberWithoutAPartOfTheTestSetSaysSo) {
  JobSpec spec = TrainingJob(2);
  spec.data.test_samples = 2;  // one micro-batch
  TrainingGroup group(spec, {1, 1, 1});
  group.TrainToEqualStates();

  int64_t samples = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    int64_t told = 0;
    for (const v1::EvaluationRecord& record :
         group.trainer(i).seen().evaluations) {
      if (record.step() != 2) continue;
      ++told;
      samples += record.samples();
      if (record.samples() == 0) {
        EXPECT_EQ(record.loss(), 0);
      }
    }
    EXPECT_EQ(told, 1) << i;
  }
  EXPECT_EQ(samples, 2);
}

TEST(RoundRunner, TheLossesOfTheMembersAreThoseOfTheWholeBatch) {
  TrainingGroup group(TrainingJob(4), {2, 1, 1});
  group.TrainToEqualStates();

  EXPECT_EQ(
      group.Sum([](const Trainer& each) { return each.seen().loss_samples; }),
      4 * 24);
}

TEST(RoundRunner, TheWaitForASlowMemberIsCounted) {
  constexpr double kDelay = 0.3;
  JobSpec spec = TrainingJob(4);
  spec.aggregation.min_parts = 2;
  spec.faults = {{"w0", 2, "delay", 1, kDelay}};
  TrainingGroup group(spec, {1, 1});
  group.TrainToEqualStates();

  EXPECT_GE(group.trainer(1).time().aggregate(), kDelay / 2);
}

TEST(RoundRunner, DataOfTheNextStepLoadWhileTheGroupWaits) {
  JobSpec spec = TrainingJob(4);
  spec.aggregation.min_parts = 2;
  spec.faults = {{"w0", 2, "delay", 1, 0.3}};
  TrainingGroup group(spec, {1, 1});
  group.TrainToEqualStates();

  EXPECT_EQ(group.trainer(1).seen().prepared.at(3), 2);
}

TEST(RoundRunner, AHoldHasTheStatesHashWhichAMemberMakesWhileItWaits) {
  JobSpec spec = TrainingJob(4);
  spec.aggregation.min_parts = 2;
  spec.faults = {{"w0", 2, "delay", 1, 0.3}};
  TrainingGroup group(spec, {1, 1});
  std::atomic<int64_t> state_step = 0;
  std::atomic<uint64_t> state_hash = 0;
  group.network.SetHook([&](const MemberId& to, const RoundMessage& message) {
    const auto* const hold = std::get_if<Hold>(&message.body);
    if (hold != nullptr && hold->step == 2 && to == MemberOf(0)) {
      state_step = hold->state_step;
      state_hash = hold->state_hash;
    }
    return true;
  });
  group.TrainToEqualStates();

  EXPECT_EQ(state_step, 2);
  EXPECT_NE(state_hash, 0u);
}

// With two micro-batches for three members.
TEST(RoundRunner, TheUploaderAloneHandsTheWeightsOver) {
  for (const char* const mode : {"rolling", "gossip"}) {
    JobSpec spec = TrainingJob(2);
    spec.aggregation.mode = mode;
    spec.train.batch = 4;
    TrainingGroup group(spec, {1, 1, 1});
    group.Begin();
    // It does so once it is done.
    ASSERT_TRUE(group.trainer(0).AwaitUpload());
    group.ExpectAllDone();

    EXPECT_EQ(group.trainer(0).seen().uploads, 1) << mode;
    EXPECT_EQ(group.trainer(1).seen().uploads, 0) << mode;
    EXPECT_EQ(group.trainer(2).seen().uploads, 0) << mode;
    EXPECT_EQ(group.trainer(2).seen().steps.size(), 2u) << mode;
  }
}

TEST(RoundRunner, SomebodyElseUploadsWhenTheUploaderIsLost) {
  TrainingGroup group(TrainingJob(2), {1, 1, 1});
  group.Begin();
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(group.trainer(i).AwaitDone());
  group.trainer(0).Kill();
  group.Remove(MemberOf(0));

  ASSERT_TRUE(group.trainer(1).AwaitUpload());

  group.ExpectAllDoneAndEqual();
  EXPECT_EQ(group.trainer(2).seen().uploads, 0);
}

// Kills the server of step 3 at the first message of that kind, and makes a
// view without it.
template <typename Body>
void KillServerAt(int shards) {
  JobSpec spec = TrainingJob(8);
  spec.aggregation.shards = shards;
  TrainingGroup group(spec, {1, 1, 1, 1});
  const MemberId server = MemberOf(3);  // of step 3, shard 0
  std::atomic<bool> done = false;
  group.network.SetHook([&](const MemberId& to, const RoundMessage& message) {
    const auto* body = std::get_if<Body>(&message.body);
    if (body == nullptr || body->step != 3 || done ||
        (to != server && message.from != server)) {
      return true;
    }
    done = true;
    group.trainer(3).Kill();
    group.Remove(server);
    // Its last messages may still arrive.
    return message.from == server;
  });
  group.TrainToEqualStates();

  EXPECT_TRUE(done);
  // In steps that the killed one applied, it applied the same as the others.
  const auto before = group.trainer(3).seen().steps;
  const auto all = group.trainer(0).seen().steps;
  ASSERT_EQ(all.size(), 8u);
  for (const auto& [step, verdict] : before) {
    EXPECT_EQ(verdict, all.at(step)) << "after " << step << " steps";
  }
  if (shards > 1) return;
  // One of the survivors took its role over, and says so.
  std::vector<v1::RoundRecord> records;
  for (size_t i = 0; i < 3; ++i) {
    for (const v1::RoundRecord& each : group.trainer(i).observer.records()) {
      if (each.lost_server() == server.worker.value) records.push_back(each);
    }
  }
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].step(), 3);
}

TEST(RoundRunner, TheServerIsKilledWhileItGathers) {
  KillServerAt<PartOffer>(1);
  KillServerAt<PartOffer>(4);
}

TEST(RoundRunner, TheServerIsKilledBetweenHoldAndCommit) {
  KillServerAt<Hold>(1);
  KillServerAt<Hold>(4);
}

TEST(RoundRunner, AJoinerTakesTheStateAndEndsWithTheSameBytes) {
  TrainingGroup group(JobToJoin("rolling", 60), {1, 1, 1});
  group.Begin();
  ASSERT_TRUE(group.trainer(0).AwaitStep(3));
  Trainer& joiner = group.AddListener(MemberOf(7));
  group.Admit(joiner);

  group.ExpectAllDoneAndEqual();

  EXPECT_FALSE(joiner.seen().steps.empty());
  EXPECT_TRUE(joiner.exchange().Report().has_taken_part);
}

// The last layers' gradients arrive before the first ones' are computed.
TEST(RoundRunner, PartsLeaveWhileTheBackwardGoesOn) {
  JobSpec spec = TrainingJob(1);
  spec.model.hidden = {400, 400};                 // some chunks
  spec.train.micro_batch = spec.train.batch / 2;  // one a member
  spec.aggregation.shards = 2;
  TrainingGroup group(spec, {1, 1});
  std::atomic<int> early = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    group.trainer(i).SetAfterLayer([&](const LayerDone& done) {
      if (!done.backward || done.layer != 1) return;
      early += group.network.AwaitCarried(1, absl::Seconds(60));
    });
  }
  group.TrainToEqualStates();

  EXPECT_EQ(early, 2);
}

// The donor that comes first to mind cannot be reached, and never says so.
TEST(RoundRunner, AJoinerWhoseDonorCannotBeReachedTakesAnothers) {
  for (const char* const mode : {"rolling", "gossip"}) {
    TrainingGroup group(JobToJoin(mode, 60), {1, 1, 1});
    std::set<MemberId> donors;  // whose states came
    absl::Notification dropped, level;
    group.network.SetHook([&](const MemberId& to, const RoundMessage& message) {
      if (to != MemberOf(7) ||
          !std::holds_alternative<StateOffer>(message.body)) {
        return true;
      }
      // A member that a busy machine holds up may ask anybody for a state.
      if (level.HasBeenNotified()) return true;
      donors.insert(message.from);
      if (message.from != MemberOf(0) || dropped.HasBeenNotified()) return true;
      dropped.Notify();
      return false;
    });
    group.Begin();
    ASSERT_TRUE(group.trainer(0).AwaitStep(3));

    Trainer& joiner = group.AddListener(MemberOf(7));
    dropped.WaitForNotification();
    group.network.SetLink(MemberOf(0), joiner.self(), false);
    while (!joiner.exchange().Report().level) joiner.observer.AwaitChange();
    level.Notify();
    group.network.SetLink(MemberOf(0), joiner.self(), true);
    group.Admit(joiner);
    group.ExpectAllDone();

    EXPECT_TRUE(joiner.exchange().Report().has_taken_part) << mode;
    EXPECT_EQ(donors, (std::set<MemberId>{MemberOf(0), MemberOf(1)}))
        << mode << ": the next one, and no other";
  }
}

TEST(RoundRunner, FaultsOnPurposeCostTheirOwnPartAndNothingElse) {
  JobSpec spec = TrainingJob(5);
  // No deadline closes a round that waits for all parts.
  spec.aggregation.min_parts = 3;
  TrainingGroup honest(spec, {1, 1, 1});
  honest.TrainToEqualStates();
  const std::vector<uint8_t> undisturbed = honest.trainer(0).State();
  // Those that leave every part as it was.
  const std::set<std::string> harmless = {"duplicate", "hang", "delay"};
  const std::set<std::string> refused = {"nan", "bit-flip"};

  for (const char* const kind : {"nan", "bit-flip", "sign-flip", "label-flip",
                                 "gaussian", "duplicate", "hang", "delay"}) {
    // Parts that are refused are missing in the round.
    spec.aggregation.min_parts = refused.contains(kind) ? 2 : 3;
    spec.faults = {{"w1", 1, kind, 2, 0.001, 10}};
    TrainingGroup group(spec, {1, 1, 1});
    group.TrainToEqualStates();

    EXPECT_EQ(group.trainer(0).State() == undisturbed, harmless.contains(kind))
        << kind;

    const auto steps = group.trainer(0).seen().steps;
    ASSERT_EQ(steps.size(), 5u) << kind;
    for (const auto& [step, verdict] : steps) {
      EXPECT_FALSE(verdict.skip) << kind << ": " << verdict.why;
    }
    EXPECT_EQ(group.trainer(1).seen().hangs,
              std::string(kind) == "hang" ? 2 : 0);
  }
}

}  // namespace
}  // namespace paceline

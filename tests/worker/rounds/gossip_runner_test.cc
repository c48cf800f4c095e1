// Whole members that gossip, in one process: whatever happens to some costs the
// exchanges with them, and all who live finish their steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/rounds/training_group.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec GossipJob(int64_t steps) {
  JobSpec spec = TrainingJob(steps);
  spec.aggregation.mode = "gossip";
  return spec;
}

bool IsFinite(Trainer& trainer) {
  for (const NamedTensor& weight : trainer.Weights()) {
    for (const float value : weight.tensor.As<float>()) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

// The loss of the members' last evaluation, over all of the test set.
double LastLoss(TrainingGroup& group, int64_t steps) {
  double loss = 0;
  int64_t samples = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    for (const v1::EvaluationRecord& record :
         group.trainer(i).seen().evaluations) {
      if (record.step() != steps) continue;
      loss += record.loss() * static_cast<double>(record.samples());
      samples += record.samples();
    }
  }
  EXPECT_EQ(samples, 24) << "the test set is divided among the members";
  return loss / static_cast<double>(samples);
}

int64_t Averaged(TrainingGroup& group) {
  return group.Sum(
      [](Trainer& each) { return each.exchange().Stats().committed; });
}

int64_t Skipped(Trainer& trainer, SkipReason reason) {
  return trainer.exchange().Stats().skipped[static_cast<size_t>(reason)];
}

// Whom this member named, and why.
std::vector<std::string> Named(const Trainer& trainer) {
  std::vector<std::string> named;
  for (const v1::RoundRecord& record : trainer.observer.records()) {
    for (const std::string& skip : SkipsOf(record)) named.push_back(skip);
  }
  return named;
}

TEST(GossipRunner, MembersLearnTogetherAndStayNearOneAnother) {
  TrainingGroup once(GossipJob(1), {1, 1, 1, 1});
  once.Train();
  TrainingGroup group(GossipJob(80), {1, 1, 1, 1});
  group.Train();

  // On a machine with other work a partner may be late now and then.
  EXPECT_GT(Averaged(group), 2 * 80);
  EXPECT_LT(LastLoss(group, 80), LastLoss(once, 1));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(group.trainer(i).seen().steps.size(), 80u);
    EXPECT_LT(Distance(group.trainer(0), group.trainer(i)),
              Distance(group.trainer(0), once.trainer(0)))
        << "nearer to each other than to where they began";
  }
}

TEST(GossipRunner, BothOfAPairEndWithTheSameBytes) {
  TrainingGroup group(GossipJob(7), {2, 1});
  group.Train();

  EXPECT_EQ(Averaged(group), 2 * 7);
  EXPECT_EQ(Distance(group.trainer(0), group.trainer(1)), 0);
}

// A run that is withdrawn before the mean has trained one step more.
TEST(GossipRunner, AStepIsInTheStateBeforeTheMeanAndIsDepositedAfterIt) {
  TrainingGroup group(GossipJob(2), {1, 1});
  group.Train();

  EXPECT_THAT(
      group.trainer(0).seen().states,
      ElementsAre(std::tuple(1, false, true), std::tuple(1, true, true),
                  std::tuple(2, false, true), std::tuple(2, true, true)));
}

TEST(GossipRunner, OneMemberAloneTrainsAsInAnyMode) {
  TrainingGroup gossip(GossipJob(6), {1});
  gossip.Train();
  TrainingGroup rolling(TrainingJob(6), {1});
  rolling.Train();

  EXPECT_EQ(Distance(gossip.trainer(0), rolling.trainer(0)), 0);
}

TEST(GossipRunner, LostRepeatedAndOvertakenMessagesEndNothing) {
  for (const uint64_t seed : {1, 2, 3}) {
    JobSpec spec = GossipJob(30);
    spec.train.seed = static_cast<int64_t>(seed);
    TrainingGroup group(spec, {1, 1, 1, 1, 1});
    group.network.SetFaults({0.1, 0.2, 0.2});
    group.Train();

    for (size_t i = 0; i < group.size(); ++i) {
      EXPECT_EQ(group.trainer(i).seen().steps.size(), 30u);
    }
    EXPECT_GT(Averaged(group), 3 * 30) << "of at most 4 * 30";
  }
}

TEST(GossipRunner, AKilledMemberIsNotWaitedForAndIsNamed) {
  JobSpec spec = GossipJob(30);
  spec.faults = {{"w2", 5, "kill"}};
  TrainingGroup group(spec, {1, 1, 1, 1});  // no view comes without it
  group.Train();

  EXPECT_TRUE(group.trainer(2).seen().killed);
  int64_t lost = 0;
  for (const size_t i : {0u, 1u, 3u}) {
    EXPECT_EQ(group.trainer(i).seen().steps.size(), 30u);
    lost += Skipped(group.trainer(i), SkipReason::kLost);
    EXPECT_THAT(Named(group.trainer(i)), Each("2 lost"));
  }
  // One partner was without it in each step, and that of the step before may
  // not have heard its last word.
  EXPECT_GE(lost, 30 - 5);
  EXPECT_LE(lost, 30 - 4);
}

TEST(GossipRunner, AJoinerTakesAStateAndEndsNearTheOthers) {
  TrainingGroup group(JobToJoin("gossip", 80), {1, 1, 1});
  group.Begin();
  ASSERT_TRUE(group.trainer(0).AwaitStep(3));
  Trainer& joiner = group.AddListener(MemberOf(7));
  group.Admit(joiner);
  group.ExpectAllDone();

  EXPECT_GT(joiner.exchange().Stats().committed, 0);
  EXPECT_TRUE(joiner.exchange().Report().has_taken_part);
  EXPECT_EQ(joiner.seen().steps.rbegin()->first, 80);
  EXPECT_GT(joiner.seen().steps.begin()->first, 3) << "it does not begin anew";
  TrainingGroup once(GossipJob(1), {1, 1, 1});
  once.Train();
  EXPECT_LT(Distance(joiner, group.trainer(0)),
            Distance(once.trainer(0), group.trainer(0)));
}

TEST(GossipRunner, ParametersThatAreNotFiniteOrNotThoseNamedAreRefused) {
  const std::pair<const char*, SkipReason> kinds[] = {
      {"nan", SkipReason::kNotFinite}, {"bit-flip", SkipReason::kHash}};
  for (const auto& [kind, reason] : kinds) {
    JobSpec spec = GossipJob(8);
    // Not one after the other: who is refused before its partner is there runs
    // ahead of it, until that has no room for what it offers.
    spec.faults = {{"w1", 2, kind, 1}, {"w1", 4, kind, 1}, {"w1", 6, kind, 1}};
    TrainingGroup group(spec, {1, 1});
    group.Train();

    EXPECT_EQ(Skipped(group.trainer(0), reason), 3) << kind;
    const std::string named = absl::StrCat("1 ", SkipReasonName(reason));
    EXPECT_THAT(Named(group.trainer(0)), ElementsAre(named, named, named));
    EXPECT_THAT(Named(group.trainer(1)), IsEmpty()) << "it is not to blame";
    EXPECT_EQ(Averaged(group), 2 * (8 - 3)) << "neither averages";
    EXPECT_TRUE(IsFinite(group.trainer(0)));
    EXPECT_TRUE(IsFinite(group.trainer(1)));
    EXPECT_EQ(Distance(group.trainer(0), group.trainer(1)), 0);
  }
}

// The others go on with states of their own.
TEST(GossipRunner, AStateThatIsNotFiniteIsNoFaultOfTheJob) {
  JobSpec spec = GossipJob(5);
  spec.train.learning_rate.base = 3e38;
  TrainingGroup group(spec, {1, 1});
  group.Begin();
  for (size_t i = 0; i < 2; ++i) {
    group.trainer(i).Join();
    EXPECT_TRUE(absl::IsDataLoss(group.trainer(i).status()))
        << group.trainer(i).status();
  }
}

TEST(GossipRunner, OtherFaultsOnPurposeEndNothing) {
  for (const char* const kind :
       {"sign-flip", "label-flip", "gaussian", "duplicate", "hang", "delay"}) {
    JobSpec spec = GossipJob(5);
    spec.faults = {{"w1", 1, kind, 2, 0.001, 10}};
    TrainingGroup group(spec, {1, 1, 1});
    group.Train();

    for (size_t i = 0; i < 3; ++i) {
      const auto steps = group.trainer(i).seen().steps;
      ASSERT_EQ(steps.size(), 5u) << kind;
      for (const auto& [step, verdict] : steps) {
        EXPECT_FALSE(verdict.skip) << kind << ": " << verdict.why;
      }
    }
    EXPECT_EQ(group.trainer(1).seen().hangs,
              std::string(kind) == "hang" ? 2 : 0);
    // On a busy machine a partner may be late, and is not waited for.
    EXPECT_GE(Averaged(group), 2 * 3) << kind;
  }
}

TEST(GossipRunner, AMemberWithoutAShareOfTheBatchMeetsItsPartnersAllTheSame) {
  JobSpec spec = GossipJob(6);
  spec.train.batch = 4;  // two micro-batches
  TrainingGroup group(spec, {1, 1, 1, 1});
  group.Train();

  EXPECT_EQ(Averaged(group), 4 * 6);
  for (size_t i = 0; i < 4; ++i) {
    for (const auto& [step, verdict] : group.trainer(i).seen().steps) {
      EXPECT_FALSE(verdict.skip) << verdict.why;
    }
  }
}

TEST(GossipRunner, AMemberThatWasTakenOutEndsItsRunAndSaysWhy) {
  TrainingGroup group(GossipJob(100'000), {1, 1, 1});
  group.Begin();
  ASSERT_TRUE(group.trainer(1).AwaitStep(3));
  View without = MakeView(9, {{MemberOf(0), 0}, {MemberOf(2), 0}});

  group.trainer(1).exchange().OnGroup(MakeGroup(without, {MemberOf(1)}));

  group.trainer(1).Join();
  EXPECT_TRUE(absl::IsAborted(group.trainer(1).status()));
  EXPECT_THAT(std::string(group.trainer(1).status().message()),
              testing::HasSubstr("view 1.9 goes on without this member"));
}

}  // namespace
}  // namespace paceline

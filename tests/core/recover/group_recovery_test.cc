// JobRecovery of a job whose attempts are round groups.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/recover/job_recovery_fixture.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GroupRecovery : public JobRecoveryTest {
 protected:
  GroupRecovery() {
    policy_.views = true;
    Make();
  }
  // The group goes on with these members and listeners.
  void View(const std::vector<int64_t>& members,
            const std::vector<int64_t>& listeners = {}) {
    Roster roster;
    for (const int64_t id : members) {
      roster.members.push_back({{0, kLayers}, workers_[id].process});
    }
    for (const int64_t id : listeners) {
      roster.listeners.insert(workers_[id].process);
    }
    Tell(roster);
  }
  void Tell(const Roster& roster) {
    job_->OnRoster(roster, now_, actions_);
    Settle();
  }
  void Over(Roster::State state, int64_t sound_step = 0) {
    Roster roster;
    roster.state = state;
    roster.why = "the group is over";
    roster.sound_step = sound_step;
    Tell(roster);
  }
  void Apply(int64_t id, int64_t step) {
    workers_[id].report.step = step;
    Report(id);
  }
};

TEST_F(GroupRecovery, MembersComeAndGoWithinAnAttempt) {
  BeginWith(3);

  Lose(1);
  Attach(4);
  View({2, 3}, {4});

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(job_->attempt(), 1);
  EXPECT_EQ(orders_.at(4).run->attempt, 1);
  EXPECT_FALSE(Has("lost")) << "the group's events tell of its members";
}

TEST_F(GroupRecovery, ProcessThatWasTakenOutLeaves) {
  BeginWith(3);

  View({1, 2});

  EXPECT_FALSE(orders_.at(3).run.has_value());
  EXPECT_EQ(job_->attempt(), 1);
}

TEST_F(GroupRecovery, ALostGroupGoesOnFromTheNewestDeposit) {
  BeginWith(3);
  Hold(1, {1, 10}, {0, 1, 2, 3});
  Hold(2, {1, 12}, {0, 1, 2, 3});
  Hold(3, {1, 14}, {0, 1});  // not whole

  Over(Roster::State::kLost);

  EXPECT_THAT(stored_, ElementsAre(AttemptRow{1, {}}, AttemptRow{2, {1, 12}}));
  EXPECT_THAT(orders_.at(3).run->sources[0], ElementsAre(workers_[2].process));
  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
}

TEST_F(GroupRecovery, WaitsForProcessesThatMayHoldTheFurthestState) {
  BeginWith(2);
  Hold(1, {1, 10}, {0, 1, 2, 3});
  Apply(2, 17);
  Lose(2);

  Over(Roster::State::kLost);
  Pass(policy_.return_period - absl::Seconds(1));
  EXPECT_EQ(job_->attempt(), 1) << job_->why();
  EXPECT_THAT(job_->why(), HasSubstr("w2"));
  workers_[2].pieces = {{{1, 17}, 0}, {{1, 17}, 1}, {{1, 17}, 2}, {{1, 17}, 3}};
  Attach(2);

  EXPECT_THAT(stored_.back(), (AttemptRow{2, {1, 17}}));
}

TEST_F(GroupRecovery, GoesBackOnceNobodyReturns) {
  BeginWith(2);
  Hold(1, {1, 10}, {0, 1, 2, 3});
  Apply(2, 17);
  Lose(2);

  Over(Roster::State::kLost);
  Pass(policy_.return_period);

  EXPECT_THAT(stored_.back(), (AttemptRow{2, {1, 10}}));
}

TEST_F(GroupRecovery, StatesAfterATornStepDoNotCount) {
  BeginWith(2);
  Hold(1, {1, 10}, {0, 1, 2, 3});
  Hold(1, {1, 17}, {0, 1, 2, 3});

  Over(Roster::State::kTorn, /*sound_step=*/16);

  EXPECT_THAT(stored_.back(), (AttemptRow{2, {1, 10}}));
}

TEST_F(GroupRecovery, PiecesOfADistrustedProcessDoNotCount) {
  BeginWith(2);
  job_->Distrust(workers_[2].process);
  Hold(1, {1, 10}, {0, 1, 2, 3});
  Hold(2, {1, 12}, {0, 1, 2, 3});

  Over(Roster::State::kLost);

  EXPECT_THAT(stored_.back(), (AttemptRow{2, {1, 10}}));
}

TEST_F(GroupRecovery, IsAdoptedByAMemberThatHasTakenPartAndByNoJoiner) {
  for (const int64_t id : {1, 2}) {
    job_->OnKnown({id}, {id}, NameOf(id));
    workers_[id].process = {{id}, {1}};
    workers_[id].report.attempt = 1;
    workers_[id].report.phase = WorkPhase::kRunning;
  }
  workers_[1].report.joins = true;
  job_->Restore({{1, {}}}, {{{0, kLayers}, workers_[1].process},
                            {{0, kLayers}, workers_[2].process}});
  View({1, 2});

  Attach(1);
  EXPECT_EQ(job_->phase(), JobPhase::kAdopting);
  Attach(2);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(job_->attempt(), 1);
}

// A coordinator was killed after it had stored an attempt, and before a member
// had the order to run.
TEST_F(GroupRecovery, AnAttemptThatNoMemberRunsIsLeft) {
  for (const int64_t id : {1, 2}) {
    job_->OnKnown({id}, {id}, NameOf(id));
    workers_[id].process = {{id}, {1}};
  }
  job_->Restore({{1, {}}}, {{{0, kLayers}, workers_[1].process},
                            {{0, kLayers}, workers_[2].process}});
  View({1, 2});

  Attach(1);
  EXPECT_EQ(job_->phase(), JobPhase::kAdopting) << "worker 2 may run it";
  Attach(2);

  EXPECT_THAT(stored_, ElementsAre(AttemptRow{2, {}}));
  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
}

TEST_F(GroupRecovery, ABaseThatMembersHoldInTwoStatesIsNotUsedAgain) {
  BeginWith(2);
  Hold(1, {1, 10}, {0, 1, 2, 3});
  Hold(1, {1, 17}, {0, 1, 2, 3});
  Hold(2, {1, 17}, {0, 1, 2, 3});
  Over(Roster::State::kLost);
  EXPECT_THAT(stored_.back(), (AttemptRow{2, {1, 17}}));

  Over(Roster::State::kTorn, /*sound_step=*/16);

  EXPECT_THAT(stored_.back(), (AttemptRow{3, {1, 10}}));
}

TEST_F(GroupRecovery, ASmallGroupIsFollowedByIdleMachines) {
  policy_.copies = 2;
  Make();
  BeginWith(2);
  EXPECT_FALSE(job_->NeedsFollowers());

  Attach(3);
  View({1, 2});

  EXPECT_TRUE(job_->NeedsFollowers());
  EXPECT_THAT(orders_.at(3).follow,
              ElementsAre(Follow{workers_[1].process, {0, kLayers}}));
  Attach(4);
  View({1, 2, 4});
  EXPECT_FALSE(job_->NeedsFollowers());
  EXPECT_TRUE(orders_.at(3).follow.empty());
}

TEST_F(GroupRecovery, StatesThatDifferAreTakenFromOneProcess) {
  policy_.states_differ = true;
  Make();
  BeginWith(3);
  Hold(1, {1, 12}, {0, 1});
  Hold(2, {1, 12}, {2, 3});
  Hold(2, {1, 10}, {0, 1, 2, 3});
  Hold(3, {1, 10}, {0, 1, 2, 3});

  Over(Roster::State::kLost);

  EXPECT_THAT(stored_.back(), (AttemptRow{2, {1, 10}}));
  for (const auto& sources : orders_.at(1).run->sources) {
    EXPECT_THAT(sources, ElementsAre(workers_[2].process));
  }
}

}  // namespace
}  // namespace paceline

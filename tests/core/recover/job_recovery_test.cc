#include "core/recover/job_recovery.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/recover/job_recovery_fixture.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

TEST_F(JobRecoveryTest, BeginsWithTheFirstAttempt) {
  BeginWith(3);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_THAT(stored_, ElementsAre(AttemptRow{1, {}}));
  EXPECT_EQ(orders_.at(1).run->places.size(), 2u);
  EXPECT_FALSE(orders_.at(3).run.has_value());
}

TEST_F(JobRecoveryTest, TriesAgainUnderTheSameNumberWhenTheStoreFails) {
  store_ok_ = false;
  BeginWith(2);
  EXPECT_EQ(job_->phase(), JobPhase::kChoosing);

  store_ok_ = true;
  Pass(absl::Milliseconds(999));
  EXPECT_EQ(stored_.size(), 1u);
  Pass(absl::Milliseconds(1));
  EXPECT_THAT(stored_, ElementsAre(AttemptRow{1, {}}, AttemptRow{1, {}}));
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
}

TEST_F(JobRecoveryTest, ALossBringsItToTheSurvivorsFromTheNewestCut) {
  BeginWith(3);
  Snapshot({1, 5});
  EXPECT_EQ(job_->floor(), (Cut{1, 5}));

  Lose(1);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_THAT(stored_, ElementsAre(AttemptRow{1, {}}, AttemptRow{2, {1, 5}}));
  EXPECT_EQ(orders_.at(2).run->places[0].process.worker, WorkerId{2});
  EXPECT_THAT(orders_.at(2).run->sources[0],
              ElementsAre(workers_[2].process, workers_[3].process));
  EXPECT_FALSE(Has("safe"));
  Snapshot({2, 5});
  EXPECT_TRUE(Has("safe"));
}

TEST_F(JobRecoveryTest, TellsOfEachWorkerThatItLostAndThatIsBack) {
  BeginWith(3);
  Lose(3);  // has no stage
  Lose(1);
  ASSERT_EQ(job_->attempt(), 2);

  Attach(3);
  Attach(1);
  Attach(1);        // on another stream
  Attach(2, 0, 2);  // runs the second attempt

  std::vector<std::string> texts;
  for (const RecoveryEvent& event : events_) {
    if (event.kind == "returned") texts.push_back(event.text);
  }
  EXPECT_THAT(texts,
              ElementsAre("w1 is there again", "w2 is there as a new process"));
}

TEST_F(JobRecoveryTest, ExcludesTheProcessThatDoesNotLeave) {
  BeginWith(3);
  Hang(2);
  Pass(policy_.leave_bound - absl::Milliseconds(1));
  EXPECT_EQ(job_->phase(), JobPhase::kLeaving);

  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(Has("excluded"));
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(orders_.at(1).run->places[1].process.worker, WorkerId{3});

  workers_[2].answers = true;
  Report(2);
  Lose(3);  // the excluded one takes its place only as another process
  EXPECT_EQ(orders_.at(1).run->places.size(), 1u);
  Attach(2, 0, 2);
  Lose(1);
  EXPECT_EQ(orders_.at(2).run->places[0].process, workers_[2].process);
}

TEST_F(JobRecoveryTest, PausesWithTheReasonAndGoesOnWhenAWorkerComes) {
  BeginWith(1);
  job_->SetCutOff({1}, "it has no AVX2", now_, actions_);
  Lose(1);
  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
  EXPECT_EQ(job_->why(), "no worker");

  Attach(2);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
}

TEST_F(JobRecoveryTest, WaitsForThoseWhoMayHoldMoreBeforeItGoesBelowTheFloor) {
  BeginWith(3);
  for (const int64_t id : {1, 2}) Hold(id, {1, 5}, {0, 1, 2, 3});
  ASSERT_EQ(job_->floor(), (Cut{1, 5}));

  Lose(1);
  Lose(2);
  EXPECT_EQ(job_->phase(), JobPhase::kChoosing);
  EXPECT_THAT(job_->why(), HasSubstr("waits for w1"));
  Pass(policy_.return_period - absl::Milliseconds(1));
  EXPECT_EQ(job_->phase(), JobPhase::kChoosing);

  Attach(2);  // the process that it was
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->base(), (Cut{1, 5}));
}

// It took part in an earlier attempt and never said what it holds.
TEST_F(JobRecoveryTest, WaitsForOneThatWasLostInAnEarlierAttempt) {
  BeginWith(3);
  Lose(2);
  for (const int64_t id : {1, 3}) Hold(id, {2, 5}, {0, 1, 2, 3});
  ASSERT_EQ(job_->floor(), (Cut{2, 5}));

  for (const int64_t id : {1, 3}) Attach(id, 0, 2);

  EXPECT_EQ(job_->phase(), JobPhase::kChoosing);
  EXPECT_THAT(job_->why(), HasSubstr("waits for w2"));
}

TEST_F(JobRecoveryTest, AsksForAPlanAgainWhenItHasWaited) {
  BeginWith(3);
  for (const int64_t id : {1, 2}) Hold(id, {1, 5}, {0, 1, 2, 3});
  Lose(1);
  Lose(2);
  ASSERT_EQ(job_->phase(), JobPhase::kChoosing);

  plans_ = false;  // another job has taken worker 3
  Pass(policy_.return_period);

  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
}

TEST_F(JobRecoveryTest, GoesBelowTheFloorWhenNobodyCameBack) {
  BeginWith(3);
  for (const int64_t id : {1, 2}) Hold(id, {1, 5}, {0, 1, 2, 3});
  Lose(1);
  Lose(2);

  Pass(policy_.return_period);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->base(), Cut());
  EXPECT_EQ(job_->floor(), Cut());
}

TEST_F(JobRecoveryTest, DoesNotWaitForProcessesThatWereRestarted) {
  BeginWith(3);
  for (const int64_t id : {1, 2}) Hold(id, {1, 5}, {0, 1, 2, 3});
  workers_[1].pieces.clear();
  workers_[2].pieces.clear();
  Attach(1, 0, 2);
  Attach(2, 0, 2);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(job_->base(), Cut());
}

TEST_F(JobRecoveryTest, AMoveStopsAllAtOneStepAndBeginsThere) {
  BeginWith(3);
  MoveTo("w3 is faster");
  EXPECT_EQ(job_->phase(), JobPhase::kStopping);
  EXPECT_TRUE(orders_.at(1).run->stop_after_batch);

  StopAtSeven({0, 1, 2, 3}, {0, 1, 2, 3});
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->base(), (Cut{1, 7}));
}

TEST_F(JobRecoveryTest, StagesThatStoppedAtTwoStepsAreNotStopped) {
  BeginWith(3);
  MoveTo("w3 is faster");
  for (const int64_t id : {1, 2}) {
    workers_[id].report.phase = WorkPhase::kStopped;
    workers_[id].report.step = 6 + id;
    Report(id);
  }

  EXPECT_EQ(job_->phase(), JobPhase::kStopping);
}

TEST_F(JobRecoveryTest, ALossWhileItStopsIsALoss) {
  BeginWith(3);
  MoveTo("w3 is faster");
  Lose(2);

  EXPECT_EQ(job_->attempt(), 2);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_FALSE(orders_.at(1).run->stop_after_batch);
}

TEST_F(JobRecoveryTest, ADrainMovesTheStagesAndLetsGoWhenAllIsSafeElsewhere) {
  BeginWith(3);
  Snapshot({1, 5});
  Drain(1);
  EXPECT_EQ(job_->phase(), JobPhase::kStopping);
  EXPECT_FALSE(job_->MayGo({1}));

  StopAtSeven({0, 1}, {2, 3});
  ASSERT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(orders_.at(2).run->places[0].process.worker, WorkerId{2});
  EXPECT_TRUE(job_->MayGo({1}));  // the floor lies on two others
}

// Inference: the coordinator has what was predicted, workers have nothing.
class StatelessJob : public JobRecoveryTest {
 protected:
  StatelessJob() {
    policy_.stateless = true;
    policy_.most_losses = 2;
    Make();
  }
};

TEST_F(StatelessJob, GoesOnAtTheCheckpointAndWaitsForNobody) {
  BeginWith(3);
  job_->OnCheckpoint({1, 40});
  Lose(2);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(job_->base(), (Cut{1, 40}));
  EXPECT_TRUE(orders_.at(1).run->sources[0].empty());
  EXPECT_TRUE(orders_.at(1).follow.empty());
}

TEST_F(StatelessJob, ACheckpointCountsAsProgressBetweenLosses) {
  BeginWith(4);
  for (const int64_t id : {1, 2, 3}) {
    job_->OnCheckpoint({job_->attempt(), 10 * id});
    Report(4);
    Lose(id);
    Report(4);
  }

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
}

TEST_F(StatelessJob, ADrainedWorkerLeavesAtOnceAndMayGo) {
  BeginWith(3);
  job_->OnCheckpoint({1, 40});
  EXPECT_FALSE(job_->MayGo({1}));
  Drain(1);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(job_->base(), (Cut{1, 40}));
  EXPECT_TRUE(job_->MayGo({1}));
}

// The pieces at the stop lie on their owners alone when one of them dies.
TEST_F(JobRecoveryTest,
       AnOwnerThatDiesRightAfterAStopCostsTheStepsSinceTheCut) {
  BeginWith(3);
  Snapshot({1, 5});
  MoveTo("w3 is faster");
  store_answers_ = false;
  StopAtSeven({0, 1}, {2, 3});
  ASSERT_EQ(stored_.back().base, (Cut{1, 7}));

  Lose(1);
  store_answers_ = true;
  job_->OnStored(stored_.back().attempt, true, now_, actions_);
  Settle();

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_EQ(job_->base(), (Cut{1, 5}));
}

TEST_F(JobRecoveryTest, APlanForAMoveIsMadeWhenAllHaveStopped) {
  BeginWith(2);
  int asked = 0;
  job_.emplace(policy_, counter_, [&](const std::vector<RunCandidate>& all) {
    ++asked;
    return Plan(all);
  });
  for (const int64_t id : {1, 2}) Attach(id);
  job_->Begin(now_, actions_);
  Settle();
  ASSERT_EQ(asked, 1);
  MoveTo("w2 is faster for the first stage now");
  StopAtSeven({0, 1, 2, 3}, {0, 1, 2, 3});

  EXPECT_EQ(asked, 2) << "though nobody came or went";
}

TEST_F(JobRecoveryTest, ADrainOfTheOnlyWorkerDoesNotStopTheJob) {
  BeginWith(1);
  Drain(1);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_TRUE(Has("drain"));
}

TEST_F(JobRecoveryTest, LooksAgainWhenPlansMayHaveChanged) {
  BeginWith(1);
  plans_ = false;
  Attach(2);
  Lose(1);
  ASSERT_EQ(job_->phase(), JobPhase::kPaused);

  plans_ = true;
  Pass(absl::Seconds(1));
  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
  job_->OnPlansChanged(now_, actions_);
  Settle();
  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
}

TEST_F(JobRecoveryTest, ADrainThatWasRefusedIsTriedAgain) {
  BeginWith(2);
  plans_ = false;
  Drain(2);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);

  plans_ = true;
  job_->OnPlansChanged(now_, actions_);
  Settle();
  EXPECT_EQ(job_->phase(), JobPhase::kStopping);
}

TEST_F(JobRecoveryTest, EveryDrainThatIsRefusedIsAnEvent) {
  BeginWith(2);
  plans_ = false;

  Drain(2);
  Drain(2, false);
  Drain(2);

  EXPECT_EQ(std::count_if(events_.begin(), events_.end(),
                          [](const RecoveryEvent& event) {
                            return event.kind == "drain";
                          }),
            2);
}

TEST_F(JobRecoveryTest, FailsWithAPermanentError) {
  BeginWith(2);
  FailWith(2, absl::InvalidArgumentError("no such label"));

  EXPECT_EQ(job_->phase(), JobPhase::kFailed);
  EXPECT_EQ(job_->why(), "w2 failed at step 0: no such label");
  EXPECT_FALSE(orders_.at(1).run.has_value());
}

TEST_F(JobRecoveryTest, AWorkerThatLacksAFileIsUnfitAndTheJobGoesOn) {
  BeginWith(3);
  FailWith(2, absl::NotFoundError("no /data/train"));

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(orders_.at(1).run->places[1].process.worker, WorkerId{3});
}

TEST_F(JobRecoveryTest, AWorkerThatLacksTheDataMayHoldAnotherStage) {
  BeginWith(2);
  FailWith(1, absl::NotFoundError("no /data/train"));

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(orders_.at(2).run->places[0].process.worker, WorkerId{2});
  EXPECT_TRUE(Has("unfit"));
}

TEST_F(JobRecoveryTest, FailsWhenNoWorkerHasTheFileAndPausesIfOneHadItBefore) {
  for (const int64_t step : {0, 3}) {
    Make();
    workers_.clear();
    BeginWith(2);
    workers_[1].report.step = step;
    Report(1);
    for (const int64_t id : {2, 1}) {
      EXPECT_EQ(job_->phase(), JobPhase::kRunning);
      FailWith(id, absl::NotFoundError("no /data/train"));
    }

    EXPECT_EQ(job_->phase(), step == 0 ? JobPhase::kFailed : JobPhase::kPaused);
    EXPECT_THAT(job_->why(), HasSubstr("no /data/train"));
  }
}

TEST_F(JobRecoveryTest, GoesOnWhenAFileThatWasMissingIsThere) {
  BeginWith(2);
  workers_[1].report.step = 3;
  Report(1);
  for (const int64_t id : {2, 1}) {
    FailWith(id, absl::PermissionDeniedError("no /data/train"));
  }
  ASSERT_EQ(job_->phase(), JobPhase::kPaused);

  workers_[2].report.files_changed = true;
  Report(2);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_TRUE(Has("repaired"));
}

TEST_F(JobRecoveryTest, AWorkerThatMayNotReadTheDataHoldsALaterStage) {
  BeginWith(2);

  FailWith(1, absl::PermissionDeniedError("/data/train is outside"));

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(orders_.at(2).run->places[0].process, workers_[2].process);
  EXPECT_EQ(orders_.at(2).run->places.size(), 2u);
}

TEST_F(JobRecoveryTest, AChangedFileMendsNoLink) {
  BeginWith(2);
  FailWith(2, absl::PermissionDeniedError("no /weights"));
  job_->SetCutOff({2}, "the link to w1 is cut", now_, actions_);
  Settle();

  workers_[2].report.files_changed = true;
  Report(2);
  EXPECT_EQ(orders_.at(1).run->places.size(), 1u);
  job_->SetCutOff({2}, "", now_, actions_);
  Settle();
  Lose(1);

  EXPECT_EQ(orders_.at(2).run->places[0].process, workers_[2].process);
}

TEST_F(JobRecoveryTest, FailsAfterThreeAttemptsWithoutANewStep) {
  BeginWith(2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(job_->phase(), JobPhase::kRunning);
    FailWith(1, absl::UnavailableError("no source left"));
  }

  EXPECT_EQ(job_->phase(), JobPhase::kFailed);
  EXPECT_THAT(job_->why(), HasSubstr("3 attempts failed"));
}

// Workers 2, 3 and 4 die one after another while worker 1 fetches from them.
TEST_F(JobRecoveryTest, AnAttemptThatALossKeptFromItsBeginDoesNotCount) {
  workers_[2].process.incarnation = {1};
  workers_[2].answers = false;
  BeginWith(4);
  for (const int64_t id : {2, 3, 4}) {
    ASSERT_EQ(job_->phase(), JobPhase::kStarting) << job_->why();
    FailWith(1, absl::UnavailableError("no source left"));
    workers_[id + 1].answers = false;
    Lose(id);
  }

  EXPECT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
}

TEST_F(JobRecoveryTest, AStepBetweenFailuresCountsAsProgress) {
  BeginWith(2);
  for (int64_t i = 1; i <= 5; ++i) {
    ASSERT_EQ(job_->phase(), JobPhase::kRunning);
    workers_[1].report.step = i;
    Report(1);
    FailWith(1, absl::UnavailableError("a link broke"));
  }

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
}

// Each of its attempts comes less far than the first one came.
TEST_F(JobRecoveryTest, ALaterBaseBetweenFailuresCountsAsProgress) {
  BeginWith(2);
  workers_[1].report.step = 100;
  Report(1);
  for (int64_t i = 1; i <= 5; ++i) {
    ASSERT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
    Snapshot({i, 10 * i});
    FailWith(1, absl::UnavailableError("a link broke"));
  }

  EXPECT_EQ(job_->base(), (Cut{5, 50}));
}

TEST_F(JobRecoveryTest, WaitsForADiskThatWasNotFullBefore) {
  BeginWith(2);
  workers_[1].report.step = 7;
  Report(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(job_->phase(), JobPhase::kRunning);
    FailWith(1, absl::ResourceExhaustedError("no space left on device"));
  }
  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
  EXPECT_THAT(job_->why(), HasSubstr("no space left"));

  Pass(policy_.hindrance_pause);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
}

// The worker that alone holds a piece is there, but the link to it is not.
TEST_F(JobRecoveryTest, WaitsForALinkWithoutWhichNoAttemptBegins) {
  BeginWith(2);
  Snapshot({1, 5});
  for (auto& [id, worker] : workers_) worker.begins = WorkPhase::kGathering;
  for (int i = 0; i < 4; ++i) {  // the first one ends an attempt that ran
    ASSERT_NE(job_->phase(), JobPhase::kPaused);
    FailWith(1, absl::UnavailableError("no source left"));
  }
  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
  EXPECT_THAT(job_->why(), HasSubstr("no source left"));

  Pass(policy_.hindrance_pause);
  EXPECT_EQ(job_->phase(), JobPhase::kStarting);
}

TEST_F(JobRecoveryTest, PausesForAWhileAfterTooManyLosses) {
  policy_.most_losses = 3;
  Make();
  BeginWith(2);
  for (uint64_t i = 0; i < 3; ++i) Attach(1, 0, 2 + i);
  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
  EXPECT_THAT(job_->why(), HasSubstr("3 workers were lost since step 0"));

  Pass(policy_.loss_pause - absl::Milliseconds(1));
  EXPECT_EQ(job_->phase(), JobPhase::kPaused);
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
}

TEST_F(JobRecoveryTest, PrefersACutWhoseRecordsAreStored) {
  BeginWith(3);
  for (const int64_t id : {2, 3}) {
    Hold(id, {1, 5}, {0, 1, 2, 3});
    Hold(id, {1, 8}, {0, 1});
  }
  Hold(2, {1, 8}, {2, 3});  // complete, but the floor is at 5
  job_->OnRecorded(6);
  Lose(1);

  EXPECT_EQ(job_->base(), (Cut{1, 5}));
  EXPECT_FALSE(Has("records"));
}

TEST_F(JobRecoveryTest,
       NamesTheRecordsThatAreMissingRatherThanGoBelowTheFloor) {
  BeginWith(3);
  Snapshot({1, 5});
  job_->OnRecorded(3);
  Lose(1);

  EXPECT_EQ(job_->base(), (Cut{1, 5}));
  ASSERT_TRUE(Has("records"));
}

TEST_F(JobRecoveryTest, UsesTheCheckpointWhereNothingNewerLives) {
  BeginWith(2);
  job_->OnCheckpoint({1, 4});
  Lose(1);

  EXPECT_EQ(job_->base(), (Cut{1, 4}));
  EXPECT_TRUE(orders_.at(2).run->sources[0].empty());
}

TEST_F(JobRecoveryTest, AnUploadStandsInForALostWorkerThatWasDone) {
  policy_.needs_upload = true;
  Make();
  BeginWith(3);
  for (const int64_t id : {1, 2}) {
    workers_[id].report.phase = WorkPhase::kDone;
    workers_[id].report.step = 40;
    Report(id);
  }
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  job_->OnUploaded(1, {0, 2}, now_, actions_);
  Lose(1);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  job_->OnUploaded(1, {2, 4}, now_, actions_);
  EXPECT_EQ(job_->phase(), JobPhase::kDone);
}

// It has died with the last verdict, for which the other stage waits.
TEST_F(JobRecoveryTest, AnUploadStandsInForNobodyWhileAnotherStageIsNotDone) {
  policy_.needs_upload = true;
  Make();
  BeginWith(3);
  workers_[2].report.step = 39;
  Report(2);
  job_->OnUploaded(1, {0, 2}, now_, actions_);
  Lose(1);

  EXPECT_EQ(job_->attempt(), 2);
}

TEST_F(JobRecoveryTest, AWorkerThatIsLostBeforeItsUploadIsRunAgain) {
  policy_.needs_upload = true;
  Make();
  BeginWith(3);
  job_->OnUploaded(1, {2, 4}, now_, actions_);
  Lose(1);

  EXPECT_EQ(job_->attempt(), 2);
  job_->OnUploaded(1, {0, 2}, now_, actions_);  // of the attempt before
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
}

TEST_F(JobRecoveryTest, SettlesCpuEnvironmentsBeforeTheAttempt) {
  workers_[2].process.incarnation = {1};
  workers_[2].report.settled = false;
  workers_[2].answers = false;
  BeginWith(2);
  EXPECT_EQ(job_->phase(), JobPhase::kChoosing);
  EXPECT_TRUE(stored_.empty());
  EXPECT_TRUE(orders_.at(2).settle);

  workers_[2].answers = true;
  Attach(2, 0, 2);  // it has executed itself anew
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_FALSE(orders_.at(2).settle);
}

TEST_F(JobRecoveryTest, BeginsWithoutAProcessThatDoesNotSettle) {
  Attach(3);
  workers_[2].process.incarnation = {1};
  workers_[2].report.settled = false;
  workers_[2].answers = false;
  BeginWith(2);
  Pass(policy_.return_period);
  Pass(absl::Milliseconds(50));

  ASSERT_EQ(job_->phase(), JobPhase::kRunning) << job_->why();
  EXPECT_TRUE(orders_.at(3).run.has_value());
  EXPECT_THAT(events_, Contains(Field(&RecoveryEvent::text,
                                      HasSubstr("CPU environment"))));
}

TEST_F(JobRecoveryTest, AReplicaFinishesTheStepThatAnotherHasApplied) {
  policy_.layers = 2;
  job_.emplace(policy_, counter_,
               [](const std::vector<RunCandidate>& all)
                   -> absl::StatusOr<std::vector<RunPlace>> {
                 std::vector<RunPlace> places;
                 for (const RunCandidate& each : all)
                   places.push_back({{0, 2}, each.process});
                 return places;
               });
  BeginWith(3);
  for (const int64_t id : {1, 2}) workers_[id].answers = false;
  Lose(3);
  workers_[1].report.kept = KeptState{6, 7};
  workers_[2].report.kept = KeptState{7, 0};
  for (const int64_t id : {1, 2}) {
    workers_[id].report.attempt = 0;
    workers_[id].report.echo = orders_.at(id).number;
    workers_[id].answers = true;
  }
  Report(1);
  EXPECT_EQ(job_->phase(), JobPhase::kLeaving);
  Report(2);
  EXPECT_EQ(job_->phase(), JobPhase::kFinishing);
  EXPECT_EQ(orders_.at(1).finish, 7);

  Hold(1, {1, 7}, {0, 1});
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->base(), (Cut{1, 7}));
}

class RestartedCoordinator : public JobRecoveryTest {
 protected:
  RestartedCoordinator() {
    BeginWith(3);
    Snapshot({1, 5});
    for (auto& [id, worker] : workers_) worker.report.floor = {1, 5};
    counter_ = OrderCounter{{2, 0}};
    const std::vector<RunPlace> places = job_->places();
    Make();
    job_->Restore({{1, {}}}, places);
    for (const auto& [id, worker] : workers_) {
      job_->OnKnown({id}, worker.machine, NameOf(id));
    }
    orders_.clear();
  }
};

TEST_F(RestartedCoordinator, AdoptsTheAttemptWhenAllItsWorkersRunIt) {
  Attach(1);
  EXPECT_EQ(job_->phase(), JobPhase::kAdopting);
  EXPECT_TRUE(orders_.empty());
  EXPECT_FALSE(job_->floor().has_value());

  Attach(2);
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->attempt(), 1);
  EXPECT_FALSE(job_->floor().has_value());  // w3 was not heard of
  EXPECT_FALSE(orders_.at(1).keep.floor.has_value());
  Lose(3);
  EXPECT_EQ(job_->floor(), (Cut{1, 5}));
}

TEST_F(RestartedCoordinator, LeavesWhatAWorkerDoesNotRun) {
  workers_[2].report.attempt = 0;
  workers_[2].report.phase = WorkPhase::kIdle;
  Attach(2);
  EXPECT_EQ(job_->phase(), JobPhase::kLeaving);
  Attach(1);
  Attach(3);

  EXPECT_EQ(job_->attempt(), 2);
  EXPECT_EQ(job_->base(), (Cut{1, 5}));
}

TEST_F(RestartedCoordinator, GoesAboveAnAttemptThatTheStoreLacks) {
  workers_[1].report.attempt = 4;
  Attach(1);
  EXPECT_EQ(job_->phase(), JobPhase::kLeaving);
  Attach(2);
  Attach(3);

  EXPECT_EQ(job_->attempt(), 5);
}

// All that took part in it are gone; a worker without a stage heard its floor.
TEST_F(RestartedCoordinator, GoesAboveAnAttemptOfWhichOnlyAFloorIsLeft) {
  workers_[3].report.floor = {4, 18};
  Attach(3);
  Attach(1);
  Attach(2);

  EXPECT_EQ(job_->attempt(), 5);
}

TEST_F(RestartedCoordinator, KeepsAFloorThatWorkersWereTold) {
  workers_[2].pieces.clear();
  workers_[3].pieces.clear();
  Attach(1);
  Attach(2);
  Attach(3);

  EXPECT_EQ(job_->floor(), (Cut{1, 5}));
}

// The job would end: no worker takes an attempt above 2^50.
TEST_F(RestartedCoordinator, ClaimsBeyondWhatAStoreCanLackCountForNothing) {
  workers_[1].report.attempt = int64_t{1} << 50;
  workers_[2].report.floor = {int64_t{1} << 50, 18};
  workers_[3].pieces.insert({{int64_t{1} << 50, 20}, 0});
  for (const int64_t id : {1, 2, 3}) Attach(id);

  EXPECT_EQ(job_->attempt(), 2);
  EXPECT_EQ(job_->base(), (Cut{1, 5}));
}

// Two workers have the job; a third one was never told of it.
class Outsider : public JobRecoveryTest {
 protected:
  Outsider() {
    policy_.copies = 0;
    Make();
    BeginWith(2);
    Attach(3);
    EXPECT_FALSE(orders_.contains(3));
  }
};

TEST_F(Outsider, ClaimsOfOneThatWasNeverToldOfTheJobCountForNothing) {
  Worker& outsider = workers_[3];
  outsider.report.echo = {int64_t{1} << 40, 0};
  for (const int64_t attempt : {int64_t{1} << 50, int64_t{2}, int64_t{1}}) {
    outsider.report.attempt = attempt;
    outsider.report.phase = WorkPhase::kFailed;
    outsider.report.error = absl::InternalError("");
    outsider.report.floor = {attempt, 18};
    outsider.report.kept = KeptState{40, 41};
    outsider.pieces.clear();
    Hold(3, {attempt, 20}, {0, 1, 2, 3});
  }
  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->floor(), Cut());

  workers_[3].answers = false;
  Lose(1);

  EXPECT_THAT(stored_, ElementsAre(AttemptRow{1, {}}, AttemptRow{2, {}}));
  EXPECT_FALSE(Has("excluded"));
}

TEST_F(Outsider, WhoHoldsAStageCannotSayWhatItWasNotTold) {
  Hold(2, {int64_t{1} << 50, 20}, {0, 1, 2, 3});
  Hang(2);
  workers_[2].report.attempt = 0;
  workers_[2].report.phase = WorkPhase::kIdle;
  workers_[2].report.echo = {int64_t{1} << 40, 0};
  Report(2);
  EXPECT_EQ(job_->phase(), JobPhase::kLeaving);  // it has not left
  Pass(policy_.leave_bound);
  EXPECT_THAT(stored_, ElementsAre(AttemptRow{1, {}}, AttemptRow{2, {}}));
}

TEST(JobTransitions, LeadToOnePhaseEach) {
  std::set<std::pair<JobPhase, JobCause>> seen;
  for (const JobTransition& row : JobTransitions()) {
    EXPECT_TRUE(seen.insert({row.from, row.cause}).second)
        << JobPhaseName(row.from) << ", " << JobCauseName(row.cause);
  }
}

TEST_F(JobRecoveryTest, TheNextMachinesFollowStagesFirst) {
  policy_.copies = 2;
  Make();
  Attach(1, 1);
  Attach(2, 2);
  Attach(3, 1);  // on the machine of w1
  Attach(4, 4);
  Attach(5, 5);
  job_->Begin(now_, actions_);
  Settle();

  const Follow first{workers_[1].process, {0, 2}};
  const Follow second{workers_[2].process, {2, 4}};
  EXPECT_THAT(orders_.at(1).follow, ElementsAre());
  EXPECT_THAT(orders_.at(2).follow, ElementsAre(first));
  EXPECT_THAT(orders_.at(4).follow, ElementsAre(first, second));
  EXPECT_THAT(orders_.at(5).follow, ElementsAre(second));
  EXPECT_EQ(orders_.count(3), 0u);

  Lose(4);  // another machine follows, and the job runs on
  EXPECT_EQ(job_->attempt(), 1);
  EXPECT_THAT(orders_.at(5).follow, ElementsAre(first, second));
}

// A job that goes on from the last state may begin as soon as this one ends.
TEST_F(JobRecoveryTest, TheLastStateIsCopiedWhileTheResultIsSaved) {
  BeginWith(2);
  for (const int64_t id : {1, 2}) {
    workers_[id].report.phase = WorkPhase::kDone;
    workers_[id].report.step = 40;
    Report(id);
  }
  ASSERT_EQ(job_->phase(), JobPhase::kDone);
  EXPECT_FALSE(orders_.at(1).run.has_value());
  EXPECT_FALSE(orders_.at(1).follow.empty());

  Snapshot({1, 40});

  EXPECT_EQ(job_->floor(), (Cut{1, 40}));
}

TEST_F(JobRecoveryTest, AMachineWithoutMemoryLowersTheCopies) {
  policy_.copies = 2;
  Make();
  BeginWith(3);
  EXPECT_EQ(job_->followers(), 2);
  workers_[3].report.refuses_pieces = true;
  Hold(3, {1, 5}, {0});
  workers_[3].report.refuses_pieces = false;
  Report(3);  // without pieces, which says nothing of that

  EXPECT_EQ(job_->followers(), 1);
  EXPECT_TRUE(Has("copies"));
  EXPECT_TRUE(orders_.at(3).follow.empty());
}

TEST_F(JobRecoveryTest, TwoMachinesKeepTheCopiesThatTheyCan) {
  policy_.copies = 2;
  Make();
  BeginWith(2);
  EXPECT_EQ(job_->followers(), 1);
  Snapshot({1, 5});
  Lose(2);

  EXPECT_EQ(job_->phase(), JobPhase::kRunning);
  EXPECT_EQ(job_->base(), (Cut{1, 5}));
  EXPECT_EQ(job_->followers(), 0);
}

}  // namespace
}  // namespace paceline

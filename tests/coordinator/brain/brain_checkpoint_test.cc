// Which cuts become checkpoints, and what goes on from them.
#include <string>
#include <utility>
#include <vector>

#include "coordinator/attempts/checkpoints.h"
#include "coordinator/jobs/advice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = Actions::Checkpoint::Kind;

JobSpec CheckpointedSpec(int64_t every = 20) {
  JobSpec spec = SpecOf(2);
  spec.train.checkpoint_every = every;
  return spec;
}

// Two workers that train a job of four layers, of which each holds all pieces.
class CheckpointsTest : public testing::Test, public Mesh {
 protected:
  CheckpointsTest() { BothHold(0); }

  // Reports that `stream` runs, and holds all pieces of these cuts.
  void Hold(StreamId stream, const std::vector<Cut>& cuts, JobId job = {}) {
    const int64_t step = cuts.empty() ? 0 : cuts.back().step;
    v1::Heartbeat heartbeat = Beat(kRunning, step, job);
    heartbeat.mutable_run()->set_step(step);
    v1::PiecesHeld::OfJob& held = *heartbeat.mutable_pieces()->add_jobs();
    held.set_job(heartbeat.run().job());
    for (const Cut& cut : cuts) {
      v1::PiecesHeld::HeldCut& each = *held.add_cuts();
      *each.mutable_cut() = ToProto(cut);
      each.add_layers()->set_last(4);
    }
    EXPECT_TRUE(Send(stream, heartbeat).ok());
  }
  void BothHold(int64_t step) {
    for (const StreamId stream : {a_, b_}) {
      Hold(stream, step == 0
                       ? std::vector<Cut>{}
                       : std::vector<Cut>{{Record().job.attempt(), step}});
    }
  }
  // Takes what is to be done since the last call.
  std::vector<Actions::Checkpoint> Todo() {
    const std::vector<Actions::Checkpoint> todo(checkpoints().begin() + seen_,
                                                checkpoints().end());
    seen_ = checkpoints().size();
    return todo;
  }
  // The cut that is to be fetched; Cut{}: none.
  Cut ToFetch() {
    for (const Actions::Checkpoint& action : Todo()) {
      if (action.kind != Kind::kFetch) continue;
      const v1::Cut& cut = action.order.manifest.cut();
      return {cut.attempt(), cut.step()};
    }
    return {};
  }
  static v1::Checkpoint Fetched(Cut cut) {
    v1::Checkpoint checkpoint;
    *checkpoint.mutable_cut() = ToProto(cut);
    checkpoint.set_bytes(1 << 20);
    return checkpoint;
  }
  // The first attempt's state after `step` becomes a checkpoint.
  void Make(int64_t step) {
    BothHold(step);
    ASSERT_EQ(ToFetch(), (Cut{1, step}));
    CheckpointFetched(Fetched({1, step}));
    CheckpointKept(absl::OkStatus());
  }
  std::vector<int64_t> Kept(JobId job = {}) const {
    std::vector<int64_t> steps;
    const v1::Job view = Job(job);
    for (const v1::Checkpoint& each : view.checkpoints()) {
      steps.push_back(each.cut().step());
    }
    return steps;
  }
  // Both processes are replaced by others, which hold nothing.  Ends when the
  // next attempt is ordered.
  void LoseAll() {
    a_ = Attach("a", 11);
    b_ = Attach("b", 12);
    v1::Heartbeat empty;
    empty.mutable_pieces();
    // Longer than lost processes may take to come back.
    for (int i = 0; i < 500 && !Order(a_).run.has_value(); ++i) {
      Pass(50);
      for (const StreamId stream : {a_, b_}) {
        empty.set_sequence(1000 + i);
        empty.mutable_echo()->set_term(Order(stream).keep.number.term);
        empty.mutable_echo()->set_n(Order(stream).keep.number.n);
        EXPECT_TRUE(Send(stream, empty).ok());
      }
    }
  }

  StreamId a_ = Attach("a", 1);
  StreamId b_ = Attach("b", 2);
  const JobId job_ = Submit(CheckpointedSpec());
  size_t seen_ = 0;
};

TEST_F(CheckpointsTest, StepsThatAreRunAgainCountAsSkippedOnce) {
  BothHold(4);
  ReportSteps(a_, kRunning, 1, 8, true);

  Leave(b_, /*restarting=*/false);
  SayIdle({a_});
  ASSERT_EQ(Order(a_).run->base, (Cut{1, 4}));
  EXPECT_EQ(Record().job.skipped_steps(), 4);
  ReportSteps(a_, kRunning, 5, 8, true);

  EXPECT_EQ(Record().job.skipped_steps(), 8);
}

TEST_F(CheckpointsTest, AJobEndsWhenItsLastStepIsKeptOrWaitedForLongEnough) {
  const int64_t steps = Record().job.steps();
  ASSERT_EQ(steps % 20, 0);
  BothHold(steps);
  ASSERT_EQ(ToFetch(), (Cut{1, steps}));
  Saved(SavedWeights{"/weights", "abc", 1});
  EXPECT_EQ(State(), JobState::kRunning);

  CheckpointFetched(Fetched({1, steps}));
  CheckpointKept(absl::OkStatus());

  EXPECT_EQ(State(), JobState::kSucceeded);
  EXPECT_THAT(Kept(), ElementsAre(steps));

  const JobId late = Submit(CheckpointedSpec());
  Hold(a_, {}, late);
  Hold(b_, {}, late);
  Saved(SavedWeights{"/weights", "abc", 1}, late);
  EXPECT_EQ(State(late), JobState::kRunning);
  Pass(11000, {a_, b_});
  EXPECT_EQ(State(late), JobState::kSucceeded);
}

TEST_F(CheckpointsTest, TheFirstSafeCutFromItsStepOnIsPinnedAndFetched) {
  BothHold(15);
  EXPECT_TRUE(Todo().empty());
  Hold(a_, {{1, 25}});  // on one machine only
  EXPECT_TRUE(Todo().empty());

  BothHold(25);

  const std::vector<Actions::Checkpoint> todo = Todo();
  ASSERT_EQ(todo.size(), 1u);
  EXPECT_EQ(todo[0].kind, Kind::kFetch);
  EXPECT_EQ(todo[0].order.manifest.cut().step(), 25);
  ASSERT_EQ(todo[0].order.holders.size(), 4u);
  EXPECT_EQ(todo[0].order.holders[3].at(1).address, "b:7401");
  EXPECT_EQ(Order(a_).keep.keep.at(job_).pins, (std::set<Cut>{{1, 25}}));
}

TEST_F(CheckpointsTest, OneThatIsKeptIsListedAndNoLongerPinned) {
  Make(25);

  EXPECT_THAT(Kept(), ElementsAre(25));
  EXPECT_TRUE(Order(a_).keep.keep.at(job_).pins.empty());
  EXPECT_THAT(Story(), Tells("checkpoint: step 25 is on the"));
  EXPECT_EQ(brain().checkpoints().counts().kept, 1);
}

TEST_F(CheckpointsTest, NothingIsFetchedBesideAnother) {
  BothHold(25);
  Todo();

  BothHold(45);

  EXPECT_TRUE(Todo().empty());
  CheckpointFetched(Fetched({1, 25}));
  CheckpointKept(absl::OkStatus());
  EXPECT_EQ(ToFetch(), (Cut{1, 45}));
}

TEST_F(CheckpointsTest, TheNewestTwoStay) {
  for (const int64_t step : {20, 40, 50}) {
    if (step == 50) {
      BothHold(step);
      EXPECT_EQ(ToFetch(), Cut());  // the next one is due at 60
      continue;
    }
    Make(step);
  }
  Make(60);

  EXPECT_THAT(Kept(), ElementsAre(40, 60));
  EXPECT_EQ(Todo().back().steps, (std::set<int64_t>{40, 60}));
}

TEST_F(CheckpointsTest, NoStateWhoseStepsAreSkippedIsKept) {
  Make(20);
  ReportSteps(a_, kRunning, 21, 41, false);
  ReportSteps(a_, kRunning, 42, 44, true);

  BothHold(41);
  EXPECT_EQ(ToFetch(), Cut()) << "what it led to is skipped";
  BothHold(44);
  EXPECT_EQ(ToFetch(), Cut());

  ReportSteps(a_, kRunning, 45, 45, false);
  EXPECT_EQ(ToFetch(), (Cut{1, 44})) << "it was no more than a bad batch";
}

TEST_F(CheckpointsTest, OneThatTurnsOutToBeBrokenGoesAndTheSoundOneStays) {
  ReportSteps(a_, kRunning, 1, 20, false);
  Make(20);
  ReportSteps(a_, kRunning, 21, 40, false);
  Make(40);  // before anybody knows what its next step comes to
  ReportSteps(a_, kRunning, 41, 60, true);

  EXPECT_EQ(State(), JobState::kFailed);
  EXPECT_THAT(Kept(), ElementsAre(20));
  EXPECT_EQ(Todo().back().steps, (std::set<int64_t>{20}));
  EXPECT_THAT(Why(), Says("the training has diverged", "paceline job resume 1",
                          "train.learning_rate.base=RATE"));
  EXPECT_THAT(Why(), HasSubstr("from step 20"));
}

TEST_F(CheckpointsTest, AnExportGivesTheNewestSoundState) {
  ReportSteps(a_, kRunning, 1, 30, false);
  ReportSteps(a_, kRunning, 31, 35, true);
  BothHold(35);
  EXPECT_THAT(Export(job_).status().message(), HasSubstr("are skipped"));

  ReportSteps(a_, kRunning, 36, 40, false);
  ASSERT_EQ(ToFetch(), (Cut{1, 35})) << "it is sound";
  CheckpointFetched(Fetched({1, 35}));
  CheckpointKept(absl::OkStatus());
  ReportSteps(a_, kRunning, 41, 47, true);
  BothHold(47);

  const auto newest = Export(job_);
  ASSERT_TRUE(newest.ok() && newest->has_value()) << newest.status();
  EXPECT_EQ((*newest)->step, 35);
}

TEST_F(CheckpointsTest, AStoppedJobGoesOnFromItsNewestSoundState) {
  Make(25);
  Make(50);
  ReportSteps(a_, kRunning, 51, 60, true);
  ASSERT_TRUE(Stop().ok());

  EXPECT_EQ(Export(job_)->value().step, 25);
  EXPECT_EQ(Record(Resume(CheckpointedSpec(), job_, 0)).job.resumed().step(),
            25);
  EXPECT_EQ(Record(Resume(CheckpointedSpec(), job_, 50)).job.resumed().step(),
            50);
}

TEST_F(CheckpointsTest, AResumedJobCountsItsOwnStepsOnly) {
  Make(25);
  ASSERT_TRUE(Stop().ok());
  const JobId resumed = Resume(CheckpointedSpec(), job_, 0);
  v1::Heartbeat heartbeat = Beat(kRunning, 43, resumed);
  for (int64_t step = 26; step <= 43; ++step) {
    *heartbeat.add_steps() = StepOf(step, 1.0);
    heartbeat.mutable_steps()->rbegin()->set_skipped(step != 35);
  }
  EXPECT_TRUE(Send(a_, heartbeat).ok());

  EXPECT_EQ(SkippedText(Record(resumed)), "17 of 18 steps were skipped");
  EXPECT_TRUE(MostlySkipped(Record(resumed)));
}

TEST_F(CheckpointsTest, StepsSkippedInARowGoOnInTheNextAttempt) {
  ReportSteps(a_, kRunning, 1, 2, false);
  ReportSteps(a_, kRunning, 3, 16, true);
  BothHold(12);

  Leave(b_, /*restarting=*/false);
  SayIdle({a_});

  ASSERT_EQ(Order(a_).run->base, (Cut{1, 12}));
  EXPECT_EQ(Order(a_).run->skipped_in_row, 10);
  ReportSteps(a_, kRunning, 13, 21, true);
  EXPECT_EQ(State(), JobState::kRunning);
  ReportSteps(a_, kRunning, 22, 22, true);
  EXPECT_EQ(State(), JobState::kFailed) << "3 to 22";
}

TEST_F(CheckpointsTest, OneThatFailsIsAnEventAndTheJobTrainsOn) {
  BothHold(25);
  CheckpointFetched(absl::ResourceExhaustedError("the disk is full"));

  EXPECT_EQ(State(), JobState::kRunning);
  EXPECT_THAT(Story(), Tells("checkpoint-failed: step 25", "the disk is full"));
  EXPECT_TRUE(Order(a_).keep.keep.at(job_).pins.empty());
  EXPECT_EQ(brain().checkpoints().counts().failed, 1);
  Todo();
  BothHold(35);
  EXPECT_EQ(ToFetch(), Cut());  // nobody is bothered again at once
  BothHold(45);
  EXPECT_EQ(ToFetch(), (Cut{1, 45}));
}

TEST_F(CheckpointsTest, WhatALaterAttemptMadeInvalidIsNotKept) {
  BothHold(25);
  LoseAll();
  ASSERT_EQ(Job().attempt(), 2);
  Todo();

  CheckpointFetched(Fetched({1, 25}));

  EXPECT_THAT(Kept(), ElementsAre());
  EXPECT_THAT(Story(), Tells("gone on from an earlier step"));
  for (const Actions::Checkpoint& action : Todo()) {
    EXPECT_NE(action.kind, Kind::kKeep);
  }
}

TEST_F(CheckpointsTest, WhatBecameInvalidWhileItWasStoredIsNotKept) {
  BothHold(25);
  CheckpointFetched(Fetched({1, 25}));
  LoseAll();
  ASSERT_EQ(Job().attempt(), 2);

  CheckpointKept(absl::OkStatus());

  EXPECT_THAT(Kept(), ElementsAre());
  EXPECT_THAT(Story(), Tells("gone on from an earlier step"));
}

TEST_F(CheckpointsTest, AJobThatLostAllWorkersGoesOnFromTheCoordinatorsOwn) {
  Make(25);

  LoseAll();

  const StandingOrder order = Order(a_);
  ASSERT_TRUE(order.run.has_value());
  EXPECT_EQ(order.run->fence.attempt, 2);
  EXPECT_EQ(order.run->base, (Cut{1, 25}));
  ASSERT_EQ(order.run->sources.size(), 4u);
  for (const PieceSource& source : order.run->sources) {
    EXPECT_EQ(source.holder, kCoordinatorProcess);
    EXPECT_EQ(source.address, "");
  }
  EXPECT_EQ(brain().checkpoints().Find(job_, {1, 25})->step, 25);
  EXPECT_FALSE(brain().checkpoints().Find(job_, {2, 25}).ok());
}

TEST_F(CheckpointsTest, ALaterCoordinatorKnowsThem) {
  Make(25);

  Mesh next(stored());

  EXPECT_EQ(NewestCheckpoint(next.Record()), (Cut{1, 25}));
}

TEST_F(CheckpointsTest, AResumedJobIsANewOneThatBeginsThere) {
  Make(25);
  ASSERT_TRUE(Stop().ok());
  JobSpec spec = CheckpointedSpec();
  spec.pipeline.stages = 1;

  const JobId resumed = Resume(spec, job_, 0);

  ASSERT_TRUE(resumed.assigned() && resumed != job_) << submit_error();
  EXPECT_EQ(Job(resumed).step(), 25);
  EXPECT_EQ(Job(resumed).resumed().job(), job_.value);
  EXPECT_THAT(Story(resumed), Tells("from step 25 of job 1"));
  const StandingOrder order = Order(a_);
  ASSERT_TRUE(order.run.has_value());
  EXPECT_EQ(order.run->fence.job, resumed);
  EXPECT_EQ(order.run->base, (Cut{0, 25}));
  EXPECT_EQ(order.run->sources.at(0).holder, kCoordinatorProcess);
  const auto found = brain().checkpoints().Find(resumed, {0, 25});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->job, job_);
}

TEST_F(CheckpointsTest, AResumedJobNeverGoesBackToTheBeginning) {
  Make(25);
  ASSERT_TRUE(Stop().ok());
  const JobId resumed = Resume(CheckpointedSpec(), job_, 25);
  Hold(a_, {}, resumed);
  Hold(b_, {}, resumed);

  LoseAll();

  ASSERT_TRUE(Order(a_).run.has_value());
  EXPECT_EQ(Order(a_).run->fence.attempt, 2);
  EXPECT_EQ(Order(a_).run->base, (Cut{0, 25}));
}

// Labels that were changed between stop and resume were not noticed.
TEST_F(CheckpointsTest, AResumedJobMustFindTheDataOfItsCheckpoint) {
  v1::Heartbeat heartbeat = Beat(kRunning, 1);
  heartbeat.mutable_run()->mutable_inputs()->set_data(5);
  heartbeat.mutable_run()->mutable_inputs()->set_contents(6);
  heartbeat.mutable_run()->mutable_inputs()->set_weights(7);
  ASSERT_TRUE(Send(a_, heartbeat).ok());
  BothHold(25);
  const std::vector<Actions::Checkpoint> todo = Todo();
  ASSERT_FALSE(todo.empty());
  EXPECT_EQ(todo[0].order.manifest.inputs().contents(), 6u);
  CheckpointFetched(Fetched({1, 25}));
  CheckpointKept(absl::OkStatus());
  ASSERT_TRUE(Stop().ok());

  const JobId same = Resume(CheckpointedSpec(), job_, 0);
  EXPECT_EQ(Order(a_).run->inputs.data(), 5u);
  EXPECT_EQ(Order(a_).run->inputs.contents(), 6u);
  EXPECT_EQ(Order(a_).run->inputs.weights(), 0u) << "they are not read again";
  v1::Inputs others;
  others.set_contents(8);
  for (const StreamId worker : {a_, b_}) {
    Report(worker, same, v1::RunState::PHASE_FAILED, 25,
           CheckInputs(others, Order(worker).run->inputs, CheckpointedSpec()));
    Pass(200, {a_, b_});
  }
  EXPECT_EQ(State(same), JobState::kFailed) << Why(same);
  EXPECT_THAT(Why(same), HasSubstr("--accept-changed-data"));

  JobSpec augmented = CheckpointedSpec();
  augmented.data.flip = 0.5;  // other samples of the same files
  const JobId other = Resume(augmented, job_, 0);
  EXPECT_EQ(Record(other).job.inputs().data(), 0u);
  EXPECT_EQ(Record(other).job.inputs().contents(), 6u);
  ASSERT_TRUE(Stop(other).ok());

  v1::SubmitJobRequest request = SubmissionOf(CheckpointedSpec());
  request.mutable_resume()->set_job(job_.value);
  request.mutable_resume()->set_accept_changed_data(true);
  EXPECT_EQ(Record(Submit(request)).job.inputs().contents(), 0u);
}

TEST_F(CheckpointsTest, ResumeRefusesWhatCannotGoOn) {
  Make(25);
  Resume(CheckpointedSpec(), job_, 0);
  EXPECT_THAT(submit_error().message(), HasSubstr("end it first"));
  ASSERT_TRUE(Stop().ok());
  const JobId plain = Submit(SpecOf(2));
  ASSERT_TRUE(Stop(plain).ok());
  JobSpec done = CheckpointedSpec(), infers = CheckpointedSpec();
  done.train.steps = 25;
  infers.kind = kInferKind;

  for (const auto& [spec, job, step, why] :
       {std::tuple{CheckpointedSpec(), JobId{99}, 0, "99"},
        {CheckpointedSpec(), plain, 0, "has no checkpoint: "},
        {CheckpointedSpec(), job_, 30, "there are: 25"},
        {done, job_, 0, "the job ends at step 25: let it train longer"},
        {infers, job_, 0, "only a job that trains"}}) {
    Resume(spec, job, step);
    EXPECT_THAT(submit_error().message(), HasSubstr(why));
    // Nothing that a client would take for a lack of workers.
    EXPECT_FALSE(absl::IsFailedPrecondition(submit_error())) << why;
  }
}

TEST_F(CheckpointsTest, WhatAnOpenJobBeganFromIsNotDeleted) {
  Make(25);
  ASSERT_TRUE(Stop().ok());
  const JobId resumed = Resume(CheckpointedSpec(), job_, 0);

  EXPECT_THAT(brain().CheckDelete(job_).message(),
              HasSubstr("job 2 began from a checkpoint of job 1"));
  ASSERT_TRUE(Stop(resumed).ok());
  EXPECT_TRUE(brain().CheckDelete(job_).ok());
}

TEST_F(CheckpointsTest, ADamagedOneGivesWayToTheOneBeforeIt) {
  Make(20);
  Make(40);

  CheckpointDamaged(job_, {job_, 40}, absl::DataLossError("layer 1 is wrong"));
  // Another worker's request found the folder deleted.
  CheckpointDamaged(job_, {job_, 40}, absl::NotFoundError("it is gone"));

  EXPECT_THAT(Kept(), ElementsAre(20));
  EXPECT_EQ(NewestCheckpoint(Record()), (Cut{1, 20}));
  EXPECT_EQ(State(), JobState::kRunning);
  EXPECT_THAT(Story(), Contains("checkpoint-failed: layer 1 is wrong"));
  EXPECT_THAT(Story(), Not(Contains("checkpoint-failed: it is gone")));
}

// Its pieces lie on the disk already.
TEST_F(CheckpointsTest, OneThatIsFetchedStaysWhereAnotherIsDamaged) {
  Make(20);
  BothHold(45);
  ASSERT_EQ(ToFetch(), (Cut{1, 45}));

  CheckpointDamaged(job_, {job_, 20}, absl::DataLossError("layer 1 is wrong"));

  EXPECT_EQ(Todo().back().steps, (std::set<int64_t>{45}));
}

TEST_F(CheckpointsTest, AJobWhoseOnlyBeginningIsDamagedFails) {
  Make(25);
  ASSERT_TRUE(Stop().ok());
  const JobId resumed = Resume(CheckpointedSpec(), job_, 0);

  CheckpointDamaged(resumed, {job_, 25}, absl::DataLossError("layer 1 is bad"));

  EXPECT_EQ(State(resumed), JobState::kFailed);
  EXPECT_THAT(Why(resumed), HasSubstr("layer 1 is bad"));
}

TEST_F(CheckpointsTest, AnExportOfAJobThatTrainsMakesACheckpointFirst) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Export(job_).status()));
  BothHold(10);

  const auto waits = Export(job_);

  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_FALSE(waits->has_value());
  EXPECT_EQ(ToFetch(), (Cut{1, 10}));
  CheckpointFetched(Fetched({1, 10}));
  EXPECT_TRUE(exports().empty());
  CheckpointKept(absl::OkStatus());
  ASSERT_EQ(exports().size(), 1u);
  EXPECT_EQ(exports()[0]->step, 10);
  EXPECT_EQ((*Export(job_))->step, 10);  // nothing newer is there
}

// A client on a slow link reads for long.
TEST_F(CheckpointsTest, OneThatIsExportedStaysBesideTheNewestTwo) {
  Make(20);
  Export(job_).IgnoreError();

  for (const int64_t step : {40, 60}) Make(step);

  EXPECT_THAT(Kept(), ElementsAre(40, 60));
  EXPECT_EQ(Todo().back().steps, (std::set<int64_t>{20, 40, 60}));
}

TEST_F(CheckpointsTest, AnExportThatCannotBeMadeIsAnswered) {
  BothHold(10);
  Export(job_).IgnoreError();
  CheckpointFetched(absl::UnavailableError("layer 2 cannot be had"));
  BothHold(15);
  Export(job_).IgnoreError();
  ASSERT_TRUE(Stop().ok());
  CheckpointFetched(absl::UnavailableError("layer 3 cannot be had"));

  ASSERT_EQ(exports().size(), 2u);
  EXPECT_THAT(exports()[0].status().message(), HasSubstr("layer 2"));
  EXPECT_THAT(exports()[1].status().message(), HasSubstr("layer 3"));
}

}  // namespace
}  // namespace paceline

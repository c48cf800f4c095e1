// The life of a data-parallel job beside its views: its end, drained workers,
// a later coordinator, and what rounds tell.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/group_mesh.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

const SavedWeights kSaved = {"/state/jobs/1/weights.safetensors", "abc", 10};

TEST(BrainGroup, AllMembersDoneSavesTheWeightsOnce) {
  GroupMesh mesh = Training(2);
  mesh.worker("w1").phase = RunPhase::kDone;
  mesh.Say("w1", 60);
  EXPECT_EQ(mesh.Job().phase, "saving");
  EXPECT_NE(mesh.mesh().weights().back().kind, Actions::Weights::Kind::kSave);

  mesh.worker("w2").phase = RunPhase::kDone;
  mesh.Say("w2", 60);

  EXPECT_EQ(mesh.mesh().weights().back().kind, Actions::Weights::Kind::kSave);
  EXPECT_TRUE(mesh.Run("w2").has_value());
  mesh.mesh().Saved(mesh.job(), kSaved);
  EXPECT_EQ(mesh.State(), JobState::kSucceeded);
  EXPECT_FALSE(mesh.Run("w2").has_value());
}

TEST(BrainGroup, UploaderThatIsLostIsReplacedAndItsHalfUploadIsNotSaved) {
  GroupMesh mesh = Training(3);
  for (const std::string name : {"w2", "w3"}) {
    mesh.worker(name).phase = RunPhase::kDone;
    mesh.Say(name, 60);
  }

  mesh.Break("w1");
  mesh.mesh().Pass(550);  // nobody says anything of the new view yet
  EXPECT_EQ(mesh.Run("w2")->group->uploader, mesh.Id("w2"));
  EXPECT_NE(mesh.mesh().weights().back().kind, Actions::Weights::Kind::kSave);
  mesh.Say("w2");
  EXPECT_EQ(mesh.mesh().weights().back().kind, Actions::Weights::Kind::kSave);

  mesh.mesh().Saved(
      mesh.job(), absl::FailedPreconditionError("2 of 8 tensors are missing"));
  EXPECT_EQ(mesh.State(), JobState::kRunning);
  mesh.Pass(600);
  mesh.mesh().Saved(mesh.job(), kSaved);
  EXPECT_EQ(mesh.State(), JobState::kSucceeded);
}

TEST(BrainGroup, MemberThatFailsIsTakenOutAndTheOthersGoOn) {
  GroupMesh mesh = Training(3);
  Heartbeat failed = mesh.Beat("w2");
  failed.run->phase = RunPhase::kFailed;
  failed.run->error = absl::NotFoundError("no such file");

  mesh.Send("w2", failed);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("lost: member w2 lost (no such file)")));
}

TEST(BrainGroup, JobFailsWhenItsLastMemberDoes) {
  GroupMesh mesh = Training(1);
  Heartbeat failed = mesh.Beat("w1");
  failed.run->phase = RunPhase::kFailed;
  failed.run->error = absl::NotFoundError("no such file");

  mesh.Send("w1", failed);

  EXPECT_EQ(mesh.State(), JobState::kFailed);
  EXPECT_THAT(mesh.Why(), HasSubstr("worker w1 failed at step 3 of 60: no such "
                                    "file; no other member is left"));
}

TEST(BrainGroup, DrainedMemberLeavesItsGroupAndGetsNothingNew) {
  GroupMesh mesh = Training(3);

  const auto drained = mesh.mesh().Drain("w2", true);

  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_TRUE(drained->drained);
  EXPECT_FALSE(drained->job.assigned());
  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_TRUE(mesh.mesh().stored().drained.contains(WorkerId{2}));
  mesh.Pass(2000);
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("left: member w2 left (drained); view 1.2")));
}

TEST(BrainGroup, UndrainedMemberComesBackAsAnotherProcess) {
  GroupMesh mesh = Training(3);
  ASSERT_TRUE(mesh.mesh().Drain("w2", true).ok());

  ASSERT_TRUE(mesh.mesh().Drain("w2", false).ok());
  mesh.Pass(100);
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);

  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, LastMemberIsDrainedOnlyWhenSomebodyHasTheState) {
  GroupMesh mesh = Training(1);
  ASSERT_TRUE(mesh.mesh().Drain("w1", true).ok());
  EXPECT_EQ(mesh.Members("w1"), "w1");

  mesh.Attach("w2", 102);
  mesh.worker("w2").report.level = true;
  mesh.Say("w2", 3);
  EXPECT_EQ(mesh.Members("w2"), "w1 w2");
  mesh.worker("w2").report.has_taken_part = true;
  mesh.Say("w2", 6);

  EXPECT_EQ(mesh.Members("w2"), "w2");
  EXPECT_FALSE(mesh.Run("w1").has_value());
}

TEST(BrainGroup, DrainedWorkerFinishesItsPipelineAndGetsNoOtherJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  const JobId next = mesh.Submit(SpecOf(1));

  ASSERT_TRUE(mesh.Drain("a", true).ok());
  EXPECT_EQ(mesh.Order(a).run->fence.job, job);
  EXPECT_THAT(mesh.Story(job),
              Contains(HasSubstr("draining: worker a is let go")));
  mesh.Report(a, job, RunPhase::kDone, 60);
  mesh.Saved(job, kSaved);

  EXPECT_EQ(mesh.State(next), JobState::kQueued);
  EXPECT_THAT(mesh.Why(next), HasSubstr("paceline node undrain"));
  ASSERT_TRUE(mesh.Drain("1", false).ok());
  EXPECT_EQ(mesh.State(next), JobState::kRunning);
}

// Issue 22, defect 1.
TEST(BrainGroup, EndOfAJobLeavesWorkersAloneThatAnotherJobHasByThen) {
  GroupMesh mesh = Training(3);
  const JobId next = mesh.mesh().Submit(SpecOf(1));
  ASSERT_TRUE(mesh.mesh().Drain("w2", true).ok());
  ASSERT_TRUE(mesh.mesh().Drain("w2", false).ok());
  ASSERT_EQ(mesh.Run("w2")->fence.job, next);

  ASSERT_TRUE(mesh.mesh().brain().OnStop(mesh.job(), mesh.mesh().Now()).ok());
  mesh.Pass(100);

  ASSERT_TRUE(mesh.Run("w2").has_value());
  EXPECT_EQ(mesh.Run("w2")->fence.job, next);
  mesh.mesh().Report(mesh.worker("w2").stream, next, RunPhase::kDone, 60);
  mesh.mesh().Saved(next, kSaved);
  EXPECT_EQ(mesh.mesh().State(next), JobState::kSucceeded);
}

// Issue 22, defect 1.
TEST(BrainGroup, LaterCoordinatorKnowsWhichJobHasAWorkerThatTwoHaveHad) {
  JobSpec pair = GroupSpec();
  pair.aggregation.members = 2;
  StoredState stored;
  int64_t ms = 0;
  JobId first;
  {
    GroupMesh mesh;
    mesh.AttachAll(4);
    first = mesh.Submit(pair);
    const JobId second = mesh.Submit(pair);
    mesh.SayAll(3);
    ASSERT_EQ(mesh.Run("w4")->fence.job, second);
    ASSERT_TRUE(mesh.mesh().Drain("w4", true).ok());
    ASSERT_TRUE(mesh.mesh().Drain("w2", true).ok());
    ASSERT_TRUE(mesh.mesh().Drain("w4", false).ok());
    ASSERT_EQ(mesh.Run("w4")->fence.job, first);
    stored = mesh.mesh().stored();
    ms = mesh.mesh().ms();
  }
  GroupMesh mesh(stored, ms);
  mesh.AttachAll(4);
  mesh.Pass(100);

  ASSERT_TRUE(mesh.Run("w4").has_value());
  EXPECT_EQ(mesh.Run("w4")->fence.job, first);
  EXPECT_EQ(mesh.Workers("w1"), "w1 w4");
  EXPECT_EQ(mesh.Workers("w3"), "w3");
}

TEST(BrainGroup, DrainOfNobodyListsThoseThereAre) {
  GroupMesh mesh;
  mesh.AttachAll(2);

  EXPECT_EQ(mesh.mesh().Drain("w7", true).status(),
            absl::NotFoundError("no worker 'w7'; known are: w1, w2"));
}

TEST(BrainGroup, LaterCoordinatorGoesOnWithTheStoredViewInAHigherTerm) {
  StoredState stored;
  int64_t ms = 0;
  JobId job;
  {
    GroupMesh mesh = Training(3);
    mesh.Break("w3");
    mesh.Pass(600);
    stored = mesh.mesh().stored();
    ms = mesh.mesh().ms();
    job = mesh.job();
  }
  GroupMesh mesh(stored, ms);
  mesh.SetJob(job);
  mesh.Attach("w1", 101);
  mesh.Attach("w2", 102);

  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{1, 2}));
  EXPECT_EQ(mesh.Members("w2"), "w1 w2");
  for (const std::string name : {"w1", "w2"}) {
    mesh.worker(name).report.has_taken_part = true;
    mesh.Say(name, 4);
  }
  mesh.Attach("w3", 203);
  mesh.worker("w3").report.level = true;
  mesh.Say("w3", 4);

  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{2, 1}));
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
}

TEST(BrainGroup, MembersThatDoNotComeBackToALaterCoordinatorAreLost) {
  StoredState stored;
  int64_t ms = 0;
  JobId job;
  {
    GroupMesh mesh = Training(2);
    stored = mesh.mesh().stored();
    ms = mesh.mesh().ms();
    job = mesh.job();
  }
  GroupMesh mesh(stored, ms);
  mesh.SetJob(job);
  mesh.Attach("w1", 101);
  mesh.worker("w1").report.has_taken_part = true;
  mesh.Say("w1", 4);
  mesh.Pass(3000);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2");

  mesh.Pass(1000);

  EXPECT_EQ(mesh.Members("w1"), "w1");
  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{2, 1}));
}

TEST(BrainGroup, ProcessThatWasTakenOutStaysOutUnderALaterCoordinator) {
  StoredState stored;
  int64_t ms = 0;
  JobId job;
  {
    GroupMesh mesh = Training(3);
    mesh.Link("w1", "w2", false, absl::Milliseconds(3100));
    ASSERT_EQ(mesh.Members("w1"), "w1 w3");
    stored = mesh.mesh().stored();
    ms = mesh.mesh().ms();
    job = mesh.job();
  }
  GroupMesh mesh(stored, ms);
  mesh.SetJob(job);
  mesh.AttachAll(3);

  EXPECT_EQ(mesh.Workers("w1"), "w1 w3");
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, FaultsThatAreSpentStaySoUnderALaterCoordinator) {
  StoredState stored;
  int64_t ms = 0;
  JobId job;
  JobSpec spec = GroupSpec();
  spec.faults = {{.worker = "w1", .step = 5, .kind = "nan"}};
  {
    GroupMesh mesh = Training(2, spec);
    EXPECT_EQ(mesh.Run("w1")->spec.faults.size(), 1u);
    mesh.Break("w1");
    mesh.Break("w2");
    mesh.Pass(600);
    ASSERT_EQ(mesh.State(), JobState::kQueued);
    stored = mesh.mesh().stored();
    ms = mesh.mesh().ms();
    job = mesh.job();
  }
  GroupMesh mesh(stored, ms);
  mesh.SetJob(job);
  mesh.Attach("w1", 201);
  mesh.Attach("w2", 202);

  ASSERT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_TRUE(mesh.Run("w1")->spec.faults.empty());
}

// Issue 22, defect 16: all streams broke while the coordinator stood still.
TEST(BrainGroup, GoesOnWithAllItsMembersAfterTheCoordinatorStoodStill) {
  GroupMesh mesh = Training(3);
  mesh.mesh().brain().OnStandstill(absl::Seconds(30), mesh.mesh().Now());
  for (const std::string name : {"w1", "w2", "w3"}) mesh.Break(name);

  mesh.Pass(3000);
  mesh.AttachAll(3);
  mesh.Pass(2000);

  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{1, 1}));
  EXPECT_EQ(mesh.Members("w3"), "w1 w2 w3");
}

TEST(BrainGroup, PartialEvaluationsAreMergedByTheirSamples) {
  GroupMesh mesh = Training(2);
  Heartbeat one = mesh.Beat("w1");
  one.evaluations = {{10, 2.0, 0.5, 100}};
  Heartbeat two = mesh.Beat("w2");
  two.evaluations = {{10, 1.0, 0.9, 300}};

  mesh.Send("w1", one);
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("evaluated"))));
  mesh.Send("w2", two);
  mesh.Send("w2", two);  // its acknowledgement was lost

  EXPECT_THAT(mesh.Story(),
              Contains("evaluated: accuracy 0.8000, loss 1.2500 after step 10 "
                       "over 400 samples"));
  EXPECT_DOUBLE_EQ(*mesh.Job().accuracy, 0.8);
}

// Issue 22, defect 20.
TEST(BrainGroup, AnEvaluationOfAPartOfTheTestSetIsToldApart) {
  GroupMesh mesh = Training(2);
  const auto evaluate = [&mesh](const char* name, EvaluationRecord part) {
    Heartbeat heartbeat = mesh.Beat(name);
    heartbeat.evaluations = {part};
    mesh.Send(name, heartbeat);
  };

  evaluate("w1", {10, 2.0, 0.5, 5000});
  mesh.Break("w2");
  mesh.Pass(600);
  ASSERT_EQ(mesh.Members("w1"), "w1");
  EXPECT_FALSE(mesh.Job().accuracy.has_value());
  evaluate("w1", {20, 1.0, 0.8, 10000});  // alone it has the whole set
  evaluate("w1", {30, 1.0, 0.9, 7000});   // lost before the first part came
  evaluate("w1", {40, 1.0, 0.7, 10000});

  const std::vector<std::string> story = mesh.Story();
  EXPECT_THAT(
      story,
      Contains("incomplete: accuracy 0.5000, loss 2.0000 after step 10 "
               "over 5000 samples, not the whole test set: it does not count; "
               "no part came from w2"));
  EXPECT_THAT(story, Contains(HasSubstr("evaluated: accuracy 0.8000")));
  EXPECT_THAT(story, Contains(HasSubstr("incomplete: accuracy 0.9000")));
  EXPECT_DOUBLE_EQ(*mesh.Job().accuracy, 0.7);
}

// Issue 22, defect 20: the next evaluation ended the one before it, though the
// other members' parts were on their way.
TEST(BrainGroup, AnEvaluationWaitsForMembersThatHaveNotSentTheNextOne) {
  GroupMesh mesh = Training(2);
  Heartbeat one = mesh.Beat("w1");
  one.evaluations = {{10, 2.0, 0.5, 100}, {11, 1.0, 0.6, 100}};
  Heartbeat two = mesh.Beat("w2");
  two.evaluations = {{10, 2.0, 0.7, 100}, {11, 1.0, 0.8, 100}};

  mesh.Send("w1", one);
  mesh.Send("w2", two);

  const std::vector<std::string> story = mesh.Story();
  EXPECT_THAT(story, Contains(HasSubstr("evaluated: accuracy 0.6000")));
  EXPECT_THAT(story, Contains(HasSubstr("evaluated: accuracy 0.7000")));
  EXPECT_THAT(story, Each(Not(HasSubstr("incomplete"))));
}

TEST(BrainGroup, StepThatSeveralMembersRecordCountsOnce) {
  GroupMesh mesh = Training(2);
  for (const std::string name : {"w1", "w2"}) {
    Heartbeat heartbeat = mesh.Beat(name);
    heartbeat.steps = {{4, 1.0, 64, 0.1, 1, true, 1000}};
    mesh.Send(name, heartbeat);
  }

  EXPECT_EQ(mesh.Job().record.skipped_steps, 1);
}

TEST(BrainGroup, StepsThatMembersRecordOutOfOrderCountAll) {
  GroupMesh mesh = Training(2);
  const auto tell = [&mesh](const char* name, int64_t step, bool skipped) {
    Heartbeat heartbeat = mesh.Beat(name);
    heartbeat.steps = {{step, 0.1 * static_cast<double>(step), 64, 0.1, 1,
                        skipped, 1000 * step}};
    mesh.Send(name, heartbeat);
  };

  tell("w1", 6, false);
  tell("w2", 5, true);
  tell("w2", 5, true);  // its acknowledgement was lost

  EXPECT_EQ(mesh.Job().record.skipped_steps, 1);
  EXPECT_EQ(mesh.Job().record.recorded_step, 6);
  EXPECT_DOUBLE_EQ(*mesh.Job().loss, 0.6);
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("skipping"))));
}

TEST(BrainGroup, RoundsThatWentWrongBecomeEvents) {
  GroupMesh mesh = Training(3);
  Heartbeat heartbeat = mesh.Beat("w3");
  RoundRecord round;
  round.step = 16;
  round.server = WorkerId{3};
  round.lost_server = WorkerId{2};
  round.takeover_seconds = 0.041;
  round.skipped = {{WorkerId{2}, "lost"}};
  heartbeat.rounds = {round};

  mesh.Send("w3", heartbeat);
  mesh.Send("w3", heartbeat);

  EXPECT_THAT(mesh.Story(),
              Contains("takeover: step 17: server w2 lost, w3 took over in 41 "
                       "ms, part of w2 skipped (lost)")
                  .Times(1));
}

TEST(BrainGroup, ADeadlineThatSlowLinksMissIsWarnedOfOnce) {
  GroupMesh mesh = Training(3);
  const auto tell = [&mesh](int64_t step, double seconds, const char* reason) {
    Heartbeat heartbeat = mesh.Beat("w3");
    RoundRecord round;
    round.step = step;
    round.seconds = seconds;
    round.skipped = {{WorkerId{2}, reason}};
    heartbeat.rounds = {round};
    mesh.Send("w3", heartbeat);
  };
  const auto warning = Contains(HasSubstr(
      "waits at most aggregation.deadline, 30 s, for the parts of slow members "
      "or over slow links"));

  tell(1, 29.9, "late");
  tell(2, 90, "lost");
  EXPECT_THAT(mesh.Story(), Not(warning));
  tell(3, 64, "late");
  tell(4, 64, "late");

  EXPECT_THAT(mesh.Story(), warning.Times(1));
}

}  // namespace
}  // namespace paceline

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

void Evaluate(GroupMesh& mesh, const std::string& name,
              const std::vector<EvaluationRecord>& parts) {
  Heartbeat heartbeat = mesh.Beat(name);
  heartbeat.evaluations = parts;
  mesh.Send(name, heartbeat);
}

void TellOf(GroupMesh& mesh, const RoundRecord& round) {
  Heartbeat heartbeat = mesh.Beat("w3");
  heartbeat.rounds = {round};
  mesh.Send("w3", heartbeat);
}

void Fail(GroupMesh& mesh, const std::string& name) {
  Heartbeat failed = mesh.Beat(name);
  failed.run->phase = RunPhase::kFailed;
  failed.run->error = absl::NotFoundError("no such file");
  mesh.Send(name, failed);
}

void Finish(GroupMesh& mesh, const std::string& name) {
  mesh.worker(name).phase = RunPhase::kDone;
  mesh.Say(name, 60);
}

TEST(BrainGroup, AllMembersDoneSavesTheWeightsOnce) {
  GroupMesh mesh = Training(2);
  Finish(mesh, "w1");
  EXPECT_EQ(mesh.Job().phase(), "saving");
  EXPECT_NE(mesh.weights().back().kind, Actions::Weights::Kind::kSave);

  Finish(mesh, "w2");

  EXPECT_EQ(mesh.weights().back().kind, Actions::Weights::Kind::kSave);
  EXPECT_TRUE(mesh.Run("w2").has_value());
  mesh.Saved(kSaved);
  EXPECT_EQ(mesh.State(), JobState::kSucceeded);
  EXPECT_FALSE(mesh.Run("w2").has_value());
}

TEST(BrainGroup, UploaderThatIsLostIsReplacedAndItsHalfUploadIsNotSaved) {
  GroupMesh mesh = Training(3);
  Finish(mesh, "w2");
  Finish(mesh, "w3");

  mesh.Break("w1");
  mesh.Mesh::Pass(550);  // nobody says anything of the new view yet
  EXPECT_EQ(mesh.Run("w2")->group->uploader, mesh.Id("w2"));
  EXPECT_NE(mesh.weights().back().kind, Actions::Weights::Kind::kSave);
  mesh.Say("w2");
  EXPECT_EQ(mesh.weights().back().kind, Actions::Weights::Kind::kSave);

  mesh.Saved(absl::FailedPreconditionError("2 of 8 tensors are missing"));
  EXPECT_EQ(mesh.State(), JobState::kRunning);
  mesh.Pass(600);
  mesh.Saved(kSaved);
  EXPECT_EQ(mesh.State(), JobState::kSucceeded);
}

TEST(BrainGroup, MemberThatFailsIsTakenOutAndTheOthersGoOn) {
  GroupMesh mesh = Training(3);

  Fail(mesh, "w2");

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("lost: member w2 lost (no such file)")));
}

TEST(BrainGroup, JobFailsWhenItsLastMemberDoes) {
  GroupMesh mesh = Training(1);

  Fail(mesh, "w1");

  EXPECT_EQ(mesh.State(), JobState::kFailed);
  EXPECT_THAT(mesh.Why(), HasSubstr("worker w1 failed at step 3 of 60: no such "
                                    "file; no other member is left"));
}

TEST(BrainGroup, DrainedMemberLeavesItsGroupAndGetsNothingNew) {
  GroupMesh mesh = Training(3);

  const auto drained = mesh.Drain("w2", true);

  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_TRUE(drained->drained());
  EXPECT_EQ(drained->job(), 0);
  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_TRUE(mesh.stored().drained.contains(WorkerId{2}));
  mesh.Pass(2000);
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("left: member w2 left (drained); view 1.2")));
}

TEST(BrainGroup, UndrainedMemberComesBackAsAnotherProcess) {
  GroupMesh mesh = Training(3);
  ASSERT_TRUE(mesh.Drain("w2", true).ok());

  ASSERT_TRUE(mesh.Drain("w2", false).ok());
  mesh.Pass(100);
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);

  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, LastMemberIsDrainedOnlyWhenSomebodyHasTheState) {
  GroupMesh mesh = Training(1);
  ASSERT_TRUE(mesh.Drain("w1", true).ok());
  EXPECT_EQ(mesh.Members("w1"), "w1");

  mesh.Attach("w2", 102);
  mesh.Level("w2", 3);
  EXPECT_EQ(mesh.Members("w2"), "w1 w2");
  mesh.worker("w2").report.has_taken_part = true;
  mesh.Say("w2", 6);

  EXPECT_EQ(mesh.Members("w2"), "w2");
  EXPECT_FALSE(mesh.Run("w1").has_value());
}

using BrainDrain = MeshWithAJob;

TEST_F(BrainDrain, LetsAWorkerFinishItsPipelineAndGivesItNoOtherJob) {
  const JobId next = Submit(SpecOf(1));

  ASSERT_TRUE(Drain("a", true).ok());
  EXPECT_EQ(Order(a_).run->fence.job, job_);
  EXPECT_THAT(Story(), Contains(HasSubstr("draining: worker a is let go")));
  Report(RunPhase::kDone, 60);
  Saved(kSaved);

  EXPECT_EQ(State(next), JobState::kQueued);
  EXPECT_THAT(Why(next), HasSubstr("paceline node undrain"));
  ASSERT_TRUE(Drain("1", false).ok());
  EXPECT_EQ(State(next), JobState::kRunning);
}

// Drained and taken back, w2 went to the next job.
TEST(BrainGroup, EndOfAJobLeavesWorkersAloneThatAnotherJobHasByThen) {
  GroupMesh mesh = Training(3);
  const JobId next = mesh.Submit(SpecOf(1));
  ASSERT_TRUE(mesh.Drain("w2", true).ok());
  ASSERT_TRUE(mesh.Drain("w2", false).ok());
  ASSERT_EQ(mesh.Run("w2")->fence.job, next);

  ASSERT_TRUE(mesh.Stop().ok());
  mesh.Pass(100);

  ASSERT_TRUE(mesh.Run("w2").has_value());
  EXPECT_EQ(mesh.Run("w2")->fence.job, next);
  mesh.Report(mesh.worker("w2").stream, next, RunPhase::kDone, 60);
  mesh.Saved(kSaved, next);
  EXPECT_EQ(mesh.State(next), JobState::kSucceeded);
}

// A worker that two jobs have had.
TEST(BrainGroup, LaterCoordinatorKnowsWhichJobHasAWorkerThatTwoHaveHad) {
  JobSpec pair = GroupSpec();
  pair.aggregation.members = 2;
  GroupMesh before;
  before.AttachAll(4);
  const JobId first = before.Submit(pair);
  const JobId second = before.Submit(pair);
  before.SayAll(3);
  ASSERT_EQ(before.Run("w4")->fence.job, second);
  ASSERT_TRUE(before.Drain("w4", true).ok());
  ASSERT_TRUE(before.Drain("w2", true).ok());
  ASSERT_TRUE(before.Drain("w4", false).ok());
  ASSERT_EQ(before.Run("w4")->fence.job, first);

  GroupMesh mesh = Later(before);
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

  EXPECT_EQ(mesh.Drain("w7", true).status(),
            absl::NotFoundError("no worker 'w7'; known are: w1, w2"));
}

TEST(BrainGroup, LaterCoordinatorGoesOnWithTheStoredViewInAHigherTerm) {
  GroupMesh before = Training(3);
  before.Break("w3");
  before.Pass(600);
  GroupMesh mesh = Later(before);
  mesh.AttachAll(2);

  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{1, 2}));
  EXPECT_EQ(mesh.Members("w2"), "w1 w2");
  mesh.SayAll(4);
  mesh.Attach("w3", 203);
  mesh.Level("w3", 4);

  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{2, 1}));
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
}

TEST(BrainGroup, MembersThatDoNotComeBackToALaterCoordinatorAreLost) {
  GroupMesh mesh = Later(Training(2));
  mesh.Attach("w1", 101);
  mesh.Say("w1", 4);
  mesh.Pass(3000);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2");

  mesh.Pass(1000);

  EXPECT_EQ(mesh.Members("w1"), "w1");
  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{2, 1}));
}

TEST(BrainGroup, ProcessThatWasTakenOutStaysOutUnderALaterCoordinator) {
  GroupMesh before = Training(3);
  before.Link("w1", "w2", false, absl::Milliseconds(3100));
  ASSERT_EQ(before.Members("w1"), "w1 w3");
  GroupMesh mesh = Later(before);
  mesh.AttachAll(3);

  EXPECT_EQ(mesh.Workers("w1"), "w1 w3");
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, FaultsThatAreSpentStaySoUnderALaterCoordinator) {
  JobSpec spec = GroupSpec();
  spec.faults = {{.worker = "w1", .step = 5, .kind = "nan"}};
  GroupMesh before = Training(2, spec);
  EXPECT_EQ(before.Run("w1")->spec.faults.size(), 1u);
  before.Break("w1");
  before.Break("w2");
  before.Pass(600);
  ASSERT_EQ(before.State(), JobState::kQueued);
  GroupMesh mesh = Later(before);
  mesh.Attach("w1", 201);
  mesh.Attach("w2", 202);

  ASSERT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_TRUE(mesh.Run("w1")->spec.faults.empty());
}

// All streams broke while the coordinator stood still.
TEST(BrainGroup, GoesOnWithAllItsMembersAfterTheCoordinatorStoodStill) {
  GroupMesh mesh = Training(3);
  mesh.brain().OnStandstill(absl::Seconds(30), mesh.Now());
  for (const std::string name : {"w1", "w2", "w3"}) mesh.Break(name);

  mesh.Pass(3000);
  mesh.AttachAll(3);
  mesh.Pass(2000);

  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{1, 1}));
  EXPECT_EQ(mesh.Members("w3"), "w1 w2 w3");
}

TEST(BrainGroup, PartialEvaluationsAreMergedByTheirSamples) {
  GroupMesh mesh = Training(2);

  Evaluate(mesh, "w1", {{10, 2.0, 0.5, 100}});
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("evaluated"))));
  Evaluate(mesh, "w2", {{10, 1.0, 0.9, 300}});
  Evaluate(mesh, "w2", {{10, 1.0, 0.9, 300}});  // was not acknowledged

  EXPECT_THAT(mesh.Story(),
              Contains("evaluated: accuracy 0.8000, loss 1.2500 after step 10 "
                       "over 400 samples"));
  EXPECT_DOUBLE_EQ(mesh.Job().accuracy(), 0.8);
}

TEST(BrainGroup, AnEvaluationOfAPartOfTheTestSetIsToldApart) {
  GroupMesh mesh = Training(2);

  Evaluate(mesh, "w1", {{10, 2.0, 0.5, 5000}});
  mesh.Break("w2");
  mesh.Pass(600);
  ASSERT_EQ(mesh.Members("w1"), "w1");
  EXPECT_FALSE(mesh.Job().has_accuracy());
  Evaluate(mesh, "w1", {{20, 1.0, 0.8, 10000}});  // alone it has the whole set
  Evaluate(mesh, "w1", {{30, 1.0, 0.9, 7000}});   // lost before the first part
  Evaluate(mesh, "w1", {{40, 1.0, 0.7, 10000}});

  const std::vector<std::string> story = mesh.Story();
  EXPECT_THAT(
      story,
      Contains("incomplete: accuracy 0.5000, loss 2.0000 after step 10 "
               "over 5000 samples, not the whole test set: it does not count; "
               "no part came from w2"));
  EXPECT_THAT(story, Contains(HasSubstr("evaluated: accuracy 0.8000")));
  EXPECT_THAT(story, Contains(HasSubstr("incomplete: accuracy 0.9000")));
  EXPECT_DOUBLE_EQ(mesh.Job().accuracy(), 0.7);
}

// The next evaluation ended the one before it, though the other members' parts
// were on their way.
TEST(BrainGroup, AnEvaluationWaitsForMembersThatHaveNotSentTheNextOne) {
  GroupMesh mesh = Training(2);

  Evaluate(mesh, "w1", {{10, 2.0, 0.5, 100}, {11, 1.0, 0.6, 100}});
  Evaluate(mesh, "w2", {{10, 2.0, 0.7, 100}, {11, 1.0, 0.8, 100}});

  const std::vector<std::string> story = mesh.Story();
  EXPECT_THAT(story, Contains(HasSubstr("evaluated: accuracy 0.6000")));
  EXPECT_THAT(story, Contains(HasSubstr("evaluated: accuracy 0.7000")));
  EXPECT_THAT(story, Each(Not(HasSubstr("incomplete"))));
}

TEST(BrainGroup, StepsThatMembersRecordTwiceOrOutOfOrderCountAllOnce) {
  GroupMesh mesh = Training(2);
  const auto tell = [&mesh](const char* name, int64_t step, bool skipped) {
    Heartbeat heartbeat = mesh.Beat(name);
    heartbeat.steps = {{step, 0.1 * static_cast<double>(step), 64, 0.1, 1,
                        skipped, 1000 * step}};
    mesh.Send(name, heartbeat);
  };

  tell("w1", 6, false);
  tell("w2", 5, true);
  tell("w1", 5, true);

  EXPECT_EQ(mesh.Record().job.skipped_steps(), 1);
  EXPECT_EQ(mesh.Record().job.recorded_step(), 6);
  EXPECT_DOUBLE_EQ(mesh.Job().loss(), 0.6);
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("skipping"))));
}

TEST(BrainGroup, RoundsThatWentWrongBecomeOneEvent) {
  GroupMesh mesh = Training(3);
  RoundRecord round;
  round.step = 16;
  round.server = WorkerId{3};
  round.lost_server = WorkerId{2};
  round.takeover_seconds = 0.041;
  round.skipped = {{WorkerId{2}, "lost"}};

  TellOf(mesh, round);
  round.takeover_seconds = 0.043;  // as another member saw it
  TellOf(mesh, round);

  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("takeover:")).Times(1));
  EXPECT_THAT(mesh.Story(),
              Contains("takeover: step 17: server w2 lost, w3 took over in 41 "
                       "ms, part of w2 skipped (lost)"));
}

TEST(BrainGroup, ADeadlineThatSlowLinksMissIsWarnedOfOnce) {
  GroupMesh mesh = Training(3);
  const auto tell = [&mesh](int64_t step, double seconds, const char* reason) {
    RoundRecord round;
    round.step = step;
    round.seconds = seconds;
    round.skipped = {{WorkerId{2}, reason}};
    TellOf(mesh, round);
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

// What the brain does with the members of a data-parallel job.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/group_mesh.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

const SavedWeights kSaved = {"/state/jobs/1/weights.safetensors", "abc", 10};

// w1, w2, ... train together and have applied three steps.
GroupMesh Training(int workers, const JobSpec& spec = GroupSpec()) {
  GroupMesh mesh;
  mesh.AttachAll(workers);
  mesh.Submit(spec);
  mesh.SayAll(0);
  mesh.SayAll(3);
  return mesh;
}

TEST(BrainGroup, EveryFreeWorkerGetsTheWholeModelAndTheFirstView) {
  GroupMesh mesh;
  mesh.AttachAll(3);
  mesh.Submit(GroupSpec());

  const RunOrder run = *mesh.Run("w2");
  EXPECT_EQ(mesh.Members("w2"), "w1 w2 w3");
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
  EXPECT_EQ(run.group->view.id, (ViewId{1, 1}));
  EXPECT_EQ(run.group->uploader, mesh.Id("w1"));
  EXPECT_EQ(run.group->workers[2].address, "w3:7401");
  ASSERT_EQ(run.stages.size(), 1u);
  EXPECT_EQ(run.stages[0].worker, WorkerId{2});
  EXPECT_EQ(run.stages[0].layers.first, 0);
  EXPECT_EQ(mesh.Job().stages.size(), 3u);
  EXPECT_EQ(mesh.Job().members, 3);
}

TEST(BrainGroup, ViewsAreStoredWithTheirAttemptAndTerm) {
  GroupMesh mesh = Training(2);

  const StoredState& stored = mesh.mesh().stored();
  EXPECT_EQ(stored.term, 1);
  EXPECT_EQ(stored.views.at(mesh.job()).attempt, 1);
  EXPECT_EQ(stored.views.at(mesh.job()).view, mesh.ViewOf("w1"));
}

TEST(BrainGroup, TakesTheNamedWorkersWithTheirSharesAndNoOthers) {
  JobSpec spec = GroupSpec();
  spec.aggregation.workers = {"w3", "w1"};
  spec.aggregation.shares = {2, 0.5};
  GroupMesh mesh = Training(4, spec);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_EQ(mesh.ViewOf("w1").members[0].share, 0.5);
  EXPECT_EQ(mesh.ViewOf("w1").members[1].share, 2);
  EXPECT_FALSE(mesh.Run("w2").has_value());
  mesh.Pass(200);
  EXPECT_FALSE(mesh.Run("w4").has_value());
}

TEST(BrainGroup, TakesAtMostAsManyMembersAsItMay) {
  JobSpec spec = GroupSpec();
  spec.aggregation.members = 2;
  GroupMesh mesh = Training(3, spec);

  mesh.Pass(200);

  EXPECT_EQ(mesh.Members("w1"), "w1 w2");
  EXPECT_FALSE(mesh.Run("w3").has_value());
}

TEST(BrainGroup, WaitsUntilThereAreEnoughForARound) {
  GroupMesh mesh;
  mesh.AttachAll(2);
  JobSpec spec = GroupSpec();
  spec.aggregation.min_parts = 3;
  mesh.Submit(spec);
  EXPECT_EQ(mesh.State(), JobState::kQueued);
  EXPECT_EQ(mesh.Why(),
            "waits for workers: a round needs 3 members, and 2 workers that "
            "can be one are free");

  mesh.Attach("w3", 103);

  EXPECT_EQ(mesh.State(), JobState::kRunning);
}

TEST(BrainGroup, MemoryThatNobodyHasIsRefusedAtSubmit) {
  Mesh mesh;
  Registration tiny = WorkerNamed("w1", 1);
  tiny.memory_bytes = 1000;
  mesh.Attach(tiny);

  mesh.Submit(GroupSpec());

  EXPECT_EQ(mesh.submit_error().code(), absl::StatusCode::kResourceExhausted)
      << mesh.submit_error();
}

TEST(BrainGroup, LostMemberIsLeftOutAndTheJobGoesOn) {
  GroupMesh mesh = Training(3);

  mesh.Break("w2");
  mesh.Pass(600);

  EXPECT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_EQ(mesh.ViewOf("w3").id, (ViewId{1, 2}));
  EXPECT_THAT(
      mesh.Story(),
      Contains(AllOf(HasSubstr("lost: member w2 lost (its stream broke"),
                     HasSubstr("view 1.2 of 2 members"))));
}

TEST(BrainGroup, TwoWitnessesMakeANewViewWithoutWaiting) {
  GroupMesh mesh = Training(3);

  mesh.Link("w1", "w2", true);
  EXPECT_EQ(mesh.Members("w3"), "w1 w2 w3");
  mesh.Break("w2");

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_EQ(mesh.Members("w3"), "w1 w3");
}

TEST(BrainGroup, TheOtherWitnessMayComeLast) {
  GroupMesh mesh = Training(3);

  mesh.Break("w2");
  EXPECT_EQ(mesh.Members("w3"), "w1 w2 w3");
  mesh.Link("w1", "w2", true);

  EXPECT_EQ(mesh.Members("w3"), "w1 w3");
}

TEST(BrainGroup, BrokenLinkBetweenTwoLiveMembersRemovesNobodyByItself) {
  GroupMesh mesh = Training(3);

  mesh.Link("w1", "w2", true);
  mesh.Pass(10'000);

  EXPECT_EQ(mesh.Members("w3"), "w1 w2 w3");
}

TEST(BrainGroup, MemberThatOwesAnAnswerForALeaseIsEvictedAndAskedToStartAnew) {
  GroupMesh mesh = Training(3);

  mesh.Link("w1", "w2", false, absl::Milliseconds(3100));

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("evicted: member w2 evicted (owes an answer "
                                 "for 3.1 s, says w1); view 1.2 of 2")));
  mesh.Link("w1", "w2", false);
  mesh.Pass(1100);
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
}

TEST(BrainGroup, HungTrainerIsTakenOutThoughItAnswers) {
  GroupMesh mesh = Training(3);

  // w2 says the same for ever, the others go on.
  for (int64_t step = 4; step < 80; ++step) {
    mesh.Say("w1", step);
    mesh.Say("w3", step);
    mesh.Say("w2");
    mesh.mesh().Pass(50);
  }

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("has finished no instruction for 3")));
}

TEST(BrainGroup, WhoWaitsForOthersIsNotHung) {
  GroupMesh mesh = Training(3);

  mesh.Pass(20'000, /*progress=*/false);

  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
}

TEST(BrainGroup, RestartedMemberComesBackAsAListenerAndThenAMember) {
  GroupMesh mesh = Training(3);

  mesh.Attach("w2", 202);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_EQ(mesh.Workers("w1"), "w1 w2 w3");
  EXPECT_EQ(mesh.Run("w1")->group->workers[1].id, mesh.Id("w2"));
  EXPECT_EQ(mesh.Members("w2"), "w1 w3");  // it listens

  mesh.worker("w2").report.level = true;
  mesh.Say("w2", 3);

  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
  EXPECT_EQ(mesh.ViewOf("w1").members[1].from_step, 5);
  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{1, 3}));
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("joined: worker w2 joined; view 1.3 of 3")));
}

TEST(BrainGroup, NewWorkerIsTakenInWhileTheJobRuns) {
  GroupMesh mesh = Training(2);

  mesh.Attach("w3", 103);

  EXPECT_EQ(mesh.Members("w3"), "w1 w2");
  EXPECT_EQ(mesh.Workers("w1"), "w1 w2 w3");
  EXPECT_EQ(mesh.Run("w1")->stages.size(), 1u);
  EXPECT_EQ(mesh.Job().listeners, 1);
  mesh.worker("w3").report.level = true;
  mesh.Say("w3", 4);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
}

TEST(BrainGroup, NewWorkerGoesToAJobThatWaitsRatherThanToOneThatRuns) {
  GroupMesh mesh = Training(2);
  const JobId waiting = mesh.mesh().Submit(SpecOf(1));

  mesh.Attach("w3", 103);

  EXPECT_EQ(mesh.Run("w3")->fence.job, waiting);
}

TEST(BrainGroup, ListenerThatIsLostLeavesTheViewAsItIs) {
  GroupMesh mesh = Training(2);
  mesh.Attach("w3", 103);
  const ViewId before = mesh.ViewOf("w1").id;

  mesh.Break("w3");
  mesh.Pass(600);

  EXPECT_EQ(mesh.ViewOf("w1").id, before);
  EXPECT_EQ(mesh.Workers("w1"), "w1 w2");
}

// Stopped for longer than the lease, then continued.
TEST(BrainGroup, ProcessThatWasTakenOutIsAskedToStartAnewWhenItReturns) {
  GroupMesh mesh = Training(3);
  mesh.worker("w2").silent = true;
  mesh.Pass(3500);
  ASSERT_EQ(mesh.Members("w1"), "w1 w3");

  mesh.Attach("w2", 102);

  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, SilenceForHalfTheLeaseChangesNothing) {
  GroupMesh mesh = Training(3);
  mesh.worker("w2").silent = true;
  mesh.Pass(2500);
  mesh.worker("w2").silent = false;
  mesh.Pass(1000);

  EXPECT_EQ(mesh.ViewOf("w2").id, (ViewId{1, 1}));
}

TEST(BrainGroup, LossOfAllMembersBeginsAnewAttemptWithThoseWhoAreThere) {
  GroupMesh mesh = Training(2);
  mesh.Attach("w3", 103);  // listens

  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Pass(600);

  EXPECT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Run("w3")->fence.attempt, 2);
  EXPECT_EQ(mesh.Members("w3"), "w3");
  EXPECT_EQ(mesh.Job().record.step, 0);
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("again: nobody who has the group's state is "
                                 "left: it begins again at step 0")));
}

TEST(BrainGroup, JobWithoutAnyWorkerIsQueuedAgain) {
  GroupMesh mesh = Training(1);

  mesh.Break("w1");
  mesh.Pass(600);
  EXPECT_EQ(mesh.State(), JobState::kQueued);
  mesh.Attach("w1", 201);

  EXPECT_EQ(mesh.State(), JobState::kRunning);
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
}

// Another CPU capability than that of the order.
TEST(BrainGroup, ProcessesThatStartAnewBeforeTheRunAreWaitedFor) {
  GroupMesh mesh;
  mesh.AttachAll(2);
  mesh.Submit(GroupSpec());
  for (const std::string name : {"w1", "w2"}) {
    Heartbeat restarting = mesh.Beat(name);
    restarting.restarting = true;
    restarting.run.reset();
    mesh.Send(name, restarting);
  }
  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Attach("w1", 201);
  EXPECT_EQ(mesh.State(), JobState::kQueued);
  EXPECT_EQ(mesh.Why(), "waits for w2 to start anew");

  mesh.Attach("w2", 202);

  EXPECT_EQ(mesh.State(), JobState::kRunning);
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2");
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("lost:"))));
}

TEST(BrainGroup, MinorityWithAnotherStateIsEvicted) {
  GroupMesh mesh = Training(3);
  mesh.worker("w1").report.mismatch_step = 17;
  mesh.worker("w1").report.mismatch = {
      {mesh.Id("w1"), 7}, {mesh.Id("w2"), 8}, {mesh.Id("w3"), 7}};

  mesh.Say("w1");

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("evicted: member w2 evicted "
                                               "(states differ after step 17, "
                                               "and 2 others agree)")));
  EXPECT_EQ(mesh.State(), JobState::kRunning);
}

TEST(BrainGroup, TieOfStatesBeginsAnewAttempt) {
  GroupMesh mesh = Training(2);
  mesh.worker("w1").report.mismatch_step = 17;
  mesh.worker("w1").report.mismatch = {{mesh.Id("w1"), 7}, {mesh.Id("w2"), 8}};

  mesh.Say("w1");

  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_EQ(mesh.Members("w2"), "w1 w2");
  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("mismatch: states differ")));
}

TEST(BrainGroup, TooFewMembersPauseTheJobUntilOneReturns) {
  JobSpec spec = GroupSpec();
  spec.aggregation.min_parts = 2;
  GroupMesh mesh = Training(2, spec);
  EXPECT_EQ(mesh.Job().phase, "training");

  mesh.Break("w2");
  mesh.Pass(600);
  EXPECT_EQ(mesh.Job().phase, "paused");
  EXPECT_EQ(mesh.Why(),
            "paused: 1 of the 2 members that a round needs "
            "(aggregation.min_parts) is there; it goes on when workers return");

  mesh.Attach("w2", 202);
  mesh.worker("w2").report.level = true;
  mesh.Say("w2", 3);
  mesh.Pass(50);

  EXPECT_EQ(mesh.Job().phase, "training");
  EXPECT_EQ(mesh.Why(), "");
  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("paused: paused: 1 of the 2")));
  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("resumed: enough members")));
}

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
  EXPECT_THAT(mesh.Story(job), Contains(HasSubstr("draining: worker a is let go")));
  mesh.Report(a, job, RunPhase::kDone, 60);
  mesh.Saved(job, kSaved);

  EXPECT_EQ(mesh.State(next), JobState::kQueued);
  EXPECT_THAT(mesh.Why(next), HasSubstr("paceline node undrain"));
  ASSERT_TRUE(mesh.Drain("1", false).ok());
  EXPECT_EQ(mesh.State(next), JobState::kRunning);
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

TEST(BrainGroup, StepThatSeveralMembersRecordCountsOnce) {
  GroupMesh mesh = Training(2);
  for (const std::string name : {"w1", "w2"}) {
    Heartbeat heartbeat = mesh.Beat(name);
    heartbeat.steps = {{4, 1.0, 64, 0.1, 1, true, 1000}};
    mesh.Send(name, heartbeat);
  }

  EXPECT_EQ(mesh.Job().record.skipped_steps, 1);
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

}  // namespace
}  // namespace paceline

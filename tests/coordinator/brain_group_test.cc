// What the brain does with the members of a data-parallel job.
#include <functional>
#include <string>
#include <utility>

#include "coordinator/job_text.h"
#include "core/plan/memory.h"
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
  EXPECT_EQ(mesh.Record().stages.size(), 3u);
  EXPECT_EQ(MembersOf(mesh.Job(), false), 3);
}

TEST(BrainGroup, ViewsAreStoredWithTheirAttemptAndTerm) {
  GroupMesh mesh = Training(2);

  const StoredState& stored = mesh.stored();
  EXPECT_EQ(stored.term, 1);
  EXPECT_EQ(stored.views.at(mesh.job()).attempt, 1);
  EXPECT_EQ(stored.views.at(mesh.job()).view, mesh.ViewOf("w1"));
}

TEST(BrainGroup, TakesTheNamedWorkersOrAsManyAsItMayAndNoOthers) {
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

  JobSpec two = GroupSpec();
  two.aggregation.members = 2;
  GroupMesh other = Training(3, two);
  other.Pass(200);
  EXPECT_EQ(other.Members("w1"), "w1 w2");
  EXPECT_FALSE(other.Run("w3").has_value());
}

// The job says how much of a batch is whose, also of one that comes later.
TEST(BrainGroup, AWorkerThatComesLaterGetsItsOwnShare) {
  for (const double share : {2.0, 1.0}) {
    JobSpec spec = GroupSpec();
    spec.aggregation.workers = {"w1", "w2"};
    spec.aggregation.shares = {3 - share, share};
    GroupMesh mesh = Training(1, spec);
    mesh.Attach("w2", 102);
    mesh.Level("w2", 3);

    ASSERT_EQ(mesh.Members("w1"), "w1 w2");
    EXPECT_EQ(mesh.ViewOf("w1").members[0].share, 3 - share);
    EXPECT_EQ(mesh.ViewOf("w1").members[1].share, share);
  }
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

// Needs five members.
JobSpec TrimmedSpec() {
  JobSpec spec = GroupSpec();
  spec.train.micro_batch = 4;
  spec.aggregation.rule = "trimmed-mean";
  spec.aggregation.k = 2;
  return spec;
}

TEST(BrainGroup, KThatLeavesNoPartOfTheWorkersThereAreIsRefusedAtSubmit) {
  GroupMesh mesh;
  mesh.AttachAll(4);
  JobSpec spec = TrimmedSpec();

  mesh.Submit(spec);
  EXPECT_TRUE(absl::IsInvalidArgument(mesh.submit_error()));
  EXPECT_THAT(std::string(mesh.submit_error().message()),
              HasSubstr("set aggregation.min_parts to at least 5"));

  spec.aggregation.min_parts = 5;
  mesh.Submit(spec);
  EXPECT_THAT(mesh.Why(), HasSubstr("a round needs 5 members"));
}

// Nobody is there when it is submitted: it is not begun with the first of them,
// whose rounds would all be void.
TEST(BrainGroup, KThatLeavesNoPartOfTheWorkersThereAreWaitsInTheQueue) {
  GroupMesh mesh;
  mesh.Submit(TrimmedSpec());

  mesh.AttachAll(4);
  EXPECT_EQ(mesh.State(), JobState::kQueued);
  EXPECT_THAT(mesh.Why(), AllOf(HasSubstr("waits for more workers"),
                                HasSubstr("aggregation.k")));

  mesh.Attach("w5", 105);
  EXPECT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3 w4 w5");
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

// A broken stream and a link that is broken or refused, in any order.
TEST(BrainGroup, TwoWitnessesMakeANewViewWithoutWaiting) {
  using Witness = std::function<void(GroupMesh&)>;
  const Witness stream = [](GroupMesh& mesh) { mesh.Break("w2"); };
  const Witness link = [](GroupMesh& mesh) { mesh.Link("w1", "w2", true); };
  const Witness refused = [](GroupMesh& mesh) { mesh.Refuse("w1", "w2"); };
  for (const auto& [first, second] :
       {std::pair(link, stream), std::pair(stream, link),
        std::pair(refused, stream)}) {
    GroupMesh mesh = Training(3);

    first(mesh);
    EXPECT_EQ(mesh.Members("w3"), "w1 w2 w3");
    second(mesh);

    EXPECT_EQ(mesh.Members("w1"), "w1 w3");
    EXPECT_EQ(mesh.Members("w3"), "w1 w3");
  }
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
  mesh.worker("w2").report.turn = 9;

  // w2 says the same for ever, the others go on.
  for (int64_t step = 4; step < 80; ++step) {
    mesh.Say("w1", step);
    mesh.Say("w3", step);
    mesh.Say("w2");
    mesh.Mesh::Pass(50);
  }

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("has finished no instruction for 3")));
}

// No deadline closes such a round, so that nobody goes on.
TEST(BrainGroup, HungTrainerIsTakenOutThoughARoundWaitsForAll) {
  JobSpec spec = GroupSpec();
  spec.aggregation.min_parts = 3;
  GroupMesh mesh = Training(3, spec);
  mesh.worker("w2").report.turn = 9;
  mesh.Say("w2");

  mesh.Pass(2800, /*progress=*/false);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
  mesh.Pass(400, /*progress=*/false);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(AllOf(HasSubstr("evicted: member w2 evicted"),
                             HasSubstr("has finished no instruction for 3"))));
  EXPECT_EQ(mesh.Job().phase(), "paused");
  mesh.Pass(1100, /*progress=*/false);
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
}

// A micro-batch of w3 takes more than a lease, as has been measured.
TEST(BrainGroup, ASlowJoinerIsNotHungWhileItComputes) {
  const JobSpec spec = GroupSpec();
  const size_t layers = Describe(spec)->layers.size();
  StoredState stored;
  for (const std::string name : {"w1", "w2", "w3"}) {
    const double seconds = name == "w3" ? 2.0 : 0.01;
    stored.measurements.Put(
        ProfileOf(spec, name, seconds / (2 * static_cast<double>(layers))));
  }
  GroupMesh mesh = Training(2, spec, stored);
  mesh.Attach("w3", 103);
  mesh.Level("w3", 3);
  ASSERT_EQ(mesh.Members("w1"), "w1 w2 w3");
  mesh.worker("w3").report.has_taken_part = true;
  mesh.Say("w3", 6);
  mesh.worker("w3").report.turn = 9;

  int64_t step = 6;
  const auto go_on = [&](int64_t ms) {
    for (const int64_t end = step + ms / 50; step < end; ++step) {
      mesh.Say("w1", step);
      mesh.Say("w2", step);
      mesh.Say("w3");
      mesh.Mesh::Pass(50);
    }
  };
  go_on(9'500);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
  go_on(1'000);

  EXPECT_EQ(mesh.Members("w1"), "w1 w2");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("has finished no instruction for 10")));
}

// All wait for each other, or their first micro-batch takes long on all.
TEST(BrainGroup, NobodyIsHungWhileAllWaitOrAllAreAtWork) {
  for (const int turn : {0, 9}) {
    GroupMesh mesh = Training(3);
    for (const std::string name : {"w1", "w2", "w3"}) {
      mesh.worker(name).report.turn = turn;
    }

    mesh.Pass(20'000, /*progress=*/false);

    EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
  }
}

// The others' threads have stood still just as long.
TEST(BrainGroup, WhoWaitedForALostMemberIsNotHungAfterwards) {
  GroupMesh mesh = Training(3);
  mesh.worker("w3").silent = true;
  mesh.Pass(3600, /*progress=*/false);
  ASSERT_EQ(mesh.Members("w1"), "w1 w2");

  mesh.Say("w1", 4);
  mesh.Mesh::Pass(50);

  EXPECT_EQ(mesh.Members("w1"), "w1 w2");
}

// A stopped process looks hung and owes answers, too.
TEST(BrainGroup, MemberThatSaysNothingAtAllIsLostRatherThanEvicted) {
  GroupMesh mesh = Training(3);

  for (int64_t step = 4; step < 74; ++step) {
    const absl::Duration owing = absl::Milliseconds(50 * step);
    mesh.Say("w1", step);
    mesh.Link("w3", "w2", false, owing);
    mesh.Say("w3", step);
    mesh.Mesh::Pass(50);
  }

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("lost: member w2 lost (silent")));
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("evicted"))));
}

TEST(BrainGroup, RestartedMemberComesBackAsAListenerAndThenAMember) {
  GroupMesh mesh = Training(3);

  mesh.Attach("w2", 202);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_EQ(mesh.Workers("w1"), "w1 w2 w3");
  EXPECT_EQ(mesh.Run("w1")->group->workers[1].id, mesh.Id("w2"));
  EXPECT_EQ(mesh.Members("w2"), "w1 w3");  // it listens

  mesh.Level("w2", 3);

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
  EXPECT_EQ(MembersOf(mesh.Job(), true), 1);
  mesh.Level("w3", 4);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
}

TEST(BrainGroup, ShardsAreSettledWithTheFirstMembersForAllThatCome) {
  JobSpec spec = GroupSpec();
  spec.model.hidden = {64, 64, 64};
  spec.aggregation.shards = 0;
  GroupMesh mesh = Training(2, spec);
  ASSERT_EQ(mesh.Run("w1")->spec.aggregation.shards, 2);

  mesh.Attach("w3", 103);
  mesh.Break("w1");

  EXPECT_EQ(mesh.Run("w2")->spec.aggregation.shards, 2);
  EXPECT_EQ(mesh.Run("w3")->spec.aggregation.shards, 2);
  EXPECT_EQ(mesh.Record().spec.aggregation.shards, 2);
  const StoredState& stored = mesh.stored();
  EXPECT_EQ(stored.jobs.at(mesh.job()).spec.aggregation.shards, 2)
      << "as a coordinator that starts again finds it";
}

TEST(BrainGroup, NewWorkerWithoutTheMemoryForTheStateStaysOut) {
  GroupMesh mesh = Training(2);
  v1::Registration tiny = WorkerNamed("w3", 103);
  const int64_t bytes = JoinerBytes(GroupSpec(), *Describe(GroupSpec()), 3);
  tiny.set_memory_bytes(bytes - 1);

  const StreamId stream = mesh.Attach(tiny);
  mesh.Pass(500);

  EXPECT_FALSE(mesh.Order(stream).run.has_value());
  EXPECT_EQ(mesh.Workers("w1"), "w1 w2");
  EXPECT_THAT(mesh.Story(), Contains(AllOf(HasSubstr("warning: worker w3 has"),
                                           HasSubstr("as one of 3 members")))
                                .Times(1));

  mesh.Break("w2");  // without it there is room
  mesh.Mesh::Pass(600, {stream});
  EXPECT_TRUE(mesh.Order(stream).run.has_value());
}

TEST(BrainGroup, NewWorkerGoesToAJobThatWaitsRatherThanToOneThatRuns) {
  GroupMesh mesh = Training(2);
  const JobId waiting = mesh.Submit(SpecOf(1));

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
  EXPECT_EQ(mesh.Record().job.step(), 0);
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("again: nobody who has the group's state is "
                                 "left: it begins again at step 0")));
}

TEST(BrainGroup, NewAttemptHasACurveOfItsOwn) {
  GroupMesh mesh = Training(2);
  Heartbeat told = mesh.Beat("w1");
  told.steps = {{1, 2.5, 64, 0, 0, false, 1}, {2, 2.25, 64, 0, 0, false, 2}};
  told.evaluations = {{2, 2.25, 0.5, 100}};
  mesh.Send("w1", told);
  ASSERT_EQ(mesh.Curve().size(), 2u);
  mesh.Attach("w3", 103);  // listens

  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Pass(600);
  ASSERT_EQ(mesh.Run("w3")->fence.attempt, 2);

  EXPECT_TRUE(mesh.Curve().empty());
  EXPECT_TRUE(mesh.Evaluations().empty());
  EXPECT_FALSE(mesh.Job().has_loss());
  EXPECT_FALSE(mesh.Job().has_accuracy());
  Heartbeat again = mesh.Beat("w3");
  again.steps = {{1, 2.75, 64, 0, 0, false, 3}};
  mesh.Send("w3", again);
  EXPECT_EQ(mesh.Curve().size(), 1u);
  EXPECT_EQ(mesh.Job().loss(), 2.75);
}

TEST(BrainGroup, MemberThatIsStoppedLeavesAtOnce) {
  GroupMesh mesh = Training(3);
  Heartbeat last = mesh.Beat("w2");
  last.stopping = true;

  mesh.Send("w2", last);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(),
              Contains(HasSubstr("left: member w2 left (its process was ended "
                                 "on request); view 1.2")));
  EXPECT_EQ(mesh.brain().group_counts().leavers.at(GroupExit::kStopped), 1);
  mesh.Pass(1000);
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, NewWorkerIsTakenInThoughAJobWaitsForAnAbsentOne) {
  GroupMesh mesh = Training(2);
  JobSpec absent = SpecOf(1);
  absent.pipeline.workers = {"w9"};
  mesh.Submit(absent);

  mesh.Attach("w3", 103);

  EXPECT_EQ(mesh.Workers("w1"), "w1 w2 w3");
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
  EXPECT_EQ(mesh.Job().phase(), "training");

  mesh.Break("w2");
  mesh.Pass(600);
  EXPECT_EQ(mesh.Job().phase(), "paused");
  EXPECT_EQ(mesh.Why(),
            "paused: 1 of the 2 members that a round needs "
            "(aggregation.min_parts) is there; it goes on when workers return");

  mesh.Attach("w2", 202);
  mesh.Level("w2", 3);
  mesh.Pass(50);

  EXPECT_EQ(mesh.Job().phase(), "training");
  EXPECT_EQ(mesh.Why(), "");
  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("paused: paused: 1 of the 2")));
  EXPECT_THAT(mesh.Story(), Contains(HasSubstr("resumed: enough members")));
}

}  // namespace
}  // namespace paceline

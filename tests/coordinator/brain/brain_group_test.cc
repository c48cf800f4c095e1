// These tests hold what the brain does with the members of a data-parallel job.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/jobs/job_text.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
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
  EXPECT_EQ(run.group->view.members[0].share, 1);
  EXPECT_EQ(run.cpu_capability, "avx512");
  EXPECT_GT(mesh.Job().workers(1).predicted_memory_bytes(), 0);
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
  EXPECT_THAT(mesh.submit_error().message(),
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
  EXPECT_THAT(mesh.Why(), Says("waits for more workers", "aggregation.k"));

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
  EXPECT_THAT(mesh.Story(), Tells("lost: member w2 lost (its stream broke",
                                  "view 1.2 of 2 members"));
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

TEST(BrainGroup, MemberThatOwesAnAnswerForALeaseIsEvictedAndAskedToStartAnew) {
  GroupMesh mesh = Training(3);

  mesh.Link("w1", "w2", false, absl::Milliseconds(3100));

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_FALSE(mesh.Run("w2").has_value());
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
  EXPECT_THAT(mesh.Story(), Tells("evicted: member w2", "for 3.1 s, says w1"));
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
  EXPECT_THAT(mesh.Story(), Tells("has finished no instruction for 3"));
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
  EXPECT_THAT(mesh.Story(), Tells("evicted: member w2 evicted",
                                  "has finished no instruction for 3"));
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
  EXPECT_THAT(mesh.Story(), Tells("has finished no instruction for 10"));
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
  EXPECT_THAT(mesh.Story(), Tells("lost: member w2 lost (silent"));
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("evicted"))));
}

TEST(BrainGroup, RestartedMemberComesBackAsAListenerAndThenAMember) {
  GroupMesh mesh = Training(3);

  mesh.Attach("w2", 202);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_EQ(mesh.Workers("w1"), "w1 w2 w3");
  EXPECT_EQ(mesh.Run("w1")->group->workers[1].id, mesh.Id("w2"));
  EXPECT_EQ(mesh.Members("w2"), "w1 w3");  // it listens
  EXPECT_EQ(MembersOf(mesh.Job(), true), 1);
  EXPECT_EQ(mesh.Run("w1")->stages.size(), 1u);

  mesh.Level("w2", 3);

  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3");
  EXPECT_EQ(mesh.ViewOf("w1").members[1].from_step, 5);
  EXPECT_EQ(mesh.ViewOf("w1").id, (ViewId{1, 3}));
  EXPECT_THAT(mesh.Story(), Tells("joined: worker w2 joined; view 1.3 of 3"));
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
  EXPECT_EQ(mesh.Record().spec.aggregation.shards, 0) << "as it was submitted";
  EXPECT_EQ(mesh.stored().jobs.at(mesh.job()).job.shards(), 2)
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
  EXPECT_THAT(mesh.Story(),
              Tells("warning: worker w3 has", "as one of 3 members").Times(1));

  mesh.Break("w2");  // without it there is room
  mesh.Mesh::Pass(600, {stream});
  EXPECT_TRUE(mesh.Order(stream).run.has_value());
}

TEST(BrainGroup, AWorkerThatAMemberCannotDialStaysOut) {
  GroupMesh mesh;
  mesh.AttachAll(3);
  for (bool more = true; more;) {
    more = false;
    for (const char* const name : {"w1", "w2", "w3"}) {
      const auto measure = mesh.Order(mesh.worker(name).stream).measure;
      if (!measure.has_value()) continue;
      more = true;
      v1::Heartbeat answer;
      answer.mutable_measurement()->set_id(measure->id);
      if (measure->link->name == "w3") {
        SetError(absl::UnavailableError("cannot dial w3 (:9): refused"),
                 *answer.mutable_measurement());
      }
      ASSERT_TRUE(mesh.Send(mesh.worker(name).stream, answer).ok());
    }
  }

  mesh.Submit(GroupSpec());
  mesh.SayAll(0);
  mesh.Pass(500);

  EXPECT_EQ(mesh.Workers("w1"), "w1 w2");
  EXPECT_FALSE(mesh.Run("w3").has_value());
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

TEST(BrainGroup, MemberThatIsStoppedLeavesAtOnce) {
  GroupMesh mesh = Training(3);
  v1::Heartbeat last = mesh.Beat("w2");
  last.set_stopping(true);

  mesh.Send("w2", last);

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(), Tells("left: member w2", "on request"));
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

TEST(BrainGroup, MinorityWithAnotherStateIsEvicted) {
  GroupMesh mesh = Training(3);
  mesh.worker("w1").report.mismatch_step = 17;
  mesh.worker("w1").report.mismatch = {
      {mesh.Id("w1"), 7}, {mesh.Id("w2"), 8}, {mesh.Id("w3"), 7}};

  mesh.Say("w1");

  EXPECT_EQ(mesh.Members("w1"), "w1 w3");
  EXPECT_THAT(mesh.Story(), Tells("evicted: member w2", "after step 17"));
  EXPECT_EQ(mesh.State(), JobState::kRunning);
}

TEST(BrainGroup, TooFewMembersPauseTheJobUntilOneReturns) {
  JobSpec spec = GroupSpec();
  spec.aggregation.min_parts = 2;
  GroupMesh mesh = Training(2, spec);
  EXPECT_EQ(mesh.Job().phase(), "training");

  mesh.Break("w2");
  mesh.Pass(600);
  EXPECT_EQ(mesh.Job().phase(), "paused");
  EXPECT_THAT(mesh.Why(), Says("paused: 1 of 2", "min_parts"));

  mesh.Attach("w2", 202);
  mesh.Level("w2", 3);
  mesh.Pass(50);

  EXPECT_EQ(mesh.Job().phase(), "training");
  EXPECT_EQ(mesh.Why(), "");
  EXPECT_THAT(mesh.Story(), Tells("paused: paused: 1 of 2"));
  EXPECT_THAT(mesh.Story(), Tells("resumed: enough members"));
}

// --- its end, drained workers, a later coordinator, what rounds tell --------

void AddSkip(int64_t worker, const std::string& reason,
             v1::RoundRecord& round) {
  v1::RoundRecord::Skip& skip = *round.add_skipped();
  skip.set_worker_id(worker);
  skip.set_reason(reason);
}

void TellOf(GroupMesh& mesh, const v1::RoundRecord& round) {
  v1::Heartbeat heartbeat = mesh.Beat("w3");
  *heartbeat.add_rounds() = round;
  mesh.Send("w3", heartbeat);
}

void Fail(GroupMesh& mesh, const std::string& name) {
  v1::Heartbeat failed = mesh.Beat(name);
  failed.mutable_run()->set_phase(kFailed);
  SetError(absl::NotFoundError("no such file"), *failed.mutable_run());
  mesh.Send(name, failed);
}

void Finish(GroupMesh& mesh, const std::string& name) {
  mesh.worker(name).phase = kDone;
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

// Servers take turns, and their heartbeats come in any order.
// No further hold carries the hash of the last state.
TEST(BrainGroup, MinorityWithAnotherLastStateIsEvicted) {
  GroupMesh mesh = Training(3);
  for (const std::string name : {"w1", "w2", "w3"}) {
    mesh.worker(name).report.state_step = 60;
    mesh.worker(name).report.state_hash = name == "w1" ? 8 : 7;
    Finish(mesh, name);
  }

  EXPECT_THAT(mesh.Story(), Tells("evicted: member w1"));
  mesh.Pass(50);
  EXPECT_EQ(mesh.weights().back().kind, Actions::Weights::Kind::kSave);
}

TEST(BrainGroup, EveryRoundsCosineCountsOnce) {
  GroupMesh mesh = Training(3);
  const auto tell = [&](int64_t server, int64_t step, double cosine) {
    v1::RoundRecord round;
    round.set_server(server);
    round.set_step(step);
    round.set_cosine(cosine);
    TellOf(mesh, round);
  };

  tell(2, 5, 0.5);
  tell(1, 4, 0.1);
  tell(2, 5, 0.5);

  EXPECT_EQ(mesh.Job().conflict().rounds(), 2);
  EXPECT_NEAR(mesh.Job().conflict().cosine(), 0.3, 1e-12);
  EXPECT_EQ(mesh.Job().conflict().step(), 5);
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
  EXPECT_THAT(mesh.Story(), Tells("lost: member w2 lost (no such file)"));
}

TEST(BrainGroup, JobFailsWhenItsLastMemberDoes) {
  GroupMesh mesh = Training(1);

  Fail(mesh, "w1");

  EXPECT_EQ(mesh.State(), JobState::kFailed);
  EXPECT_THAT(mesh.Why(), HasSubstr("no such file; no other member"));
}

TEST(BrainGroup, DrainedMemberLeavesAndComesBackAsAnotherProcess) {
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
  EXPECT_THAT(mesh.Story(), Tells("left: member w2 left (drained); view 1.2"));

  ASSERT_TRUE(mesh.Drain("w2", false).ok());
  mesh.Pass(100);
  EXPECT_TRUE(mesh.IsAskedToRenew("w2"));
  mesh.Attach("w2", 202);
  EXPECT_EQ(mesh.Workers("w2"), "w1 w2 w3");
}

TEST(BrainGroup, MemberThatLeavesIsReleased) {
  GroupMesh mesh = Training(2);
  v1::Heartbeat leaving = mesh.Beat("w2");
  leaving.set_leaving(true);

  mesh.Send("w2", leaving);

  EXPECT_EQ(mesh.Members("w1"), "w1");
  EXPECT_TRUE(mesh.Order(mesh.worker("w2").stream).released);
  leaving = mesh.Beat("w1");
  leaving.set_leaving(true);
  mesh.Send("w1", leaving);
  EXPECT_EQ(mesh.Members("w1"), "w1") << "nobody else has the state";
  EXPECT_TRUE(mesh.Order(mesh.worker("w1").stream).released);
}

TEST(BrainGroup, MemberThatHasLeftComesBackAsAnotherProcess) {
  GroupMesh mesh = Training(3);
  v1::Heartbeat leaving = mesh.Beat("w2");
  leaving.set_leaving(true);
  mesh.Send("w2", leaving);
  ASSERT_EQ(mesh.Members("w1"), "w1 w3");

  mesh.Attach("w2", 202);
  mesh.Pass(1000);
  mesh.Level("w2", 3);

  EXPECT_EQ(mesh.Members("w2"), "w1 w2 w3");
  EXPECT_FALSE(mesh.IsAskedToRenew("w2"));
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
  EXPECT_THAT(Story(), Tells("draining: worker a gets no new work"));
  Report(kDone, 60);
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
  mesh.Report(mesh.worker("w2").stream, next, kDone, 60);
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

TEST(BrainGroup, StepsThatMembersRecordTwiceOrOutOfOrderCountAllOnce) {
  GroupMesh mesh = Training(2);
  const auto tell = [&mesh](const char* name, int64_t step, bool skipped) {
    v1::Heartbeat heartbeat = mesh.Beat(name);
    v1::StepRecord& record = *heartbeat.add_steps();
    record = StepOf(step, 0.1 * static_cast<double>(step), 1000 * step);
    record.set_skipped(skipped);
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

TEST(BrainGroup, TheLossOfAStepIsTheMeanOfItsMembersParts) {
  GroupMesh mesh = Training(2);
  const auto tell = [&mesh](const char* name, int64_t step, double loss,
                            int64_t samples) {
    v1::Heartbeat heartbeat = mesh.Beat(name);
    v1::StepRecord& record = *heartbeat.add_steps();
    record = StepOf(step, loss);
    record.set_loss_samples(samples);
    mesh.Send(name, heartbeat);
  };

  tell("w1", 5, 0.5, 48);
  tell("w2", 5, 2.5, 16);
  EXPECT_DOUBLE_EQ(mesh.Job().loss(), 1.0);
  tell("w1", 5, 0.5, 48);  // its acknowledgement was lost
  EXPECT_DOUBLE_EQ(mesh.Job().loss(), 1.0);
  tell("w1", 6, 0.25, 48);
  EXPECT_DOUBLE_EQ(mesh.Job().loss(), 0.25) << "it waits for nobody";
  tell("w1", 7, 0.75, 48);
  tell("w2", 6, 1.25, 16);

  EXPECT_DOUBLE_EQ(mesh.Job().loss(), 0.75);
  std::vector<double> curve;
  for (const v1::StepRecord& step : mesh.Curve()) curve.push_back(step.loss());
  EXPECT_THAT(curve, ElementsAre(1.0, 0.5, 0.75));
}

TEST(BrainGroup, RoundsThatWentWrongBecomeOneEvent) {
  GroupMesh mesh = Training(3);
  v1::RoundRecord round;
  round.set_step(16);
  round.set_server(3);
  round.set_lost_server(2);
  round.set_takeover_seconds(0.041);
  AddSkip(2, "lost", round);

  TellOf(mesh, round);
  round.set_takeover_seconds(0.043);  // as another member saw it
  TellOf(mesh, round);

  EXPECT_THAT(mesh.Story(), Tells("takeover:").Times(1));
  EXPECT_THAT(mesh.Story(),
              Tells("step 17: server w2 lost, w3 took over in 41 ms, part"));
}

TEST(BrainGroup, ADeadlineThatSlowLinksMissIsWarnedOfOnce) {
  GroupMesh mesh = Training(3);
  const auto tell = [&mesh](int64_t step, double seconds, const char* reason) {
    v1::RoundRecord round;
    round.set_step(step);
    round.set_seconds(seconds);
    AddSkip(2, reason, round);
    TellOf(mesh, round);
  };
  const auto warning = Tells(
      "waits at most aggregation.deadline, 30 s, for the parts of slow members "
      "or over slow links");

  tell(1, 29.9, "late");
  tell(2, 90, "lost");
  EXPECT_THAT(mesh.Story(), Not(warning));
  tell(3, 64, "late");
  tell(4, 64, "late");

  EXPECT_THAT(mesh.Story(), warning.Times(1));
}

}  // namespace
}  // namespace paceline

// New attempts of a data-parallel job: when they begin, and from which state.
#include <string>
#include <vector>

#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// BrainPolicy::return_period: a group that is lost waits so long for processes
// that may have its state.
constexpr int64_t kReturnMs = 21'000;

TEST(GroupAttempts, LossOfAllMembersBeginsAnewAttemptWithThoseWhoAreThere) {
  GroupMesh mesh = Training(2);
  mesh.Attach("w3", 103);  // listens

  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Pass(600);
  EXPECT_THAT(mesh.Why(), HasSubstr("waits for w1"));
  mesh.Pass(kReturnMs);

  EXPECT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Run("w3")->fence.attempt, 2);
  EXPECT_EQ(mesh.Members("w3"), "w3");
  EXPECT_EQ(mesh.Record().job.step(), 0);
  EXPECT_THAT(mesh.Story(),
              Tells("left: attempt 1", "nobody who has the group"));
  EXPECT_THAT(mesh.Story(), Tells("again: the group goes on from step 0"));
}

TEST(GroupAttempts, WhoReturnsInTimeBringsTheStateAlong) {
  GroupMesh mesh = Training(2);
  for (const std::string name : {"w1", "w2"}) {
    mesh.worker(name).silent = true;
  }
  mesh.Pass(6000);
  ASSERT_THAT(mesh.Story(), Tells("left: attempt 1"));
  for (const std::string name : {"w1", "w2"}) {
    mesh.worker(name).silent = false;
    mesh.Attach(name, mesh.worker(name).incarnation);
    v1::Heartbeat held = mesh.Beat(name);
    v1::PiecesHeld::OfJob& of_job = *held.mutable_pieces()->add_jobs();
    of_job.set_job(1);
    v1::PiecesHeld::HeldCut& cut = *of_job.add_cuts();
    cut.mutable_cut()->set_attempt(1);
    cut.mutable_cut()->set_step(3);
    cut.add_layers()->set_last(
        static_cast<int>(Describe(GroupSpec())->layers.size()));
    mesh.Send(name, held);
  }

  mesh.Pass(100);

  ASSERT_TRUE(mesh.Run("w1").has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_EQ(mesh.Run("w1")->base, (Cut{1, 3}));
  EXPECT_EQ(mesh.ViewOf("w1").members[0].from_step, 3);
}

TEST(GroupAttempts, WhoReturnsGetsNoOrderBeforeItHasSaidWhatItRuns) {
  GroupMesh mesh = Training(2);
  mesh.worker("w1").silent = true;
  mesh.Pass(6000);
  ASSERT_THAT(mesh.Story(), Tells("lost: member w1"));

  const StreamId stream =
      mesh.Mesh::Attach(WorkerNamed("w1", mesh.worker("w1").incarnation));

  EXPECT_EQ(mesh.Orders(stream), 0u);
  mesh.Attach("w1", mesh.worker("w1").incarnation);
  EXPECT_GT(mesh.Orders(mesh.worker("w1").stream), 0u);
}

TEST(GroupAttempts, ANewAttemptChoosesItsShardsAnewAndSaysWhy) {
  JobSpec spec = GroupSpec();
  spec.model.hidden = {64, 64, 64};
  spec.aggregation.shards = 0;
  GroupMesh mesh = Training(2, spec);
  EXPECT_THAT(mesh.Record().job.estimate().shards_why(), HasSubstr("with 1"));
  mesh.Attach("w3", 103);  // listens

  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Pass(600 + kReturnMs);

  EXPECT_EQ(mesh.Run("w3")->spec.aggregation.shards, 1);
  EXPECT_THAT(mesh.Record().job.estimate().shards_why(),
              HasSubstr("one member"));
}

TEST(GroupAttempts, NewAttemptHasACurveOfItsOwn) {
  GroupMesh mesh = Training(2);
  v1::Heartbeat told = mesh.Beat("w1");
  *told.add_steps() = StepOf(1, 2.5, 1);
  *told.add_steps() = StepOf(2, 2.25, 2);
  *told.add_evaluations() = PartOf(2, 2.25, 0.5, 100);
  mesh.Send("w1", told);
  ASSERT_EQ(mesh.Curve().size(), 2u);
  mesh.Attach("w3", 103);  // listens

  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Pass(600 + kReturnMs);
  ASSERT_EQ(mesh.Run("w3")->fence.attempt, 2);

  EXPECT_TRUE(mesh.Curve().empty());
  EXPECT_TRUE(mesh.Evaluations().empty());
  EXPECT_FALSE(mesh.Job().has_loss());
  EXPECT_FALSE(mesh.Job().has_accuracy());
  v1::Heartbeat again = mesh.Beat("w3");
  *again.add_steps() = StepOf(1, 2.75, 3);
  mesh.Send("w3", again);
  EXPECT_EQ(mesh.Curve().size(), 1u);
  EXPECT_EQ(mesh.Job().loss(), 2.75);
}

TEST(GroupAttempts, JobWithoutAnyWorkerIsPaused) {
  GroupMesh mesh = Training(1);

  mesh.Break("w1");
  mesh.Pass(600);
  EXPECT_EQ(mesh.State(), JobState::kRunning);
  EXPECT_EQ(mesh.Job().phase(), "paused");
  mesh.Attach("w1", 201);

  ASSERT_TRUE(mesh.Run("w1").has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
}

// Another CPU capability than that of the order.
TEST(GroupAttempts, ProcessesThatStartAnewBeforeTheRunAreWaitedFor) {
  GroupMesh mesh;
  mesh.AttachAll(2);
  mesh.Submit(GroupSpec());
  for (const std::string name : {"w1", "w2"}) {
    v1::Heartbeat restarting = mesh.Beat(name);
    restarting.set_restarting(true);
    restarting.clear_run();
    mesh.Send(name, restarting);
  }
  mesh.Break("w1");
  mesh.Break("w2");
  mesh.Attach("w1", 201);
  mesh.Mesh::Pass(50);
  EXPECT_THAT(mesh.Why(), HasSubstr("w1 started anew before the run"));

  mesh.Attach("w2", 202);
  mesh.Pass(50);

  ASSERT_TRUE(mesh.Run("w1").has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2");
  EXPECT_THAT(mesh.Story(), Each(Not(HasSubstr("lost:"))));
}

TEST(GroupAttempts, TieOfStatesBeginsAnewAttempt) {
  GroupMesh mesh = Training(2);
  mesh.worker("w1").report.mismatch_step = 17;
  mesh.worker("w1").report.mismatch = {{mesh.Id("w1"), 7}, {mesh.Id("w2"), 8}};

  mesh.Say("w1");
  mesh.Pass(50);

  ASSERT_TRUE(mesh.Run("w1").has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  EXPECT_EQ(mesh.Members("w2"), "w1 w2");
  EXPECT_THAT(mesh.Story(), Tells("mismatch: states differ"));
}

TEST(GroupAttempts, FaultsThatAreSpentStaySoUnderALaterCoordinator) {
  JobSpec spec = GroupSpec();
  spec.model = DefaultModel("vit");
  spec.data = DefaultDataSpec("synthetic");
  spec.faults = {{.worker = "w1", .step = 5, .kind = "nan"},
                 {.worker = "", .kind = kSkipStage, .block = 1}};
  GroupMesh before = Training(2, spec);
  EXPECT_EQ(before.Run("w1")->spec.faults.size(), 2u);
  before.Break("w1");
  before.Break("w2");
  before.Pass(600);
  ASSERT_EQ(before.Job().phase(), "paused");
  GroupMesh mesh = Later(before);
  mesh.Attach("w1", 201);
  mesh.Attach("w2", 202);
  mesh.Pass(50);

  ASSERT_TRUE(mesh.Run("w1").has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Run("w1")->fence.attempt, 2);
  // A skipped block concerns the model, and is never spent.
  ASSERT_EQ(mesh.Run("w1")->spec.faults.size(), 1u);
  EXPECT_EQ(mesh.Run("w1")->spec.faults[0].kind, kSkipStage);
}

}  // namespace
}  // namespace paceline

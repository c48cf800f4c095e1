#include "coordinator/brain.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const SavedWeights kSaved = {"/state/jobs/1/weights.safetensors", "abc", 10};

TEST(Brain, JobOfTwoStagesRunsToItsEnd) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(2));
  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  EXPECT_EQ(mesh.Job(job).phase, "preparing");

  mesh.Report(a, job, RunPhase::kRunning, 0);
  EXPECT_EQ(mesh.Job(job).phase, "preparing");
  mesh.Report(b, job, RunPhase::kRunning, 3);
  EXPECT_EQ(mesh.Job(job).phase, "training");
  mesh.Report(a, job, RunPhase::kDone, 60);
  mesh.Report(b, job, RunPhase::kDone, 60);
  EXPECT_EQ(mesh.Job(job).phase, "saving");
  EXPECT_EQ(mesh.weights().back().kind, Actions::Weights::Kind::kSave);
  mesh.Saved(job, kSaved);

  EXPECT_EQ(mesh.State(job), JobState::kSucceeded) << mesh.Why(job);
  EXPECT_EQ(mesh.Job(job).record.weights_sha256, "abc");
  EXPECT_FALSE(mesh.Order(a).run.has_value());
  EXPECT_THAT(mesh.Events(job), ElementsAre("submitted", "placed", "running",
                                            "saving", "succeeded"));
}

TEST(Brain, OrderCarriesAllStagesWithAddressesAndSettledValues) {
  Mesh mesh;
  Registration weak = WorkerNamed("a", 1);
  weak.cpu_capability = "avx2";
  const StreamId a = mesh.Attach(weak);
  mesh.Attach("b", 2);

  const JobId job = mesh.Submit(SpecOf(2));

  const RunOrder& run = *mesh.Order(a).run;
  EXPECT_EQ(run.fence, (Fence{job, 1, 1}));
  ASSERT_EQ(run.stages.size(), 2u);
  EXPECT_EQ(run.stages[0].address, "a:7401");
  EXPECT_EQ(run.stages[1].worker_name, "b");
  EXPECT_EQ(run.cpu_capability, "avx2");
  EXPECT_EQ(run.threads, 1);
  EXPECT_THAT(mesh.notes(), Contains(HasSubstr("unlike CPUs")));
}

TEST(Brain, OrderIsSentAgainOnReattachAndOnlyThen) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Submit(SpecOf(1));
  EXPECT_EQ(mesh.Orders(a), 2u);  // idle, then the job

  mesh.Pass(1000, {a});
  EXPECT_EQ(mesh.Orders(a), 2u);

  mesh.Break(a);
  const StreamId again = mesh.Attach("a", 1);
  EXPECT_EQ(mesh.Orders(again), 1u);
  EXPECT_TRUE(mesh.Order(again).run.has_value());
}

TEST(Brain, SecondJobWaitsForTheFirstAndSaysSo) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId first = mesh.Submit(SpecOf(1));
  const JobId second = mesh.Submit(SpecOf(1));
  const JobId third = mesh.Submit(SpecOf(1));
  EXPECT_EQ(mesh.State(second), JobState::kQueued);
  EXPECT_THAT(mesh.Why(second), HasSubstr("waits for job 1"));
  EXPECT_THAT(mesh.Why(third), HasSubstr("waits for job 2"));

  mesh.Report(a, first, RunPhase::kFailed, 0, "no such file");

  EXPECT_EQ(mesh.State(second), JobState::kRunning);
  EXPECT_EQ(mesh.Order(a).run->fence.job, second);
  EXPECT_THAT(mesh.Why(third), HasSubstr("waits for job 2: 0 of the 1"));
}

TEST(Brain, JobWaitsForBusyWorkersRatherThanRunsOnFewer) {
  Mesh mesh;
  mesh.Attach("a", 1);
  mesh.Attach("b", 2);
  mesh.Submit(SpecOf(1));

  const JobId wide = mesh.Submit(SpecOf(2));

  EXPECT_EQ(mesh.State(wide), JobState::kQueued);
  EXPECT_THAT(mesh.Why(wide), HasSubstr("1 of the 2 workers it needs is free"));
}

// Issue 22, defect 19.
TEST(Brain, JobThatWaitsForAnAbsentWorkerHoldsUpNoOther) {
  Mesh mesh;
  mesh.Attach("a", 1);
  JobSpec absent = SpecOf(2);
  absent.pipeline.cuts = {2};
  absent.pipeline.workers = {"a", "b"};
  const JobId first = mesh.Submit(absent);
  const JobId second = mesh.Submit(SpecOf(1));
  const JobId third = mesh.Submit(SpecOf(1));

  EXPECT_EQ(mesh.State(second), JobState::kRunning) << mesh.Why(second);
  EXPECT_THAT(mesh.Why(first), HasSubstr("names b, which is not attached"));
  EXPECT_THAT(mesh.Why(third), HasSubstr("waits for job 2"));

  // From here on it waits for busy workers only, and is the first again.
  mesh.Attach("b", 1);
  EXPECT_EQ(mesh.State(third), JobState::kQueued);
  ASSERT_TRUE(mesh.brain().OnStop(second, mesh.Now()).ok());
  EXPECT_EQ(mesh.State(first), JobState::kRunning) << mesh.Why(first);
  EXPECT_EQ(mesh.State(third), JobState::kQueued);
}

// Issue 22, defect 19.
TEST(Brain, JobWhoseBusyWorkerIsSuspectIsNotPassed) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  JobSpec on_a = SpecOf(1);
  on_a.pipeline.workers = {"a"};
  const JobId running = mesh.Submit(on_a);
  mesh.Report(a, running, RunPhase::kRunning, 1);
  JobSpec on_both = SpecOf(2);
  on_both.pipeline.cuts = {2};
  on_both.pipeline.workers = {"a", "b"};
  mesh.Submit(on_both);
  mesh.Break(a);

  const JobId later = mesh.Submit(SpecOf(1));
  mesh.Pass(200, {b});

  EXPECT_EQ(mesh.State(later), JobState::kQueued);
}

// Issue 22, defect 27.
TEST(Brain, WorkerThatIsGoneCanBeForgottenAndNoOther) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Break(mesh.Attach("b", 1));
  ASSERT_TRUE(mesh.Drain("b", true).ok());
  EXPECT_THAT(mesh.Forget("b").status().message(), HasSubstr("suspect"));
  mesh.Pass(5000, {a});

  EXPECT_EQ(mesh.Forget("a").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(mesh.Forget("c").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(mesh.Forget("b").ok());

  EXPECT_EQ(mesh.brain().ViewWorkers(mesh.Now().now).size(), 1u);
  mesh.Attach("b", 2);
  const WorkerView back = mesh.brain().ViewWorkers(mesh.Now().now).back();
  EXPECT_EQ(back.member.id, WorkerId{3});
  EXPECT_FALSE(back.drained);
}

TEST(Brain, WorkerThatAJobWaitsForIsNotForgotten) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Break(a);
  mesh.Pass(5000);
  ASSERT_EQ(mesh.State(job), JobState::kRunning) << "it may come back";

  EXPECT_THAT(mesh.Forget("a").status().message(), HasSubstr("job stop 1"));
}

// Issue 22, defect 26.
TEST(Brain, WorkerThatIsStoppedFailsItsPipelineAtOnceAndIsNotLost) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kRunning, 5);
  Heartbeat last;
  last.sequence = 9;
  last.stopping = true;

  ASSERT_TRUE(mesh.Send(a, last).ok());
  mesh.Pass(50);

  EXPECT_EQ(mesh.acks().back().sequence, 9);
  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job), HasSubstr("was stopped at step 5 of 60: its "
                                       "process was ended on request"));
  EXPECT_TRUE(mesh.Send(a, Heartbeat{}).ok());  // before it has gone
  mesh.Break(a);
  mesh.Pass(5000);
  EXPECT_EQ(mesh.brain().ViewWorkers(mesh.Now().now)[0].member.state,
            MemberState::kStopped);
  EXPECT_TRUE(mesh.ends().empty());
  mesh.Attach("a", 2);
  EXPECT_EQ(mesh.State(mesh.Submit(SpecOf(1))), JobState::kRunning);
}

TEST(Brain, JobWithoutWorkersIsQueuedUntilOneAttaches) {
  Mesh mesh;
  const JobId job = mesh.Submit(SpecOf(2));
  EXPECT_EQ(mesh.Why(job), "waits for a worker: none is attached");

  mesh.Attach("a", 1);

  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  EXPECT_EQ(mesh.Job(job).record.workers.size(), 1u);
}

TEST(Brain, MoreStagesThanWorkersIsNoted) {
  Mesh mesh;
  mesh.Attach("a", 1);

  mesh.Submit(SpecOf(2));

  EXPECT_THAT(mesh.notes(), Contains(HasSubstr("2 stages on 1 worker")));
}

TEST(Brain, CapabilityThatNobodyHasIsWaitedFor) {
  Mesh mesh;
  Registration weak = WorkerNamed("a", 1);
  weak.cpu_capability = "default";
  mesh.Attach(weak);
  JobSpec spec = SpecOf(1);
  spec.cpu_capability = "avx2";

  const JobId job = mesh.Submit(spec);

  EXPECT_THAT(mesh.Why(job), HasSubstr("waits for a worker with avx2"));
}

TEST(Brain, ImpossibleMemoryIsRefusedAtSubmit) {
  Mesh mesh;
  Registration tiny = WorkerNamed("a", 1);
  tiny.memory_bytes = 1000;
  mesh.Attach(tiny);

  mesh.Submit(SpecOf(1));

  EXPECT_EQ(mesh.submit_error().code(), absl::StatusCode::kResourceExhausted)
      << mesh.submit_error();
  EXPECT_TRUE(mesh.brain().ViewJobs(0).empty());
}

TEST(Brain, WrongSpecIsRefusedWithTheKey) {
  Mesh mesh;
  JobSpec spec = SpecOf(1);
  spec.model.name = "lenett";

  mesh.Submit(spec);

  EXPECT_EQ(mesh.submit_error().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mesh.submit_error().message()),
              HasSubstr("model.name"));
}

TEST(Brain, SameRequestIdIsTheSameJob) {
  Mesh mesh;
  const JobId job = mesh.Submit(SpecOf(1), "r1");

  EXPECT_EQ(mesh.Submit(SpecOf(1), "r1"), job);
  EXPECT_NE(mesh.Submit(SpecOf(1), "r2"), job);
  EXPECT_NE(mesh.Submit(SpecOf(1), ""), mesh.Submit(SpecOf(1), ""));
}

TEST(Brain, WorkersFailureFailsTheJobWithItsMessage) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));

  mesh.Report(a, job, RunPhase::kFailed, 7, "train-images: not an IDX file");

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job), HasSubstr("worker a (stage 0) failed at step 7"));
  EXPECT_THAT(mesh.Why(job), HasSubstr("train-images: not an IDX file"));
  EXPECT_EQ(mesh.weights().back().kind, Actions::Weights::Kind::kForget);
  EXPECT_FALSE(mesh.Order(a).run.has_value());
}

// A reader was told to submit a job again that could only fail again.
TEST(Brain, SaysToSubmitAgainOnlyAfterWhatNeedNotComeAgain) {
  const struct {
    absl::Status error;
    const char* advice;
    bool again;
  } kCases[] = {
      {absl::UnavailableError("w2 hung up"), "submit it again", true},
      {absl::AbortedError("a neighbour has moved"), "submit it again", true},
      {absl::InvalidArgumentError("not an IDX file"), "put that right first",
       false},
      {absl::NotFoundError("no such file"), "put that right first", false},
      {absl::DataLossError("too many pictures are damaged"),
       "put that right first", false},
      {absl::ResourceExhaustedError("forward: no memory left"),
       "smaller train.micro_batch", false},
      {absl::InternalError("shapes"), "please report it", false},
  };
  for (const auto& one : kCases) {
    Mesh mesh;
    const StreamId a = mesh.Attach("a", 1);
    const JobId job = mesh.Submit(SpecOf(1));

    mesh.Report(a, job, RunPhase::kFailed, 7, one.error);

    EXPECT_THAT(mesh.Why(job), HasSubstr(one.advice)) << one.error;
    EXPECT_EQ(absl::StrContains(mesh.Why(job), "submit it again"), one.again)
        << one.error;
  }
}

TEST(Brain, AFullDiskOfTheCoordinatorIsToBeMadeRoomOn) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kDone, 60);

  mesh.Saved(job, absl::ResourceExhaustedError("/state/jobs/1: disk full"));

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job), HasSubstr("make room"));
  EXPECT_FALSE(absl::StrContains(mesh.Why(job), "submit it again"));
}

TEST(Brain, WorkerLostInTrainingFailsTheJobAfterTheGrace) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(2));
  mesh.Report(a, job, RunPhase::kRunning, 4);
  mesh.Report(b, job, RunPhase::kRunning, 4);
  mesh.Break(b);

  mesh.Pass(450, {a});
  EXPECT_EQ(mesh.State(job), JobState::kRunning);

  mesh.Pass(50, {a});
  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job),
              HasSubstr("worker b (stage 1) was lost at step 4 of 60"));
  EXPECT_THAT(mesh.Why(job), HasSubstr("submit it again"));
  EXPECT_FALSE(mesh.Order(a).run.has_value());
}

TEST(Brain, SilentWorkerIsEndedAndItsJobFails) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kRunning, 1);

  mesh.Pass(3000);

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  ASSERT_EQ(mesh.ends().size(), 1u);
  EXPECT_EQ(mesh.ends()[0].stream, a);
  EXPECT_EQ(mesh.Send(a, Heartbeat{}).code(), absl::StatusCode::kAborted);
}

TEST(Brain, StreamThatComesBackInTimeLosesNothing) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kRunning, 1);
  mesh.Break(a);
  mesh.Pass(450);

  const StreamId again = mesh.Attach("a", 1);
  mesh.Pass(1000, {again});

  EXPECT_EQ(mesh.State(job), JobState::kRunning) << mesh.Why(job);
}

TEST(Brain, ReexecutionBeforeTrainingIsGivenTheSameOrder) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(2));
  mesh.Report(a, job, RunPhase::kRunning, 0);
  mesh.Report(b, job, RunPhase::kPreparing, 0);
  mesh.Break(b);
  mesh.Pass(5000, {a});  // LibTorch loads slowly
  EXPECT_EQ(mesh.State(job), JobState::kRunning) << mesh.Why(job);

  Registration again = WorkerNamed("b", 3);
  again.address = "b:9999";
  const StreamId b2 = mesh.Attach(again);

  EXPECT_EQ(mesh.State(job), JobState::kRunning) << mesh.Why(job);
  EXPECT_EQ(mesh.Order(b2).run->fence, (Fence{job, 1, 1}));
  // Its neighbour hears of the new address under the same fence.
  EXPECT_EQ(mesh.Order(a).run->stages[1].address, "b:9999");
  EXPECT_EQ(mesh.Order(a).run->fence, (Fence{job, 1, 1}));
}

TEST(Brain, RestartAfterTrainingBeganFailsTheJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kRunning, 0);

  const StreamId a2 = mesh.Attach("a", 2);

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job), HasSubstr("worker a restarted"));
  EXPECT_FALSE(mesh.Order(a2).run.has_value());
}

TEST(Brain, RestartIsALossOnceAnyStepWasApplied) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(2));
  mesh.Report(a, job, RunPhase::kRunning, 1);  // b's report was lost with it

  mesh.Attach("b", 3);

  EXPECT_EQ(mesh.State(job), JobState::kFailed) << mesh.Why(job);
}

TEST(Brain, WorkerThatNeverComesBackBeforeTrainingFailsTheJobInTheEnd) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Break(a);

  mesh.Pass(19900);
  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  mesh.Pass(100);

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Events(job), Contains("lost"));
}

TEST(Brain, WorkerLostAfterAllAreDoneCostsNothing) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kDone, 60);
  mesh.Break(a);
  mesh.Pass(30000);

  mesh.Saved(job, kSaved);

  EXPECT_EQ(mesh.State(job), JobState::kSucceeded) << mesh.Why(job);
}

TEST(Brain, IncompleteWeightsFailTheJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kDone, 60);

  mesh.Saved(job, absl::FailedPreconditionError("1 of 6 tensors"));

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job), HasSubstr("1 of 6 tensors"));
}

TEST(Brain, FullDiskFailsTheRunningJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));

  mesh.brain().OnWeightsFailed(Fence{job, 1, 1},
                               absl::ResourceExhaustedError("disk is full"),
                               mesh.Now());

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  mesh.Pass(50, {a});
  EXPECT_FALSE(mesh.Order(a).run.has_value());
}

TEST(Brain, StopEndsARunningAndAQueuedJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId first = mesh.Submit(SpecOf(1));
  const JobId second = mesh.Submit(SpecOf(1));

  ASSERT_TRUE(mesh.brain().OnStop(second, mesh.Now()).ok());
  ASSERT_TRUE(mesh.brain().OnStop(first, mesh.Now()).ok());
  mesh.Pass(50, {a});

  EXPECT_EQ(mesh.State(first), JobState::kStopped);
  EXPECT_EQ(mesh.State(second), JobState::kStopped);
  EXPECT_FALSE(mesh.Order(a).run.has_value());
  EXPECT_TRUE(mesh.brain().OnStop(first, mesh.Now()).ok());  // stays as it is
  EXPECT_EQ(mesh.brain().OnStop(JobId{9}, mesh.Now()).code(),
            absl::StatusCode::kNotFound);
}

TEST(Brain, ReportsOfAStoppedJobChangeNothing) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  ASSERT_TRUE(mesh.brain().OnStop(job, mesh.Now()).ok());

  mesh.Report(a, job, RunPhase::kFailed, 3, "cancelled");

  EXPECT_EQ(mesh.State(job), JobState::kStopped);
}

TEST(Brain, DeleteTakesEndedJobsOnly) {
  Mesh mesh;
  mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  EXPECT_EQ(mesh.brain().CheckDelete(job).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(mesh.brain().OnStop(job, mesh.Now()).ok());

  EXPECT_TRUE(mesh.brain().CheckDelete(job).ok());
  mesh.brain().OnDeleted(job);

  EXPECT_EQ(mesh.brain().ViewJob(job).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(mesh.Submit(SpecOf(1)), JobId{2});  // a number is never used twice
}

TEST(Brain, RestartedCoordinatorGoesOnWithReattachingWorkers) {
  Mesh before;
  const StreamId old = before.Attach("a", 1);
  const JobId job = before.Submit(SpecOf(1));
  before.Report(old, job, RunPhase::kRunning, 5);

  Mesh after(before.stored(), 100000);
  EXPECT_EQ(after.weights()[0].kind, Actions::Weights::Kind::kOpen);
  after.Pass(3000);
  const StreamId a = after.Attach("a", 1);
  after.Report(a, job, RunPhase::kRunning, 9);
  after.Pass(2000, {a});

  EXPECT_EQ(after.State(job), JobState::kRunning) << after.Why(job);
  EXPECT_EQ(after.Order(a).run->fence, (Fence{job, 1, 1}));
  EXPECT_EQ(after.Job(job).record.step, 9);
}

TEST(Brain, RestartedCoordinatorFailsAJobWhoseWorkerStaysAway) {
  Mesh before;
  const StreamId old = before.Attach("a", 1);
  const JobId job = before.Submit(SpecOf(1));
  before.Report(old, job, RunPhase::kRunning, 5);

  Mesh after(before.stored(), 100000);
  after.Pass(3450);
  EXPECT_EQ(after.State(job), JobState::kRunning);
  after.Pass(50);

  EXPECT_EQ(after.State(job), JobState::kFailed);
  EXPECT_THAT(after.Why(job), HasSubstr("worker a (stage 0) was lost"));
}

TEST(Brain, RestartedCoordinatorNoticesARestartedWorker) {
  Mesh before;
  const StreamId old = before.Attach("a", 1);
  const JobId job = before.Submit(SpecOf(1));
  before.Report(old, job, RunPhase::kRunning, 5);

  Mesh after(before.stored(), 100000);
  after.Attach("a", 2);

  EXPECT_EQ(after.State(job), JobState::kFailed);
}

TEST(Brain, RestoredQueueWaitsForAllKnownWorkersButNotForever) {
  Mesh before;
  const StreamId a = before.Attach("a", 1);
  const StreamId b = before.Attach("b", 2);
  before.Break(a);
  before.Break(b);
  before.Pass(1000);
  const JobId job = before.Submit(SpecOf(2));
  ASSERT_EQ(before.State(job), JobState::kQueued);

  Mesh after(before.stored(), 100000);
  const StreamId a2 = after.Attach("a", 1);
  EXPECT_THAT(after.Why(job), HasSubstr("waits for the workers to come back"));
  after.Pass(3500, {a2});

  EXPECT_EQ(after.State(job), JobState::kRunning) << after.Why(job);
  EXPECT_EQ(after.Job(job).record.workers.size(), 1u);
}

TEST(Brain, RecordsAreWrittenAndAcknowledged) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.sequence = 3;
  heartbeat.run =
      RunReport{Fence{job, 1, 1}, RunPhase::kRunning, 2, 60, 0, {}, {}};
  heartbeat.steps = {{1, 2.0, 64, 0, 0, false, 1000},
                     {2, 1.0, 64, 0, 0, false, 1500}};
  heartbeat.evaluations = {{2, 1.5, 0.5, 100}};
  heartbeat.logs = {{0, 1, "info", "", "hello"}};
  ASSERT_TRUE(mesh.brain().OnHeartbeat(a, heartbeat, mesh.Now()).ok());
  const Actions actions = mesh.brain().TakeActions();

  const StoreBatch::Records& records = actions.writes.records.at(job);
  EXPECT_EQ(records.steps.size(), 2u);
  EXPECT_EQ(records.logs[0].source, "a");
  EXPECT_EQ(actions.acks[0].sequence, 3);
  EXPECT_DOUBLE_EQ(mesh.Job(job).samples_per_second, 128.0);
  EXPECT_EQ(*mesh.Job(job).loss, 1.0);

  // Sent again after a break: the same records, but no second event.
  ASSERT_TRUE(mesh.brain().OnHeartbeat(a, heartbeat, mesh.Now()).ok());
  const Actions again = mesh.brain().TakeActions();
  EXPECT_TRUE(again.writes.records.at(job).events.empty());
  EXPECT_DOUBLE_EQ(mesh.Job(job).samples_per_second, 128.0);
}

// What a job's samples per second are once its worker has told of `steps`.
double RateOf(const std::vector<StepRecord>& steps) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.sequence = 1;
  heartbeat.run =
      RunReport{Fence{job, 1, 1}, RunPhase::kRunning, 2, 60, 0, {}, {}};
  heartbeat.steps = steps;
  EXPECT_TRUE(mesh.Send(a, heartbeat).ok());
  return mesh.Job(job).samples_per_second;
}

// Every step was kept until the worker's clock moved.
TEST(Brain, KeepsABoundedNumberOfStepsWhenAClockStandsStill) {
  std::vector<StepRecord> steps;
  for (int64_t step = 1; step <= 10'000; ++step) {
    steps.push_back({step, 1.0, 64, 0, 0, false, 1000});
  }
  steps.back().unix_ms = 2000;

  const double rate = RateOf(steps);

  EXPECT_GT(rate, 0);
  EXPECT_LE(rate, 64 * 4096);
}

TEST(Brain, CountsOnWithNumbersThatCannotBeAdded) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  EXPECT_GT(RateOf({{1, 1.0, 64, 0, 0, false, 0},
                    {2, 1.0, kMost, 0, 0, false, 500},
                    {3, 1.0, kMost, 0, 0, false, 1000}}),
            0);
  EXPECT_GT(RateOf({{1, 1.0, 64, 0, 0, false, kLeast},
                    {2, 1.0, 64, 0, 0, false, kLeast},
                    {3, 1.0, 64, 0, 0, false, kMost}}),
            0);
}

TEST(Brain, RecordsOfAnOlderAttemptAreNotTheJobs) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.run = RunReport{Fence{job, 0, 1},
                            RunPhase::kFailed,
                            9,
                            60,
                            0,
                            absl::InternalError("old"),
                            {}};
  heartbeat.steps = {{9, 2.0, 64, 0, 0, false, 1000}};

  mesh.Send(a, heartbeat).IgnoreError();

  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  EXPECT_EQ(mesh.Job(job).record.step, 0);
}

TEST(Brain, WorkersAreShownWithTheirJobAndStages) {
  Mesh mesh;
  mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Break(b);

  const auto views = mesh.brain().ViewWorkers(mesh.Now().now);

  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].job, job);
  EXPECT_THAT(views[0].stages, ElementsAre(0));
  EXPECT_EQ(views[1].member.state, MemberState::kSuspect);
}

}  // namespace
}  // namespace paceline

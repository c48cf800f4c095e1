#include "coordinator/brain.h"

#include <cstdint>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Workers "a" and "b" have a job of two stages.
class BrainOfTwo : public testing::Test, public Mesh {
 protected:
  const StreamId a_ = Attach("a", 1);
  const StreamId b_ = Attach("b", 2);
  const JobId job_ = Submit(SpecOf(2));
};

using BrainOfOne = MeshWithAJob;

TEST_F(BrainOfTwo, JobRunsToItsEnd) {
  EXPECT_EQ(State(), JobState::kRunning);
  EXPECT_EQ(Job().phase(), "preparing");

  Report(a_, job_, kRunning, 0);
  EXPECT_EQ(Job().phase(), "preparing");
  Report(b_, job_, kRunning, 3);
  EXPECT_EQ(Job().phase(), "training");
  Report(a_, job_, kDone, 60);
  Report(b_, job_, kDone, 60);
  EXPECT_EQ(Job().phase(), "saving");
  EXPECT_EQ(weights().back().kind, Actions::Weights::Kind::kSave);
  Saved(kSaved);

  EXPECT_EQ(State(), JobState::kSucceeded) << Why();
  EXPECT_EQ(Job().weights_sha256(), "abc");
  EXPECT_FALSE(Order(a_).run.has_value());
  EXPECT_THAT(Events(), ElementsAre("submitted", "placed", "attempt", "running",
                                    "saving", "succeeded"));
}

TEST(Brain, OrderCarriesAllStagesWithAddressesAndSettledValues) {
  Mesh mesh;
  const StreamId a = mesh.Attach(
      "a", 1, [](auto& worker) { worker.set_cpu_capability("avx2"); });
  mesh.Attach("b", 2);

  const JobId job = mesh.Submit(SpecOf(2));

  const RunOrder& run = *mesh.Order(a).run;
  EXPECT_EQ(run.fence, (Fence{job, 1, 1}));
  ASSERT_EQ(run.stages.size(), 2u);
  EXPECT_EQ(run.stages[0].address, "a:7401");
  EXPECT_EQ(run.stages[1].worker_name, "b");
  EXPECT_EQ(run.cpu_capability, "avx2");
  EXPECT_EQ(run.threads, 1);
  EXPECT_THAT(mesh.notes(), Tells("unlike CPUs"));
}

TEST_F(BrainOfOne, OrderIsSentAgainOnReattachAndOnlyThen) {
  EXPECT_EQ(Orders(a_), 2u);  // idle, then the job

  Pass(1000, {a_});
  EXPECT_EQ(Orders(a_), 2u);

  Break(a_);
  const StreamId again = Attach("a", 1);
  EXPECT_EQ(Orders(again), 1u);
  EXPECT_TRUE(Order(again).run.has_value());
}

TEST_F(BrainOfOne, SecondJobWaitsForTheFirstAndSaysSo) {
  const JobId second = Submit(SpecOf(1));
  const JobId third = Submit(SpecOf(1));
  EXPECT_EQ(State(second), JobState::kQueued);
  EXPECT_THAT(Why(second), HasSubstr("waits for job 1"));
  EXPECT_THAT(Why(third), HasSubstr("waits for job 2"));

  Report(kFailed, 0, absl::NotFoundError("no such file"));

  EXPECT_EQ(State(second), JobState::kRunning);
  EXPECT_EQ(Order(a_).run->fence.job, second);
  EXPECT_THAT(Why(third), HasSubstr("waits for job 2: 0 of the 1"));
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

// Stage 0 on worker a, stage 1 on worker b.
JobSpec SpecOnAAndB() {
  JobSpec spec = SpecOf(2);
  spec.pipeline.cuts = {2};
  spec.pipeline.workers = {"a", "b"};
  return spec;
}

TEST(Brain, JobThatWaitsForAnAbsentWorkerHoldsUpNoOther) {
  Mesh mesh;
  mesh.Attach("a", 1);
  const JobId first = mesh.Submit(SpecOnAAndB());
  const JobId second = mesh.Submit(SpecOf(1));
  const JobId third = mesh.Submit(SpecOf(1));

  EXPECT_EQ(mesh.State(second), JobState::kRunning) << mesh.Why(second);
  EXPECT_THAT(mesh.Why(first), HasSubstr("names b, which is not attached"));
  EXPECT_THAT(mesh.Why(third), HasSubstr("waits for job 2"));

  // From here on it waits for busy workers only, and is the first again.
  mesh.Attach("b", 1);
  EXPECT_EQ(mesh.State(third), JobState::kQueued);
  ASSERT_TRUE(mesh.Stop(second).ok());
  EXPECT_EQ(mesh.State(first), JobState::kRunning) << mesh.Why(first);
  EXPECT_EQ(mesh.State(third), JobState::kQueued);
}

TEST_F(BrainOfOne, JobWhoseBusyWorkerIsSuspectIsNotPassed) {
  const StreamId b = Attach("b", 1);
  Report(kRunning, 1);
  Submit(SpecOnAAndB());
  Break(a_);

  const JobId later = Submit(SpecOf(1));
  Pass(200, {b});

  EXPECT_EQ(State(later), JobState::kQueued);
}

TEST(Brain, WorkerThatIsGoneCanBeForgottenAndNoOther) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Break(mesh.Attach("b", 1));
  ASSERT_TRUE(mesh.Drain("b", true).ok());
  EXPECT_THAT(mesh.Forget("b").status().message(), HasSubstr("suspect"));
  mesh.Pass(5000, {a});

  EXPECT_TRUE(absl::IsFailedPrecondition(mesh.Forget("a").status()));
  EXPECT_TRUE(absl::IsNotFound(mesh.Forget("c").status()));
  EXPECT_TRUE(mesh.Forget("b").ok());

  EXPECT_EQ(mesh.ViewWorkers().size(), 1u);
  mesh.Attach("b", 2);
  const v1::Worker back = mesh.ViewWorkers().back();
  EXPECT_EQ(back.id(), 3);
  EXPECT_FALSE(back.drained());
}

TEST_F(BrainOfOne, WorkerThatAJobWaitsForIsNotForgotten) {
  Break(a_);
  Pass(5000);
  ASSERT_EQ(State(), JobState::kRunning) << "it may come back";

  EXPECT_THAT(Forget("a").status().message(), HasSubstr("job stop 1"));
}

TEST_F(BrainOfOne, WorkerThatIsStoppedPausesItsPipelineAtOnceAndIsNotLost) {
  Report(kRunning, 5);

  Leave(a_, /*restarting=*/false);
  Pass(50);

  EXPECT_EQ(acks().back().sequence, 9);
  EXPECT_EQ(Job().phase(), "paused");
  EXPECT_EQ(Why(), "waits for a worker: none is attached");
  EXPECT_THAT(Story(), Contains("lost: a: its process was ended on request"));
  EXPECT_TRUE(Send(a_, v1::Heartbeat{}).ok());  // before it has gone
  Break(a_);
  Pass(5000);
  EXPECT_EQ(ViewWorkers()[0].state(), v1::WORKER_STATE_STOPPED);
  EXPECT_TRUE(ends().empty());
}

TEST_F(BrainOfTwo, WorkerWhoseCertificateIsRevokedIsStoppedAtOnce) {
  const int64_t now = Now().unix_ms;

  EXPECT_TRUE(Revoke("worker", "b")->known());
  Pass(50, {a_});

  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].stream, b_);
  EXPECT_TRUE(absl::IsPermissionDenied(ends()[0].status));
  EXPECT_EQ(ViewWorkers()[1].state(), v1::WORKER_STATE_STOPPED);
  const std::map<std::string, int64_t> revoked = {{"worker/b", now}};
  EXPECT_EQ(Order(a_).revoked, revoked);
  EXPECT_EQ(stored().revoked, revoked);
  Mesh next(stored());
  EXPECT_EQ(next.Order(next.Attach("c", 1)).revoked, revoked);
}

TEST(Brain, NameOfAWorkerBelongsToItsKeyUntilATokenGivesItAway) {
  const auto with = [](const std::string& key) {
    return [key](v1::Registration& worker) { worker.set_key(key); };
  };
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1, with("k1"));
  const auto is_refused = [&with](Mesh& mesh, const std::string& name,
                                  const std::string& key) {
    mesh.Attach(name, 2, with(key));
    return absl::IsPermissionDenied(mesh.last_attach());
  };
  EXPECT_TRUE(is_refused(mesh, "a", "k2"));
  EXPECT_TRUE(is_refused(mesh, "A", "k2"));
  Mesh next(mesh.stored());
  EXPECT_TRUE(is_refused(next, "a", "k2"));

  v1::CreateTokenRequest request;
  request.set_role("worker");
  request.set_for_name("a");
  ASSERT_TRUE(
      mesh.brain().tokens().OnCreate(request, "t", "h", mesh.Now()).ok());
  ASSERT_TRUE(mesh.UseToken({"t", "h", "worker", "k2/a"}).ok());

  ASSERT_EQ(mesh.ends().size(), 1u);
  EXPECT_EQ(mesh.ends()[0].stream, a);
  EXPECT_TRUE(absl::IsPermissionDenied(mesh.ends()[0].status));
  EXPECT_EQ(mesh.ViewWorkers()[0].state(), v1::WORKER_STATE_STOPPED);
  EXPECT_TRUE(is_refused(mesh, "a", "k1"));
  EXPECT_FALSE(is_refused(mesh, "a", "k2"));
  EXPECT_EQ(mesh.ViewWorkers()[0].state(), v1::WORKER_STATE_IDLE);
}

TEST(Brain, ForgettingAWorkerFreesItsName) {
  Mesh mesh;
  mesh.Break(mesh.Attach("a", 1, [](auto& worker) { worker.set_key("k1"); }));
  mesh.Pass(60'000);
  ASSERT_TRUE(mesh.Forget("a").ok());

  mesh.Attach("a", 2, [](auto& worker) { worker.set_key("k2"); });

  EXPECT_EQ(mesh.ViewWorkers()[0].state(), v1::WORKER_STATE_IDLE);
}

TEST(Brain, RevokesOfTheNamedHolderWhatEverTheClockSays) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);

  EXPECT_FALSE(mesh.Revoke("client", "a")->known());
  EXPECT_FALSE(mesh.Revoke("worker", "1")->known()) << "its number is no name";
  const int64_t first = mesh.Revoke("worker", "thief")->unix_ms();
  mesh.SetWallClockBack(60'000);
  const int64_t again = mesh.Revoke("worker", "thief")->unix_ms();

  EXPECT_GE(again, first + 1000) << "a certificate that came between";
  EXPECT_TRUE(mesh.ends().empty());
  EXPECT_EQ(mesh.Order(a).revoked.size(), 3u);
  for (int i = 3; i < 1000; ++i) {
    ASSERT_TRUE(mesh.Revoke("client", absl::StrCat("c", i)).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(mesh.Revoke("client", "d").status()));
  EXPECT_TRUE(mesh.Revoke("client", "a").ok()) << "it is there already";
}

TEST(Brain, JobWithoutWorkersIsQueuedUntilOneAttaches) {
  Mesh mesh;
  mesh.Submit(SpecOf(2));
  EXPECT_EQ(mesh.Why(), "waits for a worker: none is attached");

  mesh.Attach("a", 1);

  EXPECT_EQ(mesh.State(), JobState::kRunning);
  EXPECT_EQ(mesh.Job().workers_size(), 1);
  ASSERT_TRUE(mesh.Stop().ok());
  mesh.Submit(SpecOf(2));
  EXPECT_THAT(mesh.notes(), Tells("2 stages on 1 worker"));
}

TEST(Brain, CapabilityThatNobodyHasIsWaitedFor) {
  Mesh mesh;
  mesh.Attach("a", 1,
              [](auto& worker) { worker.set_cpu_capability("default"); });
  JobSpec spec = SpecOf(1);
  spec.cpu_capability = "avx2";

  mesh.Submit(spec);

  EXPECT_THAT(mesh.Why(), HasSubstr("waits for a worker with avx2"));
}

TEST(Brain, ImpossibleMemoryIsRefusedAtSubmit) {
  for (const JobSpec& spec : {SpecOf(1), GroupSpec()}) {
    Mesh mesh;
    mesh.Attach("a", 1, [](auto& worker) { worker.set_memory_bytes(1000); });

    mesh.Submit(spec);

    EXPECT_TRUE(absl::IsResourceExhausted(mesh.submit_error()))
        << mesh.submit_error();
    EXPECT_TRUE(mesh.brain().ShownJobs(10).empty());
  }
}

TEST(Brain, WrongSpecIsRefusedWithTheKey) {
  Mesh mesh;
  JobSpec spec = SpecOf(1);
  spec.model.name = "lenett";

  mesh.Submit(spec);

  EXPECT_TRUE(absl::IsInvalidArgument(mesh.submit_error()));
  EXPECT_THAT(mesh.submit_error().message(), HasSubstr("model.name"));
}

TEST(Brain, FaultsOfAttachedWorkersAreTakenAndOfOthersRefused) {
  Mesh mesh;
  mesh.Attach("w1", 1);
  mesh.Attach("pi-two", 2);
  JobSpec spec = GroupSpec();
  spec.faults = {{.worker = "pi-twp", .kind = "kill"}};

  mesh.Submit(spec);

  EXPECT_TRUE(absl::IsInvalidArgument(mesh.submit_error()));
  EXPECT_THAT(mesh.submit_error().message(),
              Says("faults[0].worker", "did you mean 'pi-two'?"));
  spec.faults = {{.worker = "w1", .kind = "nan"}};
  mesh.Submit(spec);
  EXPECT_TRUE(mesh.submit_error().ok()) << mesh.submit_error();
}

TEST(Brain, SameRequestIdIsTheSameJob) {
  Mesh mesh;
  const JobId job = mesh.Submit(SpecOf(1), "r1");

  EXPECT_EQ(mesh.Submit(SpecOf(1), "r1"), job);
  EXPECT_NE(mesh.Submit(SpecOf(1), "r2"), job);
  EXPECT_NE(mesh.Submit(SpecOf(1), ""), mesh.Submit(SpecOf(1), ""));
}

TEST_F(BrainOfOne, WorkersLastingFailureFailsTheJobWithItsMessage) {
  Report(kFailed, 7, absl::InvalidArgumentError("train: not an IDX file"));

  EXPECT_EQ(State(), JobState::kFailed);
  EXPECT_THAT(Why(), HasSubstr("worker a (stage 0) failed at step 7"));
  EXPECT_THAT(Why(), HasSubstr("train: not an IDX file"));
  EXPECT_EQ(weights().back().kind, Actions::Weights::Kind::kForget);
  EXPECT_FALSE(Order(a_).run.has_value());
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

    // An error that may pass comes three times.
    for (int i = 0; i < 3; ++i) {
      if (mesh.State() != JobState::kRunning) continue;
      mesh.Report(a, job, kFailed, 0, one.error);
      ASSERT_TRUE(mesh.Send(a, v1::Heartbeat()).ok());
    }

    EXPECT_EQ(mesh.State(), JobState::kFailed) << one.error;
    EXPECT_THAT(mesh.Why(), HasSubstr(one.advice)) << one.error;
    EXPECT_EQ(absl::StrContains(mesh.Why(), "submit it again"), one.again)
        << one.error;
  }
}

TEST_F(BrainOfTwo, JobGoesOnWithoutAWorkerThatIsLostAfterTheGrace) {
  Report(a_, job_, kRunning, 4);
  Report(b_, job_, kRunning, 4);
  Break(b_);

  Pass(450, {a_});
  EXPECT_EQ(Job().attempt(), 1);

  Pass(50);
  EXPECT_FALSE(Order(a_).run.has_value()) << "it leaves the attempt first";
  EXPECT_EQ(Job().phase(), "recovering");
  ASSERT_TRUE(Send(a_, v1::Heartbeat()).ok());

  EXPECT_EQ(State(), JobState::kRunning) << Why();
  EXPECT_EQ(Job().phase(), "recovering");
  ASSERT_TRUE(Order(a_).run.has_value());
  EXPECT_EQ(Order(a_).run->fence, (Fence{job_, 2, 2}));
  for (const StagePlacement& stage : Order(a_).run->stages) {
    EXPECT_EQ(stage.worker_name, "a");
  }
  EXPECT_THAT(Story(), Tells("lost: b: its stream broke"));
  Report(a_, job_, kRunning, 0);
  EXPECT_EQ(Job().phase(), "training");
}

TEST_F(BrainOfOne, SilentWorkerIsEndedAndItsJobIsPausedUntilItIsBack) {
  Report(kRunning, 1);

  Pass(3000);

  EXPECT_EQ(Job().phase(), "paused");
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].stream, a_);
  // Aborted would end its process.
  EXPECT_TRUE(absl::IsUnavailable(Send(a_, v1::Heartbeat{})));
  const StreamId again = Attach("a", 2);
  ASSERT_TRUE(Send(again, v1::Heartbeat()).ok());
  EXPECT_EQ(Order(again).run->fence, (Fence{job_, 2, 2}));
}

TEST_F(BrainOfTwo, AnotherProcessOfAWorkerTakesPartInTheNextAttempt) {
  Report(a_, job_, kRunning, 0);
  Report(b_, job_, kRunning, 0);

  const StreamId again =
      Attach("b", 3, [](auto& worker) { worker.set_address("b:9999"); });
  SayIdle({again, a_});

  EXPECT_EQ(State(), JobState::kRunning) << Why();
  EXPECT_EQ(Order(again).run->fence, (Fence{job_, 2, 2}));
  EXPECT_EQ(Order(a_).run->fence, (Fence{job_, 2, 2}));
  EXPECT_EQ(Order(a_).run->stages[1].address, "b:9999");
}

TEST_F(BrainOfOne, WorkerLostAfterAllAreDoneCostsNothing) {
  Report(kDone, 60);
  Break(a_);
  Pass(30000);

  Saved(kSaved);

  EXPECT_EQ(State(), JobState::kSucceeded) << Why();
}

TEST(Brain, WeightsThatCannotBeSavedFailTheJob) {
  const struct {
    absl::Status error;
    const char* why;
  } kCases[] = {
      {absl::FailedPreconditionError("1 of 6 tensors"), "1 of 6 tensors"},
      {absl::ResourceExhaustedError("jobs/1: disk full"), "make room"}};
  for (const auto& one : kCases) {
    Mesh mesh;
    const StreamId a = mesh.Attach("a", 1);
    mesh.Report(a, mesh.Submit(SpecOf(1)), kDone, 60);

    mesh.Saved(one.error);

    EXPECT_EQ(mesh.State(), JobState::kFailed);
    EXPECT_THAT(mesh.Why(), HasSubstr(one.why));
    EXPECT_FALSE(absl::StrContains(mesh.Why(), "submit it again"));
  }
}

TEST_F(BrainOfOne, FullDiskFailsTheRunningJob) {
  brain().OnWeightsFailed(Fence{job_, 1, 1},
                          absl::ResourceExhaustedError("disk is full"), Now());

  EXPECT_EQ(State(), JobState::kFailed);
  Pass(50, {a_});
  EXPECT_FALSE(Order(a_).run.has_value());
}

TEST_F(BrainOfOne, StopEndsARunningAndAQueuedJobForGood) {
  const JobId second = Submit(SpecOf(1));

  ASSERT_TRUE(Stop(second).ok());
  ASSERT_TRUE(Stop(job_).ok());

  EXPECT_EQ(State(), JobState::kStopped);
  EXPECT_EQ(State(second), JobState::kStopped);
  EXPECT_FALSE(Order(a_).run.has_value());
  Report(kFailed, 3, absl::CancelledError("cancelled"));
  EXPECT_TRUE(Stop().ok());
  EXPECT_EQ(State(), JobState::kStopped);
  EXPECT_TRUE(absl::IsNotFound(Stop(JobId{9})));
}

TEST_F(BrainOfOne, DeleteTakesEndedJobsOnly) {
  EXPECT_TRUE(absl::IsFailedPrecondition(brain().CheckDelete(job_)));
  ASSERT_TRUE(Stop().ok());

  EXPECT_TRUE(brain().CheckDelete(job_).ok());
  brain().OnDeleted(job_);

  EXPECT_TRUE(absl::IsNotFound(brain().ViewJob(job_).status()));
  EXPECT_EQ(Submit(SpecOf(1)), JobId{2});  // a number is never used twice
}

TEST_F(BrainOfOne, RestartedCoordinatorGoesOnWithReattachingWorkers) {
  Report(kRunning, 5);

  Mesh after(stored(), 100000);
  EXPECT_EQ(after.weights()[0].kind, Actions::Weights::Kind::kOpen);
  after.Pass(3000);
  const StreamId a = after.Attach("a", 1);
  EXPECT_EQ(after.Orders(a), 0) << "what it runs would end";
  after.Report(a, job_, kRunning, 9);
  after.Pass(2000, {a});

  EXPECT_EQ(after.State(), JobState::kRunning) << after.Why();
  EXPECT_EQ(after.Order(a).run->fence, (Fence{job_, 1, 1}));
  EXPECT_EQ(after.Job().step(), 9);
}

// Also where the list of workers knows the new process already.
TEST_F(BrainOfOne, RestartedCoordinatorNoticesARestartedWorker) {
  Report(kRunning, 5);

  for (const uint64_t listed : {1, 2}) {
    StoredState kept = stored();
    kept.workers.begin()->second.set_incarnation(listed);
    Mesh after(kept, 100000);
    const StreamId a = after.Attach("a", 2);
    after.SayIdle({a, a});

    EXPECT_EQ(after.Order(a).run->fence, (Fence{job_, 2, 2}));
    EXPECT_THAT(after.Story(), Tells("a is gone"));
  }
}

TEST(Brain, RestoredQueueWaitsForAllKnownWorkersButNotForever) {
  Mesh before;
  before.Break(before.Attach("a", 1));
  before.Break(before.Attach("b", 2));
  before.Pass(1000);
  before.Submit(SpecOf(2));
  ASSERT_EQ(before.State(), JobState::kQueued);

  Mesh after(before.stored(), 100000);
  const StreamId a = after.Attach("a", 1);
  EXPECT_THAT(after.Why(), HasSubstr("waits for the workers to come back"));
  after.Pass(4500, {a});

  EXPECT_EQ(after.State(), JobState::kRunning) << after.Why();
  EXPECT_EQ(after.Job().workers_size(), 1);
}

TEST_F(BrainOfOne, RecordsAreWrittenAndAcknowledged) {
  v1::Heartbeat heartbeat = Beat(kRunning, 2);
  heartbeat.set_sequence(3);
  *heartbeat.add_steps() = StepOf(1, 2.0, 1000);
  *heartbeat.add_steps() = StepOf(2, 1.0, 1500);
  *heartbeat.add_evaluations() = PartOf(2, 1.5, 0.5, 100);
  *heartbeat.add_logs() = LineOf("hello");
  heartbeat.mutable_logs(0)->set_source("forged");
  heartbeat.mutable_logs(0)->set_sequence(4);
  ASSERT_TRUE(brain().OnReport(a_, ReportOf(heartbeat), Now()).ok());
  const Actions actions = brain().TakeActions();

  const StoreBatch::Records& records = actions.writes.records.at(job_);
  EXPECT_EQ(records.steps.size(), 2u);
  const auto& [process, line] = records.logs[0];
  EXPECT_EQ(process.value, 1u);
  EXPECT_EQ(line.source(), "a");
  EXPECT_EQ(line.sequence(), 4);
  EXPECT_EQ(actions.acks[0].sequence, 3);
  EXPECT_DOUBLE_EQ(Job().samples_per_second(), 128.0);
  EXPECT_EQ(Job().loss(), 1.0);

  // Sent again after a break: the same records, but no second event.
  ASSERT_TRUE(brain().OnReport(a_, ReportOf(heartbeat), Now()).ok());
  const Actions again = brain().TakeActions();
  EXPECT_TRUE(again.writes.records.at(job_).events.empty());
  EXPECT_DOUBLE_EQ(Job().samples_per_second(), 128.0);
}

// Returns a job's samples per second once its worker has reported `steps`.
double RateOf(const std::vector<v1::StepRecord>& steps) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  JobSpec spec = SpecOf(1);
  spec.train.steps = 10'000;
  mesh.Submit(spec);
  v1::Heartbeat heartbeat = mesh.Beat(kRunning, 2);
  heartbeat.mutable_steps()->Assign(steps.begin(), steps.end());
  EXPECT_TRUE(mesh.Send(a, heartbeat).ok());
  return mesh.Job().samples_per_second();
}

// Every step was kept until the worker's clock moved.
TEST(Brain, KeepsABoundedNumberOfStepsWhenAClockStandsStill) {
  std::vector<v1::StepRecord> steps;
  for (int64_t step = 1; step <= 10'000; ++step) {
    steps.push_back(StepOf(step, 1.0, 1000));
  }
  steps.back().set_unix_ms(2000);

  const double rate = RateOf(steps);

  EXPECT_GT(rate, 0);
  EXPECT_LE(rate, 64 * 4096);
}

TEST(Brain, KnowsTheRateAgainWhenAWorkersClockWasSetBack) {
  EXPECT_EQ(RateOf({StepOf(1, 1.0, 3'600'000), StepOf(2, 1.0, 3'601'000),
                    StepOf(3, 1.0, 1'000), StepOf(4, 1.0, 2'000)}),
            RateOf({StepOf(1, 1.0, 1'000), StepOf(2, 1.0, 2'000)}));
}

TEST(Brain, CountsOnWithNumbersThatCannotBeAdded) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  std::vector<v1::StepRecord> steps = {StepOf(1, 1.0, 0), StepOf(2, 1.0, 500),
                                       StepOf(3, 1.0, 1000)};
  steps[1].set_samples(kMost);
  steps[2].set_samples(kMost);
  EXPECT_GT(RateOf(steps), 0);
  EXPECT_GT(RateOf({StepOf(1, 1.0, kLeast), StepOf(2, 1.0, kLeast),
                    StepOf(3, 1.0, kMost)}),
            0);
}

TEST(Brain, ShowsTheJobsThatHaveEndedLast) {
  Mesh mesh;
  for (int i = 0; i < 4; ++i) mesh.Submit(SpecOf(1));
  for (const int64_t id : {2, 3, 4, 1}) {
    mesh.Pass(50);
    ASSERT_TRUE(mesh.Stop(JobId{id}).ok());
  }

  EXPECT_THAT(mesh.brain().ShownJobs(2), ElementsAre(JobId{1}, JobId{4}));
  Mesh after(mesh.stored(), mesh.ms());
  EXPECT_THAT(after.brain().ShownJobs(2), ElementsAre(JobId{1}, JobId{4}));
  after.brain().OnDeleted(JobId{1});
  EXPECT_THAT(after.brain().ShownJobs(2), ElementsAre(JobId{3}, JobId{4}));
}

// Every tick judged the whole queue.
TEST(Brain, JudgesAQueueThatNothingHasChangedForOnceASecond) {
  Mesh mesh;
  JobSpec spec = GroupSpec();
  spec.aggregation.min_parts = 2;
  for (int i = 0; i < 100; ++i) mesh.Submit(spec);

  const std::clock_t begin = std::clock();  // CPU time
  for (int i = 1; i <= 10; ++i) mesh.Attach("a", i);
  const std::clock_t ten_arrivals = std::clock() - begin;
  mesh.Pass(5000);
  const std::clock_t a_hundred_ticks = std::clock() - begin - ten_arrivals;

  ASSERT_EQ(mesh.State(), JobState::kQueued);
  EXPECT_LT(a_hundred_ticks, 2 * ten_arrivals);
}

TEST_F(BrainOfOne, RecordsOfAnOlderAttemptAreNotTheJobs) {
  v1::Heartbeat heartbeat = Beat(kFailed, 9);
  heartbeat.mutable_run()->set_attempt(0);
  SetError(absl::InternalError("old"), *heartbeat.mutable_run());
  *heartbeat.add_steps() = StepOf(9, 2.0, 1000);

  Send(a_, heartbeat).IgnoreError();

  EXPECT_EQ(State(), JobState::kRunning);
  EXPECT_EQ(Job().step(), 0);
  EXPECT_EQ(Job().recorded_step(), 0);
}

TEST(Brain, WorkersAreShownWithWhatTheirClocksAreAhead) {
  Mesh mesh;
  const auto ahead = [&mesh](v1::Registration& registration) {
    registration.set_unix_ms(mesh.Now().unix_ms + 600'000);
  };
  mesh.Attach("a", 1, ahead);
  mesh.Attach("b", 1);

  EXPECT_EQ(mesh.ViewWorkers()[0].registration().clock_ahead_ms(), 600'000);
  EXPECT_EQ(mesh.ViewWorkers()[1].registration().clock_ahead_ms(), 0);
}

TEST_F(BrainOfOne, WorkersAreShownWithTheirJobAndStages) {
  Break(Attach("b", 2));

  const auto views = ViewWorkers();

  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(JobId{views[0].job()}, job_);
  EXPECT_THAT(views[0].stages(), ElementsAre(0));
  EXPECT_EQ(views[1].state(), v1::WORKER_STATE_SUSPECT);
}

}  // namespace
}  // namespace paceline

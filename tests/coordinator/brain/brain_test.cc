#include "coordinator/brain.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

using BrainOfOne = MeshWithAJob;

TEST_F(BrainOfOne, OrderIsSentAgainOnReattachAndOnlyThen) {
  EXPECT_EQ(Orders(a_), 2u);  // idle, then the job

  Pass(1000, {a_});
  EXPECT_EQ(Orders(a_), 2u);

  Break(a_);
  const StreamId again = Attach("a", 1);
  EXPECT_EQ(Orders(again), 1u);
  EXPECT_TRUE(Order(again).run.has_value());
}

TEST_F(BrainOfOne, WorkerWhoseCertificateIsRevokedIsStoppedAtOnce) {
  const StreamId b = Attach("b", 2);
  const int64_t now = Now().unix_ms;

  EXPECT_TRUE(Revoke("worker", "b")->known());
  Pass(50, {a_});

  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].stream, b);
  EXPECT_TRUE(absl::IsPermissionDenied(ends()[0].status));
  EXPECT_EQ(ViewWorkers()[1].state(), v1::WORKER_STATE_STOPPED);
  const std::map<std::string, int64_t> revoked = {{"worker/b", now}};
  ASSERT_EQ(Order(a_).rest.revoked_size(), 1);
  EXPECT_EQ(Order(a_).rest.revoked(0).holder(), "worker/b");
  EXPECT_EQ(Order(a_).rest.revoked(0).unix_ms(), now);
  EXPECT_EQ(stored().revoked, revoked);
  Mesh next(stored());
  EXPECT_EQ(next.Order(next.Attach("c", 1)).rest.revoked_size(), 1);
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
  EXPECT_EQ(mesh.Order(a).rest.revoked_size(), 3);
  for (int i = 3; i < 1000; ++i) {
    ASSERT_TRUE(mesh.Revoke("client", absl::StrCat("c", i)).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(mesh.Revoke("client", "d").status()));
  EXPECT_TRUE(mesh.Revoke("client", "a").ok()) << "it is there already";
}

TEST(Brain, SameRequestIdIsTheSameJob) {
  Mesh mesh;
  const JobId job = mesh.Submit(SpecOf(1), "r1");

  EXPECT_EQ(mesh.Submit(SpecOf(1), "r1"), job);
  EXPECT_NE(mesh.Submit(SpecOf(1), "r2"), job);
  EXPECT_NE(mesh.Submit(SpecOf(1), ""), mesh.Submit(SpecOf(1), ""));
}

TEST_F(BrainOfOne, FullDiskFailsTheRunningJob) {
  brain().OnWeightsFailed(Fence{job_, 1, 1},
                          absl::ResourceExhaustedError("disk is full"), Now());

  EXPECT_EQ(State(), v1::JOB_STATE_FAILED);
  Pass(50, {a_});
  EXPECT_FALSE(Order(a_).run.has_value());
}

TEST_F(BrainOfOne, DeleteTakesEndedJobsOnly) {
  EXPECT_TRUE(absl::IsFailedPrecondition(brain().CheckDelete(job_)));
  ASSERT_TRUE(Stop().ok());

  EXPECT_TRUE(brain().CheckDelete(job_).ok());
  brain().OnDeleted(job_);

  EXPECT_TRUE(absl::IsNotFound(brain().ViewJob(job_).status()));
  EXPECT_EQ(Submit(SpecOf(1)), JobId{2});  // a number is never used twice
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

  ASSERT_EQ(mesh.State(), v1::JOB_STATE_QUEUED);
  EXPECT_LT(a_hundred_ticks, 2 * ten_arrivals);
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

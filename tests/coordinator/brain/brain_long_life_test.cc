// A brain that lives long: many jobs have ended, others wait for long, and
// another coordinator takes over.
#include <string>
#include <vector>

#include "coordinator/brain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// --- figures of jobs
// ----------------------------------------------------------

// 20 steps of 64 samples, two a second, and an evaluation.
void Train(Mesh& mesh, StreamId stream, v1::RunState::Phase phase) {
  v1::Heartbeat heartbeat = mesh.Beat(phase, 20);
  for (int64_t step = 1; step <= 20; ++step) {
    *heartbeat.add_steps() = StepOf(step, 3.0 / step, 500 * step);
  }
  *heartbeat.add_evaluations() = PartOf(20, 0.5, 0.75, 64);
  ASSERT_TRUE(mesh.Send(stream, heartbeat).ok());
}

// All that `job show`, `job list`, the report and the page have.
std::string Shown(const Mesh& mesh) { return mesh.Job().DebugString(); }

class Figures : public testing::TestWithParam<JobSpec> {
 protected:
  void ExpectSameAfterARestart() {
    const v1::Job shown = mesh_.Job();
    EXPECT_EQ(shown.loss(), 3.0 / 20);
    EXPECT_EQ(shown.accuracy(), 0.75);
    EXPECT_EQ(shown.samples_per_second(), 128);
    const Mesh after(mesh_.stored(), mesh_.ms());
    EXPECT_EQ(Shown(after), Shown(mesh_));
  }

  Mesh mesh_;
  const StreamId a_ = mesh_.Attach("a", 1);
  const JobId job_ = mesh_.Submit(GetParam());
};

TEST_P(Figures, OfAStoppedJobOutliveTheCoordinator) {
  Train(mesh_, a_, kRunning);
  ASSERT_TRUE(mesh_.Stop().ok());
  ExpectSameAfterARestart();
}

TEST_P(Figures, OfAFailedJobOutliveTheCoordinator) {
  Train(mesh_, a_, kRunning);
  mesh_.Report(a_, job_, kFailed, 20, absl::InvalidArgumentError("no IDX"));
  ASSERT_EQ(mesh_.State(), v1::JOB_STATE_FAILED) << mesh_.Why();
  ExpectSameAfterARestart();
}

TEST_P(Figures, OfARunningJobOutliveTheCoordinator) {
  Train(mesh_, a_, kRunning);
  const Mesh after(mesh_.stored(), mesh_.ms());
  EXPECT_EQ(after.Job().loss(), 3.0 / 20);
  EXPECT_EQ(after.Job().accuracy(), 0.75);
  EXPECT_EQ(after.Job().samples_per_second(), 128);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Figures,
                         testing::Values(SpecOf(1), GroupSpec()),
                         [](const auto& kind) {
                           return kind.index == 0 ? "Pipeline" : "Group";
                         });

TEST(SucceededPipeline, HasTheSameFiguresAfterARestart) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(2));
  Train(mesh, a, kRunning);
  mesh.Report(b, job, kRunning, 20);
  mesh.Report(a, job, kDone, 60);
  mesh.Report(b, job, kDone, 60);
  mesh.Saved(kSaved);
  ASSERT_EQ(mesh.State(), v1::JOB_STATE_SUCCEEDED) << mesh.Why();

  const Mesh after(mesh.stored(), mesh.ms());

  EXPECT_EQ(Shown(after), Shown(mesh));
  EXPECT_EQ(mesh.Job().samples_per_second(), 128);
}

// --- jobs in memory
// -----------------------------------------------------------

TEST(EndedJobs, StayInMemoryWhileTheyAreTheLast) {
  Mesh mesh;
  std::vector<JobId> jobs;
  for (int i = 0; i < 100; ++i) {
    jobs.push_back(mesh.Submit(SpecOf(1)));
    ASSERT_TRUE(mesh.Stop(jobs.back()).ok());
  }
  const JobId waits = mesh.Submit(SpecOf(1));

  Brain& brain = mesh.brain();
  EXPECT_FALSE(brain.FindRecord(jobs[0]).ok());
  EXPECT_FALSE(brain.FindRecord(jobs[69]).ok());
  EXPECT_TRUE(brain.FindRecord(jobs[70]).ok());
  EXPECT_TRUE(brain.FindRecord(waits).ok());
  EXPECT_EQ(std::ssize(brain.ShownJobs(50)), kEndedInMemory + 1);
  EXPECT_EQ(brain.CountJobs().at(v1::JOB_STATE_STOPPED), 100);
}

TEST(EndedJobs, AreThereAgainWhileARequestNeedsThem) {
  Mesh mesh;
  for (int i = 0; i < 40; ++i) {
    const JobId job = mesh.Submit(SpecOf(1));
    ASSERT_TRUE(mesh.Stop(job).ok());
  }
  JobRecord first;
  first.job.set_id(1);
  first.job.set_state(v1::JOB_STATE_STOPPED);
  Brain& brain = mesh.brain();

  brain.Recall(first);
  EXPECT_TRUE(brain.FindRecord(JobId{1}).ok());
  EXPECT_TRUE(brain.CheckDelete(JobId{1}).ok());
  brain.TakeActions();

  EXPECT_FALSE(brain.FindRecord(JobId{1}).ok());
  EXPECT_EQ(brain.CountJobs().at(v1::JOB_STATE_STOPPED), 40);
}

// Each of ten thousand that wait was stored again when the first of them began.
TEST(Queue, WhatJobsWaitForIsNotStoredForAllOfThem) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId first = mesh.Submit(SpecOf(1));
  std::vector<JobId> others;
  for (int i = 0; i < 50; ++i) others.push_back(mesh.Submit(SpecOf(1)));
  EXPECT_THAT(mesh.Why(others[40]), HasSubstr("waits for job 2"));
  int64_t puts = 0;
  mesh.OnWrites([&](const StoreBatch& batch) {
    for (const JobId job : others) puts += batch.jobs.contains(job);
  });

  mesh.Report(a, first, kFailed, 0, absl::NotFoundError("no such file"));

  EXPECT_THAT(mesh.Why(others[40]), HasSubstr("waits for job 3"));
  EXPECT_LE(puts, 4);
}

// --- placements
// ---------------------------------------------------------------

class Placements : public testing::Test, public Mesh {
 protected:
  // How many are made in ten seconds.
  int64_t InTenSeconds(const std::vector<StreamId>& alive) {
    const int64_t before = brain().placements();
    Pass(10'000, alive);
    return brain().placements() - before;
  }
};

TEST_F(Placements, OfAJobThatWaitsAreMadeAnewWhenTheMeshHasChanged) {
  const StreamId a = Attach("a", 1);
  Submit(SpecOf(1));
  JobSpec wide = SpecOf(2);
  wide.pipeline.cuts = {2};
  wide.pipeline.workers = {"a", "b"};
  Submit(wide);
  Submit(SpecOf(2));
  Pass(5'000, {a});
  EXPECT_EQ(InTenSeconds({a}), 0);

  const int64_t before = brain().placements();
  const StreamId c = Attach("c", 1);
  EXPECT_GT(brain().placements(), before);
  EXPECT_EQ(InTenSeconds({a, c}), 0);

  ASSERT_TRUE(Drain("c", true).ok());
  ASSERT_TRUE(Drain("c", false).ok());
  EXPECT_EQ(InTenSeconds({a, c}), 0);
}

TEST_F(Placements, AreMadeAnewWhenSomethingWasMeasured) {
  const StreamId a = Attach("a", 1);
  Submit(SpecOf(1));
  Submit(SpecOf(1));
  Pass(1'000, {a});
  StoredMeasurements measured;
  EXPECT_EQ(measured.version, 0);
  measured.Put(ProfileOf(SpecOf(1), "a", 1e-3));
  measured.Put(LinkMeasurement{"a", "b", 1e8, 1e-3, 7});
  EXPECT_EQ(measured.version, 2);
}

TEST_F(Placements, OfAPausedPipelineAreMadeAnewWhenTheMeshHasChanged) {
  const StreamId a = Attach("a", 1);
  const StreamId b = Attach("b", 2);
  JobSpec spec = SpecOf(2);
  spec.pipeline.cuts = {2};
  spec.pipeline.workers = {"a", "b"};
  const JobId job = Submit(spec);
  for (const StreamId stream : {a, b}) Report(stream, job, kRunning, 1);
  Break(b);
  Pass(5'000, {a});
  ASSERT_EQ(Job().phase(), "paused") << Why();

  EXPECT_EQ(InTenSeconds({a}), 0);
  EXPECT_THAT(Why(), Says("names b"));

  const StreamId again = Attach("b", 3);
  Pass(30'000, {a, again});
  EXPECT_EQ(State(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job().attempt(), 2) << Why();
}

// Placements are made when a test says so, as another thread would.
class LatePlacements : public testing::Test, public Mesh {
 protected:
  void PlaceLate() {
    brain().SetPlaceLater([this](std::weak_ptr<const void> wanted,
                                 MakePlacement make,
                                 std::function<void(PlacementVerdict)> done) {
      late_.push_back([=] {
        if (!wanted.expired()) done(make());
      });
    });
  }

  void MakePlacements() {
    while (!late_.empty()) {
      for (const auto& make : std::exchange(late_, {})) make();
      brain().OnPlaced(Now());
      Pass(50);
    }
  }

  std::vector<std::function<void()>> late_;
};

TEST_F(LatePlacements, AJobBeginsWhenItsOwnIsMade) {
  Submit(SpecOf(1));
  PlaceLate();
  const StreamId a = Attach("a", 1);

  EXPECT_EQ(Job().state(), v1::JOB_STATE_QUEUED);
  MakePlacements();

  EXPECT_EQ(Job().state(), v1::JOB_STATE_RUNNING) << Why();
  ASSERT_TRUE(Order(a).run.has_value());
}

TEST_F(LatePlacements, OneOfAMeshThatHasChangedIsMadeAnew) {
  Submit(SpecOf(1));
  PlaceLate();
  const StreamId a = Attach("a", 1);
  Break(a);
  Pass(5'000);

  MakePlacements();

  EXPECT_EQ(Job().state(), v1::JOB_STATE_QUEUED);
}

TEST_F(LatePlacements, AJobThatRecoversChoosesUntilItsOwnIsMade) {
  Submit(SpecOf(1));
  PlaceLate();
  const StreamId a = Attach("a", 1);
  MakePlacements();
  Report(a, JobId{Job().id()}, kRunning, 1);
  const StreamId b = Attach("b", 2);
  Break(a);
  Pass(5'000, {b});

  EXPECT_EQ(Job().phase(), "recovering") << Why();
  EXPECT_EQ(Job().attempt(), 1);
  MakePlacements();

  EXPECT_EQ(Job().attempt(), 2) << Why();
}

TEST_F(LatePlacements, TwoSubmissionsOfOneRequestAreOneJob) {
  PlaceLate();
  v1::SubmitJobRequest request = SubmissionOf(SpecOf(1));
  request.set_request_id("twice");
  std::vector<bool> repeated;
  for (int i = 0; i < 2; ++i) {
    brain().CheckSubmit(request, Now(),
                        [&](absl::StatusOr<Submission> checked) {
                          ASSERT_TRUE(checked.ok()) << checked.status();
                          repeated.push_back(checked->repeated);
                          if (checked->repeated) return;
                          brain().OnSubmitted(checked->job, Now());
                        });
  }

  MakePlacements();

  EXPECT_THAT(repeated, testing::ElementsAre(false, true));
}

TEST(PlacementMemo, IsKeptWhileSpeedsAreAboutTheSame) {
  PlacementMemo memo;
  int64_t made = 0;
  const auto get = [&](uint64_t key, std::vector<double> slowness) {
    const auto inputs = [&]() -> MakePlacement {
      ++made;
      return [] { return PlacementVerdict(); };
    };
    EXPECT_NE(memo.Get(key, std::move(slowness), nullptr, inputs), nullptr);
    return made;
  };
  EXPECT_EQ(get(1, {1, 2}), 1);
  EXPECT_EQ(get(1, {1, 2}), 1);
  EXPECT_EQ(get(1, {1.04, 1.96}), 1);
  EXPECT_EQ(get(1, {1, 2.2}), 2);
  EXPECT_EQ(get(1, {1}), 3);
  EXPECT_EQ(get(2, {1}), 4);
}

}  // namespace
}  // namespace paceline

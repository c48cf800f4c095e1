// What the brain tells people about a job that does not go as it should:
// skipped steps, workers that prepare for long, too many threads, a store that
// refuses writes, and processes that execute themselves anew.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/advice.h"
#include "coordinator/brain.h"
#include "coordinator/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const SavedWeights kSaved = {"/state/jobs/1/weights.safetensors", "abc", 10};

// --- samples that cannot be read ---------------------------------------------

TEST(UnreadableSamples, HaveOneEventAndAreInTheEndOfTheJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  const auto report = [&](int64_t unreadable) {
    Heartbeat heartbeat;
    heartbeat.run = RunReport{
        mesh.Job(job).record.fence(), RunPhase::kRunning, 3, 60, 0, {}, {}};
    heartbeat.run->unreadable_samples = unreadable;
    EXPECT_TRUE(mesh.Send(a, heartbeat).ok());
  };
  report(0);
  EXPECT_THAT(mesh.Events(job), Not(Contains("unreadable")));
  report(1);
  report(3);

  EXPECT_THAT(mesh.Story(job),
              Contains(AllOf(HasSubstr("unreadable: worker a cannot read"),
                             HasSubstr("'paceline job logs 1'")))
                  .Times(1));
  EXPECT_EQ(UnreadableText(mesh.Job(job).record),
            "a could not read 3 samples, which were left out");
}

// --- skipped steps ----------------------------------------------------------

TEST(SkippedSteps, HaveOneEventWhenTheyBeginAndOneWhenTheyEnd) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 4, false);

  mesh.ReportSteps(a, job, RunPhase::kRunning, 5, 6, true);
  mesh.ReportSteps(a, job, RunPhase::kRunning, 7, 7, true);
  mesh.ReportSteps(a, job, RunPhase::kRunning, 8, 9, false);

  EXPECT_THAT(
      mesh.Story(job),
      AllOf(Contains("skipping: steps are skipped from step 5 on: gradient not "
                     "finite")
                .Times(1),
            Contains(
                "applying: steps apply again from step 8 on, after 3 that were "
                "skipped")
                .Times(1)));
  EXPECT_EQ(mesh.Job(job).record.skipped_steps, 3);
}

TEST(SkippedSteps, CountOnceWhenTheirRecordsComeTwice) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 3, true);

  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 4, true);

  EXPECT_EQ(mesh.Job(job).record.skipped_steps, 4);
  EXPECT_THAT(mesh.Events(job), Contains("skipping").Times(1));
}

TEST(SkippedSteps, AreKnownToARestartedCoordinator) {
  Mesh before;
  const StreamId old = before.Attach("a", 1);
  const JobId job = before.Submit(SpecOf(1));
  before.ReportSteps(old, job, RunPhase::kRunning, 1, 3, true);

  Mesh after(before.stored(), 100000);
  const StreamId a = after.Attach("a", 1);
  after.ReportSteps(a, job, RunPhase::kRunning, 2, 5, true);
  after.ReportSteps(a, job, RunPhase::kRunning, 6, 6, false);

  EXPECT_EQ(after.Job(job).record.skipped_steps, 5);
  EXPECT_THAT(after.Events(job), ElementsAre("applying"));
}

TEST(SkippedSteps, AreInTheEndOfAJobThatSucceeded) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 2, true);
  mesh.ReportSteps(a, job, RunPhase::kDone, 3, 60, false);

  mesh.Saved(job, kSaved);

  EXPECT_EQ(mesh.State(job), JobState::kSucceeded);
  EXPECT_EQ(mesh.Why(job), "2 of 60 steps were skipped");
  EXPECT_THAT(mesh.Story(job).back(),
              AllOf(HasSubstr("succeeded: weights are in "),
                    HasSubstr("2 of 60 steps were skipped")));
}

TEST(SkippedSteps, AreInTheWhyOfAJobThatWasStopped) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 4, true);

  ASSERT_TRUE(mesh.brain().OnStop(job, mesh.Now()).ok());

  EXPECT_EQ(mesh.Why(job),
            "stopped on request at step 4 of 60; 4 of 4 steps were skipped");
}

TEST(SkippedSteps, FailAJobWhenThereWasNoOther) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));

  mesh.ReportSteps(a, job, RunPhase::kDone, 1, 60, true);

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(mesh.Why(job), AllOf(HasSubstr("nothing was learnt"),
                                   HasSubstr("60 of 60 steps were skipped")));
  EXPECT_EQ(mesh.weights().back().kind, Actions::Weights::Kind::kForget);
}

TEST(SkippedSteps, FailAJobWhenTheyAreMoreThanHalfAndSayWhatToChange) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  JobSpec spec = SpecOf(1);
  spec.precision = "bf16";
  const JobId job = mesh.Submit(spec);
  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 31, true);

  mesh.ReportSteps(a, job, RunPhase::kDone, 32, 60, false);

  EXPECT_EQ(mesh.State(job), JobState::kFailed);
  EXPECT_THAT(
      mesh.Why(job),
      AllOf(HasSubstr("31 of 60 steps were skipped"), HasSubstr("not finite"),
            HasSubstr("learning_rate"), HasSubstr("train.clip_norm"),
            HasSubstr("precision=fp32"), Not(HasSubstr("submit it again"))));
}

TEST(SkippedSteps, DoNotFailAJobWhenTheyAreHalf) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 30, true);

  mesh.ReportSteps(a, job, RunPhase::kDone, 31, 60, false);

  EXPECT_EQ(mesh.Job(job).phase, "saving");
}

// Without a step gate a stage skips updates of its own: how many batches had
// one says little.
TEST(SkippedSteps, AreTheUpdatesOfTheWorstStageWhereEveryMicroBatchIsOne) {
  for (const auto& [skipped, state] :
       {std::pair(47, JobState::kRunning), std::pair(49, JobState::kFailed)}) {
    Mesh mesh;
    const StreamId a = mesh.Attach("a", 1);
    JobSpec spec = SpecOf(1);
    spec.pipeline.schedule = "pipedream";
    const JobId job = mesh.Submit(spec);
    mesh.ReportSteps(a, job, RunPhase::kRunning, 1, 60, true);
    Heartbeat done;
    done.run = RunReport{.fence = mesh.Job(job).record.fence(),
                         .phase = RunPhase::kDone,
                         .step = 60,
                         .steps = 60};
    done.run->stage_times = {
        {.stage = 0, .updates = 96, .skipped_updates = skipped}};

    EXPECT_TRUE(mesh.Send(a, done).ok());

    EXPECT_EQ(mesh.State(job), state) << skipped;
    EXPECT_EQ(SkippedText(mesh.Job(job).record),
              absl::StrCat(skipped, " of 96 updates of a stage were skipped"));
  }
}

TEST(SkippedSteps, ThatComeAndGoWithoutEndFillNoDisk) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));

  for (int64_t step = 1; step <= 1000; ++step) {
    mesh.ReportSteps(a, job, RunPhase::kRunning, step, step, step % 2 == 0);
  }

  EXPECT_EQ(mesh.Job(job).record.skipped_steps, 500);
  EXPECT_THAT(mesh.Events(job), Contains("skipping").Times(100));
  EXPECT_THAT(mesh.Story(job), Contains(HasSubstr("only counted")).Times(1));
}

// --- workers that prepare ---------------------------------------------------

TEST(Preparing, ForLongIsSaidOfTheJobAndOfThoseThatWaitForIt) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId first = mesh.Submit(SpecOf(1));
  const JobId second = mesh.Submit(SpecOf(1));
  const JobId third = mesh.Submit(SpecOf(1));
  mesh.Report(a, first, RunPhase::kPreparing);

  mesh.Pass(29950, {a});
  EXPECT_EQ(mesh.Why(first), "");
  EXPECT_THAT(mesh.Why(second), Not(HasSubstr("preparing")));

  mesh.Pass(50, {a});
  EXPECT_EQ(mesh.Why(first),
            "worker a has been preparing for 30 s (reading data?)");
  EXPECT_THAT(mesh.Why(second),
              AllOf(HasSubstr("waits for job 1"),
                    HasSubstr("job 1: worker a has been preparing for 30 s")));
  EXPECT_THAT(mesh.Why(third), HasSubstr("preparing for 30 s"));
  mesh.Pass(59000, {a});
  EXPECT_THAT(mesh.Why(first), HasSubstr("preparing for 60 s"));
}

TEST(Preparing, IsOverWhenTheWorkerTrains) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kPreparing);
  mesh.Pass(40000, {a});
  ASSERT_NE(mesh.Why(job), "");

  mesh.Report(a, job, RunPhase::kRunning);
  mesh.Pass(50, {a});

  EXPECT_EQ(mesh.Why(job), "");
}

TEST(Preparing, BeginsAnewWithANewProcess) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kPreparing);
  mesh.Pass(20000, {a});

  const StreamId again = mesh.Attach("a", 2);
  mesh.Report(again, job, RunPhase::kPreparing);
  mesh.Pass(29000, {again});

  EXPECT_EQ(mesh.Why(job), "");
}

TEST(Preparing, NamesTheLongestFirst) {
  JobRecord job;
  job.workers = {{WorkerId{1}, "a", RunPhase::kPreparing, {}},
                 {WorkerId{2}, "b", RunPhase::kPreparing, {}},
                 {WorkerId{3}, "c", RunPhase::kPreparing, {}}};
  const auto at = [](int s) { return Instant{absl::Seconds(s)}; };

  EXPECT_EQ(
      PreparingText(
          job,
          {{WorkerId{1}, at(50)}, {WorkerId{2}, at(0)}, {WorkerId{3}, at(40)}},
          absl::Seconds(10), at(65)),
      "worker b has been preparing for 60 s (reading data?); worker c "
      "has been preparing for 20 s (reading data?); worker a has been "
      "preparing for 10 s (reading data?)");
}

// --- threads ----------------------------------------------------------------

JobSpec Threads(int threads, int stages = 1) {
  JobSpec spec = SpecOf(stages);
  spec.threads = threads;
  return spec;
}

TEST(ThreadsOfAJob, AboveTheCoresAreWarnedOf) {
  Mesh mesh;
  mesh.Attach("a", 1);  // 4 cores

  const JobId job = mesh.Submit(Threads(5));

  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  EXPECT_THAT(mesh.notes(),
              Contains(HasSubstr("5 compute threads share the 4 cores of "
                                 "worker a")));
  EXPECT_THAT(mesh.Story(job), Contains(HasSubstr("warning: 5 compute")));
}

TEST(ThreadsOfAJob, UpToTheCoresAreNoMatter) {
  Mesh mesh;
  mesh.Attach("a", 1);

  const JobId job = mesh.Submit(Threads(4));

  EXPECT_THAT(mesh.Events(job), Not(Contains("warning")));
}

TEST(ThreadsOfAJob, AboveFourTimesTheCoresAreRefusedWithBothNumbers) {
  Mesh mesh;
  mesh.Attach("a", 1);

  mesh.Submit(Threads(17));

  EXPECT_EQ(mesh.submit_error().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(mesh.submit_error().message()),
      AllOf(HasSubstr("threads is 17"), HasSubstr("worker a has 4 cores")));
  EXPECT_TRUE(mesh.brain().ViewJobs(0).empty());
}

TEST(ThreadsOfAJob, OfFourTimesTheCoresAreTaken) {
  Mesh mesh;
  mesh.Attach("a", 1);

  EXPECT_EQ(mesh.State(mesh.Submit(Threads(16))), JobState::kRunning);
}

TEST(ThreadsOfAJob, AreNotGivenToAWorkerWithTooFewCores) {
  Mesh mesh;
  Registration small = WorkerNamed("a", 1);
  small.cores = 1;
  mesh.Attach(small);
  mesh.Attach("b", 2);

  const JobId job = mesh.Submit(Threads(8, 2));

  ASSERT_EQ(mesh.Job(job).record.workers.size(), 1u);
  EXPECT_EQ(mesh.Job(job).record.workers[0].name, "b");
  EXPECT_THAT(mesh.notes(),
              Contains(HasSubstr("worker a gets no stage: it has 1 core")));
}

TEST(ThreadsOfAJob, AreNotJudgedByAWorkerThatDoesNotSayItsCores) {
  Mesh mesh;
  Registration quiet = WorkerNamed("a", 1);
  quiet.cores = 0;
  mesh.Attach(quiet);

  const JobId job = mesh.Submit(Threads(64));

  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  EXPECT_THAT(mesh.Events(job), Not(Contains("warning")));
}

// --- the store --------------------------------------------------------------

TEST(FullDisk, IsSaidOfEveryJobThatHasNotEndedAndTakenBack) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId running = mesh.Submit(SpecOf(1));
  const JobId queued = mesh.Submit(SpecOf(1));

  mesh.brain().OnStoreFailed(absl::ResourceExhaustedError("disk is full"),
                             mesh.Now());
  EXPECT_EQ(mesh.Why(running),
            "the coordinator cannot store its state: disk is full");
  EXPECT_THAT(mesh.Why(queued),
              AllOf(HasSubstr("waits for job 1"), HasSubstr("disk is full")));
  ASSERT_EQ(mesh.brain().PendingEvents(running).size(), 1u);
  EXPECT_EQ(mesh.brain().PendingEvents(running)[0].kind, "store");

  mesh.brain().OnStoreWorks(mesh.Now());
  mesh.Pass(50, {a});
  EXPECT_EQ(mesh.Why(running), "");
  EXPECT_THAT(mesh.Why(queued), Not(HasSubstr("disk is full")));
  EXPECT_THAT(mesh.Events(running), Contains("store").Times(2));
}

TEST(FullDisk, IsOneEventHoweverOftenItIsTriedAgain) {
  Mesh mesh;
  mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  const absl::Status full = absl::ResourceExhaustedError("disk is full");

  for (int i = 0; i < 20; ++i) mesh.brain().OnStoreFailed(full, mesh.Now());

  EXPECT_EQ(mesh.brain().PendingEvents(job).size(), 1u);
}

// The worker does not send them again on the same stream: later
// acknowledgements cover them.
TEST(FullDisk, KeepsRecordsForTheNextTryAndTakesAcknowledgementsBack) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.sequence = 7;
  heartbeat.run =
      RunReport{Fence{job, 1, 1}, RunPhase::kRunning, 1, 60, 0, {}, {}};
  heartbeat.steps = {{1, 2.0, 64, 0, 0, false, 1000}};
  heartbeat.logs = {{0, 1, "info", "", "hello"}};
  ASSERT_TRUE(mesh.brain().OnHeartbeat(a, heartbeat, mesh.Now()).ok());

  mesh.brain().OnStoreFailed(absl::InternalError("I/O error"), mesh.Now());
  const Actions actions = mesh.brain().TakeActions();

  EXPECT_THAT(actions.acks, IsEmpty());
  EXPECT_EQ(actions.writes.records.at(job).steps.size(), 1u);
  EXPECT_EQ(actions.writes.records.at(job).logs.size(), 1u);
}

TEST(FullDisk, KeepsABoundedNumberOfRecords) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.run =
      RunReport{Fence{job, 1, 1}, RunPhase::kRunning, 1, 60, 0, {}, {}};
  for (int64_t step = 1; step <= 100'500; ++step) {
    heartbeat.steps.push_back({step, 2.0, 64, 0, 0, false, 1000});
  }
  ASSERT_TRUE(mesh.brain().OnHeartbeat(a, heartbeat, mesh.Now()).ok());

  mesh.brain().OnStoreFailed(absl::InternalError("I/O error"), mesh.Now());
  const Actions actions = mesh.brain().TakeActions();

  const auto& steps = actions.writes.records.at(job).steps;
  EXPECT_EQ(steps.size(), 100'000u);
  EXPECT_EQ(steps.back().step, 100'500);
}

// --- processes that execute themselves anew ---------------------------------

TEST(AnnouncedRestart, IsNoLossWithinTheLease) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  mesh.Report(a, job, RunPhase::kPreparing);
  Heartbeat goodbye;
  goodbye.sequence = 9;
  goodbye.restarting = true;
  ASSERT_TRUE(mesh.Send(a, goodbye).ok());
  mesh.Break(a);

  mesh.Pass(2950);
  const StreamId again = mesh.Attach("a", 2);

  EXPECT_THAT(mesh.Events(job), Not(Contains("lost")));
  EXPECT_EQ(mesh.Order(again).run->fence.job, job);
}

TEST(AnnouncedRestart, ThatNeverComesBackIsALoss) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat goodbye;
  goodbye.restarting = true;
  ASSERT_TRUE(mesh.Send(a, goodbye).ok());
  mesh.Break(a);

  mesh.Pass(3000);

  EXPECT_THAT(mesh.Story(job),
              Contains(HasSubstr("lost: worker a is lost: it was to execute "
                                 "itself anew")));
}

TEST(LogLines, CarryTheProcessTheyAreOf) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 77);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.run =
      RunReport{Fence{job, 1, 1}, RunPhase::kRunning, 1, 60, 0, {}, {}};
  heartbeat.logs = {{0, 1, "info", "forged", "hello", 4, {}}};
  ASSERT_TRUE(mesh.brain().OnHeartbeat(a, heartbeat, mesh.Now()).ok());

  const Actions actions = mesh.brain().TakeActions();

  const LogRecord& line = actions.writes.records.at(job).logs.at(0);
  EXPECT_EQ(line.source, "a");
  EXPECT_EQ(line.incarnation.value, 77u);
  EXPECT_EQ(line.origin_sequence, 4);
}

}  // namespace
}  // namespace paceline

// The brain tells people about a job that does not go as it should:
// skipped steps, workers that prepare for long, too many threads, a store that
// refuses writes, and processes that execute themselves anew.
#include <cerrno>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/brain.h"
#include "coordinator/jobs/advice.h"
#include "coordinator/jobs/job_text.h"
#include "core/job/job_keys.h"
#include "core/os/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"
#include "tests/support/well_said.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// --- samples that cannot be read ---------------------------------------------

// A heartbeat of `worker` that could not read these of 60 training samples.
void SayUnreadable(Mesh& mesh, StreamId worker,
                   const std::vector<int>& numbers) {
  v1::Heartbeat heartbeat = mesh.Beat(kRunning, 3);
  v1::UnreadableSamples& said =
      *heartbeat.mutable_run()->mutable_unreadable()->mutable_train();
  said.set_of(60);
  said.mutable_numbers()->Assign(numbers.begin(), numbers.end());
  EXPECT_TRUE(mesh.Send(worker, heartbeat).ok());
}

TEST(UnreadableSamples, HaveOneEventAndAreInTheEndOfTheJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Submit(SpecOf(1));
  mesh.Report(a, {}, kRunning, 3);
  EXPECT_THAT(mesh.Events(), Not(Contains("unreadable")));
  SayUnreadable(mesh, a, {7});
  SayUnreadable(mesh, a, {3, 7, 9});

  EXPECT_THAT(mesh.Story(),
              Tells("unreadable: worker a cannot read", "'paceline job logs 1'")
                  .Times(1));
  EXPECT_EQ(UnreadableText(mesh.Record()),
            "workers could not read 3 samples, which were left out");
}

TEST(UnreadableSamples, AreThoseOfTheJobWhoeverMetThem) {
  for (const int workers : {1, 3}) {
    Mesh mesh;
    std::vector<StreamId> readers;
    for (int i = 0; i < workers; ++i) {
      readers.push_back(mesh.Attach(absl::StrCat("w", i), 1 + i));
    }
    mesh.Submit(SpecOf(workers));
    const auto reader = [&](int i) { return readers[i % workers]; };
    SayUnreadable(mesh, reader(0), {5, 8, 11});
    SayUnreadable(mesh, reader(1), {5, 20});
    SayUnreadable(mesh, reader(2), {11, 30, 31});
    ASSERT_EQ(mesh.State(), JobState::kRunning) << "6 of 60 are a tenth";
    EXPECT_EQ(UnreadableText(mesh.Record()),
              "workers could not read 6 samples, which were left out");

    Mesh after(mesh.stored(), 100000);  // a coordinator that starts anew
    const StreamId again = after.Attach("w0", 1);
    SayUnreadable(after, again, {5, 59});

    EXPECT_EQ(after.State(), JobState::kFailed) << workers;
    EXPECT_THAT(after.Why(),
                Says("at least 7 of 60 training samples cannot be read",
                     "may do without 6", "'paceline job logs 1'"));
    EXPECT_THAT(after.Why(), Not(HasSubstr("submit it again")));
  }
}

// --- notes of workers -------------------------------------------------------

using NotesOfWorkers = MeshWithAJob;

TEST_F(NotesOfWorkers, AreEventsOfTheJobOnceEachAndStayWithIt) {
  v1::Heartbeat heartbeat = Beat(kRunning, 3);
  heartbeat.mutable_run()->add_notes("3 files are not used");
  ASSERT_TRUE(Send(a_, heartbeat).ok());
  ASSERT_TRUE(Send(a_, heartbeat).ok());
  for (int i = 0; i < 100; ++i) {  // a hostile one
    heartbeat.mutable_run()->add_notes(absl::StrCat(i));
  }
  ASSERT_TRUE(Send(a_, heartbeat).ok());

  EXPECT_THAT(Story(), Tells("warning: 3 files are not used").Times(1));
  EXPECT_EQ(Job().notes(0), "3 files are not used");
  EXPECT_EQ(Job().notes_size(), kMaxNotes);
}

// A worker knows what labels stand for when it has opened the data.
TEST_F(NotesOfWorkers, NamesOfClassesGoIntoTheFileOfTheWeights) {
  v1::Heartbeat heartbeat = Beat(kRunning, 3);
  heartbeat.mutable_run()->mutable_names()->set_classes("cat\ndog");
  ASSERT_TRUE(Send(a_, heartbeat).ok());
  const size_t opened = weights().size();
  ASSERT_TRUE(Send(a_, heartbeat).ok());

  ASSERT_EQ(weights().size(), opened) << "once";
  EXPECT_EQ(weights().back().kind, Actions::Weights::Kind::kOpen);
  EXPECT_THAT(weights().back().layout.header,
              HasSubstr("\"classes\":\"cat\\u000adog\""));
  EXPECT_TRUE(weights().front().layout.tensors.empty())
      << "an upload waits for the names";
}

// --- skipped steps ----------------------------------------------------------

using SkippedSteps = MeshWithAJob;

TEST_F(SkippedSteps, HaveOneEventWhenTheyBeginAndOneWhenTheyEnd) {
  ReportSteps(kRunning, 1, 4, false);

  ReportSteps(kRunning, 5, 6, true);
  ReportSteps(kRunning, 6, 7,
              true);  // one of them comes again
  ReportSteps(kRunning, 8, 9, false);

  EXPECT_THAT(Story(), Tells("skipping: ", "from step 5 on").Times(1));
  EXPECT_THAT(Story(), Tells("applying: ", "step 8 on, after 3").Times(1));
  EXPECT_EQ(Record().job.skipped_steps(), 3);
}

TEST_F(SkippedSteps, AreKnownToARestartedCoordinator) {
  ReportSteps(kRunning, 1, 3, true);

  Mesh after(stored(), 100000);
  const StreamId a = after.Attach("a", 1);
  after.ReportSteps(a, kRunning, 2, 5, true);
  after.ReportSteps(a, kRunning, 6, 6, false);

  EXPECT_EQ(after.Record().job.skipped_steps(), 5);
  EXPECT_THAT(after.Events(), ElementsAre("adopted", "running", "applying"));
}

TEST_F(SkippedSteps, AreInTheEndOfAJobThatSucceeded) {
  ReportSteps(kRunning, 1, 15, true);
  ReportSteps(kRunning, 16, 16, false);
  ReportSteps(kRunning, 17, 31, true);
  ReportSteps(kDone, 32, 60, false);
  ASSERT_EQ(Job().phase(), "saving") << "they are not more than half";

  Saved(kSaved);

  EXPECT_EQ(State(), JobState::kSucceeded);
  EXPECT_EQ(Why(), "30 of 60 steps were skipped");
  EXPECT_THAT(Story().back(), Says("succeeded: weights are in ",
                                   "30 of 60 steps were skipped"));
}

TEST_F(SkippedSteps, AreInTheWhyOfAJobThatWasStopped) {
  ReportSteps(kRunning, 1, 4, true);

  ASSERT_TRUE(Stop().ok());

  EXPECT_EQ(Why(),
            "stopped on request at step 4 of 60; 4 of 4 steps were skipped");
}

TEST_F(SkippedSteps, FailAJobWhenThereWasNoOther) {
  ReportSteps(kDone, 1, 60, true);

  EXPECT_EQ(State(), JobState::kFailed);
  EXPECT_THAT(Why(), Says("nothing was learnt", "60 of 60 steps were skipped"));
  EXPECT_EQ(weights().back().kind, Actions::Weights::Kind::kForget);
}

TEST(SkippedStepsOfAMesh, FailAJobWhenTheyAreMoreThanHalfAndSayWhatToChange) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  JobSpec spec = SpecOf(1);
  spec.precision = "bf16";
  mesh.Submit(spec);
  mesh.ReportSteps(a, kRunning, 1, 15, true);
  mesh.ReportSteps(a, kRunning, 16, 16, false);
  mesh.ReportSteps(a, kRunning, 17, 32, true);

  mesh.ReportSteps(a, kDone, 33, 60, false);

  EXPECT_EQ(mesh.State(), JobState::kFailed);
  EXPECT_THAT(
      mesh.Why(),
      AllOf(HasSubstr("31 of 60 steps were skipped"), HasSubstr("not finite"),
            HasSubstr("learning_rate"), HasSubstr("train.clip_norm"),
            HasSubstr("precision=fp32"), Not(HasSubstr("submit it again"))));
}

TEST_F(SkippedSteps, FailAJobThatSkipsTwentyInARow) {
  ReportSteps(kRunning, 1, 3, false);
  ReportSteps(kRunning, 4, 22, true);
  ReportSteps(kRunning, 23, 23, false);
  ReportSteps(kRunning, 24, 42, true);
  ASSERT_EQ(State(), JobState::kRunning) << "19 in a row";

  ReportSteps(kRunning, 43, 43, true);

  EXPECT_EQ(State(), JobState::kFailed);
  EXPECT_THAT(
      Why(), Says("the training has diverged", "20 steps in a row were skipped",
                  "39 of 43 steps were skipped", "learning_rate"));
}

TEST_F(SkippedSteps, InARowCountOverARestartOfTheCoordinator) {
  ReportSteps(kRunning, 1, 4, false);
  ReportSteps(kRunning, 5, 15, true);

  Mesh after(stored(), 100000);
  const StreamId a = after.Attach("a", 1);
  after.ReportSteps(a, kRunning, 15, 23, true);
  ASSERT_EQ(after.State(), JobState::kRunning);
  after.ReportSteps(a, kRunning, 24, 24, true);

  EXPECT_EQ(after.State(), JobState::kFailed);
  EXPECT_EQ(after.Record().job.skipped_steps(), 20);
}

TEST(SkipRuns, JoinInAnyOrderAndAreTakenBackFromAStepOn) {
  v1::Job job;
  for (const int64_t step : {3, 5, 4, 9, 8, 20, 8}) AddSkip(step, job);

  ASSERT_EQ(job.skip_runs_size(), 3);
  EXPECT_EQ(job.skip_runs(0).first(), 3);
  EXPECT_EQ(job.skip_runs(0).steps(), 3);
  EXPECT_EQ(LongestSkipRun(job), 3);
  EXPECT_EQ(SkipRunAt(job, 9)->first(), 8);
  EXPECT_EQ(SkipRunAt(job, 10), nullptr);

  EXPECT_EQ(TakeSkipsBack(8, job), 2);  // 9 and 20
  EXPECT_EQ(job.skip_runs_size(), 2);
  EXPECT_EQ(job.skipping_since(), 8);
  EXPECT_EQ(TakeSkipsBack(6, job), 1);
  EXPECT_EQ(job.skipping_since(), 0);
  for (int64_t step = 100; step < 400; step += 2) AddSkip(step, job);
  EXPECT_EQ(job.skip_runs_size(), 64);
}

TEST_F(SkippedSteps, FailAJobWhoseLastEvaluationIsNoNumber) {
  ReportSteps(kRunning, 1, 59, false);
  v1::Heartbeat done = Beat(kDone, 60);
  *done.add_steps() = StepOf(60, 1.0);
  *done.add_evaluations() = PartOf(60, std::nan(""), 0.1, 100);

  EXPECT_TRUE(Send(a_, done).ok());

  EXPECT_EQ(State(), JobState::kFailed);
  EXPECT_THAT(Why(), Says("diverged",
                          "after the last step, 60, the loss over "
                          "the test set is not finite"));
}

// Without a step gate a stage skips updates of its own: how many batches had
// one says little.
TEST(SkippedUpdates, OfTheWorstStageCountWhereEveryMicroBatchIsOne) {
  for (const auto& [skipped, state] :
       {std::pair(47, JobState::kRunning), std::pair(49, JobState::kFailed)}) {
    Mesh mesh;
    const StreamId a = mesh.Attach("a", 1);
    JobSpec spec = SpecOf(1);
    spec.pipeline.schedule = "pipedream";
    mesh.Submit(spec);
    mesh.ReportSteps(a, kRunning, 1, 60, true);
    v1::Heartbeat done = mesh.Beat(kDone, 60);
    v1::StageVersions& versions =
        *done.mutable_run()->add_stage_times()->mutable_versions();
    versions.set_updates(96);
    versions.set_skipped_updates(skipped);

    EXPECT_TRUE(mesh.Send(a, done).ok());

    EXPECT_EQ(mesh.State(), state) << skipped;
    EXPECT_EQ(SkippedText(mesh.Record()),
              absl::StrCat(skipped, " of 96 updates of a stage were skipped"));
  }
}

TEST(SkippedStepsOfAMesh, ThatComeAndGoWithoutEndFillNoDisk) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  JobSpec spec = SpecOf(1);
  spec.train.steps = 1000;
  mesh.Submit(spec);
  for (int64_t step = 1; step <= 300; ++step) {
    mesh.ReportSteps(a, kRunning, step, step, step % 2 == 0);
  }

  EXPECT_EQ(mesh.Record().job.skipped_steps(), 150);
  EXPECT_THAT(mesh.Events(), Contains("skipping").Times(100));
  EXPECT_THAT(mesh.Story(), Tells("only counted").Times(1));
}

TEST(Advice, OfSkippedStepsSpeaksOfWhatCanHaveSkippedThem) {
  JobRecord job;
  job.job.set_step(30);
  job.job.set_skipped_steps(30);
  EXPECT_THAT(WhyMostlySkipped(job), HasSubstr("no gradient was finite"));
  EXPECT_THAT(AdviceAfterSkips(job.spec), Not(HasSubstr("aggregation")));

  job.spec.aggregation.mode = "rolling";
  EXPECT_THAT(WhyMostlySkipped(job),
              Says("no round had enough parts that could be used",
                   "what the rule made of them was not finite"));
  EXPECT_THAT(AdviceAfterSkips(job.spec),
              AllOf(HasSubstr("another aggregation.rule"),
                    HasSubstr("lower train.learning_rate.base"),
                    Not(HasSubstr("faults"))));

  job.spec.faults.emplace_back();
  job.job.set_skipped_steps(20);
  EXPECT_THAT(WhyMostlySkipped(job),
              HasSubstr("most rounds did not have enough parts"));
  EXPECT_THAT(AdviceAfterSkips(job.spec),
              HasSubstr("leave its `faults` out, or take another "));
}

TEST(Advice, NamesNoKeyThatTheJobDoesNotTakeAndSaysNothingTwice) {
  JobSpec pipeline, group, inference, pipedream;
  group.aggregation.mode = "rolling";
  inference.kind = "infer";
  pipedream.pipeline.schedule = "pipedream";
  const absl::Status full = FileError("write", "/disk/w", ENOSPC);
  for (const JobSpec& spec : {pipeline, group, inference, pipedream}) {
    std::vector<std::string> texts;
    if (!IsInference(spec)) texts.push_back(AdviceAfterSkips(spec));
    for (int code = 1; code <= 16; ++code) {
      const absl::Status error(static_cast<absl::StatusCode>(code), "why");
      for (const absl::Status& each : {error, full}) {
        texts.push_back(
            Sentence({std::string(each.message()), AdviceAfter(each, spec)}));
        texts.push_back(Sentence(
            {std::string(each.message()), AdviceAfterSaving(each, spec)}));
      }
    }
    for (const std::string& text : texts) {
      EXPECT_EQ(IllSaid(text), "");
      EXPECT_EQ(text.find("make room"), text.rfind("make room")) << text;
      for (const absl::string_view word :
           absl::StrSplit(text, absl::ByAnyChar(" ,:;'"))) {
        const std::string path(word);
        if (FindJobKey(path) == nullptr) continue;
        EXPECT_EQ(RemediesFor(spec, {path}), path) << spec.kind << ": " << text;
      }
    }
  }
  EXPECT_THAT(AdviceAfter(absl::ResourceExhaustedError("memory"), inference),
              HasSubstr("a smaller infer.micro_batch or more pipeline.stages"));
  EXPECT_THAT(AdviceAfter(absl::ResourceExhaustedError("memory"), group),
              Says("a smaller train.micro_batch", "more aggregation.shards"));
}

TEST(Sentence, PutsPartsTogetherWhateverTheyEndWith) {
  EXPECT_EQ(Sentence({"the times may differ.", "", "one; two", "and more..."}),
            "the times may differ; one; two; and more...");
}

// --- workers that prepare ---------------------------------------------------

using Preparing = MeshWithAJob;

TEST_F(Preparing, ForLongIsSaidOfTheJobAndOfThoseThatWaitForIt) {
  const JobId second = Submit(SpecOf(1));
  const JobId third = Submit(SpecOf(1));
  Report(kPreparing);

  Pass(29950, {a_});
  EXPECT_EQ(Why(), "");
  EXPECT_THAT(Why(second), Not(HasSubstr("preparing")));

  Pass(50, {a_});
  EXPECT_EQ(Why(), "worker a has been preparing for 30 s (reading data?)");
  EXPECT_THAT(Why(second), Says("waits for job 1",
                                "job 1: worker a has been preparing for 30 s"));
  EXPECT_THAT(Why(third), HasSubstr("preparing for 30 s"));
  Pass(59000, {a_});
  EXPECT_THAT(Why(), HasSubstr("preparing for 60 s"));

  Report(kRunning);
  Pass(50, {a_});
  EXPECT_EQ(Why(), "");
}

TEST_F(Preparing, BeginsAnewWithANewProcess) {
  Report(kPreparing);
  Pass(20000, {a_});

  const StreamId again = Attach("a", 2);
  ASSERT_TRUE(Send(again, v1::Heartbeat()).ok());
  Report(again, job_, kPreparing);
  Pass(29000, {again});

  EXPECT_EQ(Why(), "recovering: attempt 2 begins");
}

TEST(PreparingText, NamesTheLongestFirst) {
  JobRecord job;
  for (const char* const name : {"a", "b", "c"}) {
    v1::JobWorker& worker = *job.job.add_workers();
    worker.set_id(job.job.workers_size());
    worker.set_name(name);
  }
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

// A worker that does not say how many cores it has is not judged.
TEST(ThreadsOfAJob, AreWarnedOfAboveTheCoresAndTakenUpToFourTimesAsMany) {
  const struct {
    int cores, threads;
    bool warned;
  } kCases[] = {{4, 4, false}, {4, 5, true}, {4, 16, true}, {0, 64, false}};
  for (const auto& one : kCases) {
    Mesh mesh;
    mesh.Attach("a", 1, [&](auto& worker) { worker.set_cores(one.cores); });

    mesh.Submit(Threads(one.threads));

    EXPECT_EQ(mesh.State(), JobState::kRunning) << one.threads;
    EXPECT_THAT(mesh.Events(), Contains("warning").Times(one.warned ? 1 : 0));
    EXPECT_THAT(
        mesh.notes(),
        Tells(absl::StrCat(one.threads, " compute threads a worker")).Times(1));
    EXPECT_THAT(mesh.notes(),
                Tells("they take turns", "--set threads=4 gives each a core")
                    .Times(one.warned ? 1 : 0));
  }
}

// A machine of so many cores a worker; "a" and "b" may share one.
struct ThreadNoteCase {
  int cores_a, cores_b;
  const char* host_b;
  const char* says;
};

TEST(ThreadsOfAJob, AreNotedOnceWithTheCoresAndWhatMoreWouldGive) {
  const ThreadNoteCase kCases[] = {
      {4, 4, "b:1",
       "1 compute thread a worker; machines have 4 cores: --set threads=4 "
       "gives at most 4 times the speed"},
      {8, 2, "b:1", "machines have 2 to 8 cores: --set threads=2 gives"},
      {2, 2, "a:2",
       "the machine has 2 cores, which up to 2 workers share: more threads "
       "would only take turns"},
      {1, 1, "b:1", "machines have 1 core: more threads"},
      {0, 0, "b:1", "1 compute thread a worker; --set threads=N changes that"},
  };
  for (const ThreadNoteCase& one : kCases) {
    Mesh mesh;
    mesh.Attach("a", 1, [&](auto& worker) {
      worker.set_cores(one.cores_a);
      worker.set_address("a:1");
    });
    mesh.Attach("b", 2, [&](auto& worker) {
      worker.set_cores(one.cores_b);
      worker.set_address(one.host_b);
    });

    mesh.Submit(Threads(1, 2));

    EXPECT_THAT(mesh.notes(), Tells(one.says).Times(1));
    EXPECT_THAT(mesh.notes(), Tells("compute thread").Times(1));
  }
}

TEST(ThreadsOfAJob, AboveFourTimesTheCoresAreRefusedWithBothNumbers) {
  Mesh mesh;
  mesh.Attach("a", 1);  // 4 cores

  mesh.Submit(Threads(17));

  EXPECT_TRUE(absl::IsFailedPrecondition(mesh.submit_error()));
  EXPECT_THAT(mesh.submit_error().message(),
              Says("threads is 17", "worker a has 4 cores"));
  EXPECT_TRUE(mesh.brain().ShownJobs(10).empty());
}

TEST(ThreadsOfAJob, AreNotGivenToAWorkerWithTooFewCores) {
  Mesh mesh;
  mesh.Attach("a", 1, [](auto& worker) { worker.set_cores(1); });
  mesh.Attach("b", 2);

  mesh.Submit(Threads(8, 2));

  ASSERT_EQ(mesh.Job().workers_size(), 1);
  EXPECT_EQ(mesh.Job().workers(0).name(), "b");
  EXPECT_THAT(mesh.notes(), Tells("worker a gets no stage: it has 1 core"));
}

// --- the store --------------------------------------------------------------

class FullDisk : public MeshWithAJob {
 protected:
  void FailStore() {
    brain().OnStoreFailed(absl::ResourceExhaustedError("disk is full"), Now());
  }
  // A heartbeat that the store cannot take.
  Actions ActionsAfterFailure(const v1::Heartbeat& heartbeat) {
    EXPECT_TRUE(brain().OnReport(a_, ReportOf(heartbeat), Now()).ok());
    FailStore();
    return brain().TakeActions();
  }
};

TEST_F(FullDisk, IsSaidOfEveryJobThatHasNotEndedAndTakenBack) {
  const JobId queued = Submit(SpecOf(1));

  for (int i = 0; i < 20; ++i) FailStore();  // is one event
  EXPECT_EQ(Why(), "the coordinator cannot store its state: disk is full");
  EXPECT_THAT(Why(queued), Says("waits for job 1", "disk is full"));
  ASSERT_EQ(brain().PendingEvents(job_).size(), 1u);
  EXPECT_EQ(brain().PendingEvents(job_)[0].kind(), "store");

  brain().OnStoreWorks(Now());
  Pass(50, {a_});
  EXPECT_EQ(Why(), "");
  EXPECT_THAT(Why(queued), Not(HasSubstr("disk is full")));
  EXPECT_THAT(Events(), Contains("store").Times(2));
}

// The worker does not send them again on the same stream: later
// acknowledgements cover them.
TEST_F(FullDisk, KeepsRecordsForTheNextTryAndTakesAcknowledgementsBack) {
  v1::Heartbeat heartbeat = Beat(kRunning, 1);
  *heartbeat.add_steps() = StepOf(1, 2.0, 1000);
  *heartbeat.add_logs() = LineOf("hello");

  const Actions actions = ActionsAfterFailure(heartbeat);

  EXPECT_THAT(actions.acks, IsEmpty());
  EXPECT_EQ(actions.writes.records.at(job_).steps.size(), 1u);
  EXPECT_EQ(actions.writes.records.at(job_).logs.size(), 1u);
}

TEST_F(FullDisk, KeepsABoundedNumberOfRecords) {
  v1::Heartbeat heartbeat = Beat(kRunning, 1);
  for (int i = 1; i <= 100'500; ++i) {
    *heartbeat.add_logs() = LineOf(absl::StrCat(i));
  }

  const Actions actions = ActionsAfterFailure(heartbeat);

  const auto& logs = actions.writes.records.at(job_).logs;
  EXPECT_EQ(logs.size(), 100'000u);
  EXPECT_EQ(logs.back().second.text(), "100500");
}

// --- processes that execute themselves anew ---------------------------------

using AnnouncedRestart = MeshWithAJob;

TEST_F(AnnouncedRestart, IsNoLossWithinTheLease) {
  Report(kPreparing);
  Leave(a_, /*restarting=*/true);
  Break(a_);

  Pass(2950);
  const StreamId again = Attach("a", 2);
  ASSERT_TRUE(Send(again, v1::Heartbeat()).ok());

  EXPECT_THAT(Events(), Not(Contains("lost")));
  EXPECT_EQ(Order(again).run->fence.job, job_);
}

}  // namespace
}  // namespace paceline

// The brain tells people about a job that does not go as it should: notes of
// workers, advice, a store that refuses writes.
// tests/golden/coordinator/trouble.txt has what becomes of such jobs.
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/brain.h"
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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

}  // namespace
}  // namespace paceline

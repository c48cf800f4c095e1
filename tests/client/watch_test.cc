// Progress of a job, and the mesh as it changes.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/commands/job/job.h"
#include "client/commands/mesh/mesh.h"
#include "client/values/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"
#include "tests/support/fake_clock.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

v1::Job In(v1::JobState state, const char* phase, const char* why, int64_t step,
           int64_t steps) {
  v1::Job job = RunningJob(step, steps);
  job.set_state(state);
  job.set_phase(phase);
  job.set_why(why);
  return job;
}

TEST(ProgressLine, SaysWhatIsKnownOfAJob) {
  v1::Job endless = RunningJob(3, 0);
  endless.set_samples_per_second(0);
  const auto running = v1::JOB_STATE_RUNNING;
  const struct {
    v1::Job job;
    std::optional<v1::StepRecord> newest;
    bool bar;
    const char* line;
  } kCases[] = {
      {RunningJob(10, 40), Loss({10, 0.43215}), false,
       "job 7  step 10/40  640 samples/s  loss 0.4321  3 s left"},
      {RunningJob(10, 40), Loss({10, NAN, true}), false,
       "job 7  step 10/40  640 samples/s  skipped  3 s left"},
      {RunningJob(20, 40), std::nullopt, true,
       "job 7  [############............]  step 20/40  640 samples/s  2 s "
       "left"},
      {endless, std::nullopt, true, "job 7  step 3"},
      {In(v1::JOB_STATE_QUEUED, "", "waits for job 6", 0, 0), std::nullopt,
       false, "job 7  queued  waits for job 6"},
      {In(running, "preparing", "", 0, 40), std::nullopt, false,
       "job 7  preparing"},
      {In(running, "saving", "", 40, 40), Loss({40, 0.5}), false,
       "job 7  step 40/40  640 samples/s  loss 0.5000  saving"},
      {In(running, "paused", "no worker is fit", 20, 40), std::nullopt, false,
       "job 7  step 20/40  640 samples/s  paused: no worker is fit"},
      {In(running, "moving", "moving: w1 drains", 20, 40), std::nullopt, false,
       "job 7  step 20/40  640 samples/s  moving: w1 drains"},
  };
  for (const auto& [job, newest, bar, line] : kCases) {
    EXPECT_EQ(ProgressLine(job, newest, {.bar = bar}), line);
  }
}

TEST(ProgressLine, ShortensTheBarSoThatTheTimeLeftIsSeen) {
  v1::Job job = RunningJob(120, 938);
  job.set_samples_per_second(12.5);
  const v1::StepRecord newest = Loss({120, 0.43215});
  ProgressStyle style = {.bar = true, .columns = 79};

  const std::string line = ProgressLine(job, newest, style);
  EXPECT_LE(line.size(), 79u);
  EXPECT_NE(line.find("[#"), std::string::npos) << line;
  EXPECT_NE(line.find(" left"), std::string::npos) << line;

  style.columns = 60;
  EXPECT_EQ(ProgressLine(job, newest, style).find('['), std::string::npos);
}

TEST(TimeLeft, IsUnknownWithoutSpeedOrEnd) {
  EXPECT_FALSE(TimeLeft(RunningJob(0, 40)).has_value());
  EXPECT_FALSE(TimeLeft(RunningJob(5, 0)).has_value());
  v1::Job job = RunningJob(5, 40);
  job.set_samples_per_second(NAN);
  EXPECT_FALSE(TimeLeft(job).has_value());
}

TEST(PlainProgress, PrintsAtEveryTenth) {
  PlainProgress progress;
  int lines = 0;

  for (int step = 1; step <= 100; ++step) {
    lines += progress.OnProgress(RunningJob(step, 100), At(step * 0.01));
  }

  EXPECT_EQ(lines, 11);  // the first look, and ten tenths
}

TEST(PlainProgress, PrintsAfterTenSecondsButNotWhenNothingMoved) {
  PlainProgress progress;

  EXPECT_TRUE(progress.OnProgress(RunningJob(1, 1000), At(0)));
  EXPECT_FALSE(progress.OnProgress(RunningJob(2, 1000), At(9.9)));
  EXPECT_TRUE(progress.OnProgress(RunningJob(3, 1000), At(10)));
  EXPECT_FALSE(progress.OnProgress(RunningJob(3, 1000), At(30)));
}

TEST(PlainProgress, PrintsAChangeOfStateOrReason) {
  PlainProgress progress;
  v1::Job job = In(v1::JOB_STATE_QUEUED, "", "waits for job 6", 0, 100);

  EXPECT_TRUE(progress.OnProgress(job, At(0)));
  EXPECT_FALSE(progress.OnProgress(job, At(60)));
  job.set_why("waits for workers");
  EXPECT_TRUE(progress.OnProgress(job, At(61)));
  EXPECT_TRUE(progress.OnProgress(RunningJob(0, 100), At(62)));
}

TEST(PlainProgress, PrintsOneShortLineAChange) {
  PlainProgress progress;
  v1::Job job =
      In(v1::JOB_STATE_QUEUED, "",
         "waits for workers: 3 are needed and 1 is free; worker w2 has 1 core "
         "for 8 threads, and 4 a core is the most; job 6 has the others",
         0, 100);

  EXPECT_TRUE(progress.OnProgress(job, At(0)));
  EXPECT_EQ(ProgressLine(job, std::nullopt, {}),
            "job 7  queued  waits for workers: 3 are needed and 1 is free");
  job.set_why(
      "waits for workers: 3 are needed and 2 are free; job 6 has others");
  EXPECT_TRUE(progress.OnProgress(job, At(1)));
  job.set_why("waits for workers: 4 are needed and 2 are free; and more");
  EXPECT_FALSE(progress.OnProgress(job, At(2))) << "a number moved";

  job.set_why(std::string(200, 'x'));
  EXPECT_LT(ProgressLine(job, std::nullopt, {}).size(), 80u);
}

TEST(RestartBackoff, DoublesUpToItsLongestAndForgivesWhatLivedLong) {
  RestartBackoff backoff;

  EXPECT_EQ(backoff.OnDeath(absl::ZeroDuration()), absl::Milliseconds(500));
  EXPECT_EQ(backoff.OnDeath(absl::ZeroDuration()), absl::Seconds(1));
  for (int i = 0; i < 20; ++i) backoff.OnDeath(absl::ZeroDuration());
  EXPECT_EQ(backoff.OnDeath(absl::ZeroDuration()), RestartBackoff::kLongest);
  EXPECT_EQ(backoff.OnDeath(RestartBackoff::kHealthy), RestartBackoff::kFirst);
}

v1::MeshUpdate At(int64_t unix_ms) {
  v1::MeshUpdate update;
  update.set_unix_ms(unix_ms);
  return update;
}

MeshView ViewOf(const v1::MeshUpdate& update) {
  MeshView view;
  view.Merge(update);
  return view;
}

std::string TextOf(const std::vector<ScreenLine>& lines) {
  std::string text;
  for (const ScreenLine& line : lines) absl::StrAppend(&text, line.text, "\n");
  return text;
}

TEST(MeshView, TakesWhatChangedAndDropsWhatIsForgotten) {
  MeshView view = ViewOf(WholeMesh());
  v1::MeshUpdate update = At(2000);
  *update.add_workers() = AWorker(3, "w3", v1::WORKER_STATE_LOST);
  update.add_forgotten_workers(4);
  update.add_forgotten_jobs(7);
  view.Merge(update);

  EXPECT_EQ(view.workers.size(), 3);
  EXPECT_EQ(view.workers[3].state(), v1::WORKER_STATE_LOST);
  EXPECT_TRUE(view.jobs.empty());

  // It is told of no more, and its silence grows.
  view.Merge(At(5000));
  EXPECT_EQ(view.workers[3].last_heard_seconds(), 3);

  view.Merge(WholeMesh());
  EXPECT_EQ(view.jobs.size(), 1);
  EXPECT_EQ(view.events.size(), 1);
}

TEST(Top, ShowsJobsWorkersTimesLinksAndEvents) {
  v1::MeshUpdate recovering = WholeMesh(), recovered = WholeMesh();
  recovering.mutable_jobs(0)->MergeFrom(Parse<v1::Job>(R"(
    phase: "recovering" why: "recovering: w3 is lost"
    recovering { seconds { detect: 2 } })"));
  recovered.mutable_jobs(0)->MergeFrom(
      Parse<v1::Job>(R"(recovery { recoveries: 1 why: "w3 is lost" })"));
  v1::MeshUpdate rounds = WholeMesh(), hostile = WholeMesh();
  rounds.mutable_jobs(0)->set_server(2);
  for (v1::JobWorker& worker : *rounds.mutable_jobs(0)->mutable_workers()) {
    worker.mutable_member()->set_next(11);
  }
  hostile.mutable_jobs(0)->mutable_spec()->set_name("<b>\x1b[2Jx");
  hostile.mutable_events(0)->set_text("\x1b[2Jy");

  Golden golden("client/top");
  const std::pair<const char*, const v1::MeshUpdate*> kCases[] = {
      {"a job in two stages, an idle worker, a lost one", nullptr},
      {"a job that recovers says why", &recovering},
      {"one that has recovered does not", &recovered},
      {"who serves the next round", &rounds},
      {"no name moves the cursor", &hostile}};
  for (const auto& [what, mesh] : kCases) {
    golden.Add(what,
               TextOf(RenderTop(ViewOf(mesh == nullptr ? WholeMesh() : *mesh),
                                "", {100, 24})));
  }
}

TEST(Top, FitsIntoAScreenOfAnySize) {
  v1::MeshUpdate mesh = WholeMesh();
  for (int i = 10; i < 210; ++i) {
    *mesh.add_workers() = AWorker(i, absl::StrCat("worker-", i));
  }
  for (int i = 10; i < 60; ++i) {
    *mesh.add_jobs() = RunningJob(1, 2);
    mesh.mutable_jobs()->rbegin()->set_id(i);
  }
  for (int i = 0; i < 10'000; ++i) {
    v1::JobEvent& event = *mesh.add_events();
    event.set_text(absl::StrCat("event-", i));
  }
  for (const ScreenSize size : {ScreenSize{80, 24}, ScreenSize{20, 24},
                                ScreenSize{1, 1}, ScreenSize{300, 100}}) {
    const std::vector<ScreenLine> lines = RenderTop(ViewOf(mesh), "", size);
    EXPECT_LE(lines.size(), size.rows);
    for (const ScreenLine& line : lines) {
      EXPECT_LE(DisplayWidth(line.text), size.columns) << line.text;
    }
  }
  const std::string text = TextOf(RenderTop(ViewOf(mesh), "", {80, 24}));
  EXPECT_THAT(text, AllOf(HasSubstr(" more\n"), HasSubstr("event-9999"),
                          HasSubstr("lost"), HasSubstr("training")));
}

}  // namespace
}  // namespace paceline

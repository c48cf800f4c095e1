#include "client/commands/command.h"
#include "client/commands/mesh.h"
#include "client/commands/watch.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

Instant At(double seconds) { return {absl::Seconds(seconds)}; }

TEST(ProgressLine, SaysStepSpeedLossAndTimeLeft) {
  EXPECT_EQ(ProgressLine(RunningJob(10, 40), Loss({10, 0.43215}), {}),
            "job 7  step 10/40  640 samples/s  loss 0.4321  3 s left");
}

TEST(ProgressLine, SaysThatAStepWasSkipped) {
  EXPECT_EQ(ProgressLine(RunningJob(10, 40), Loss({10, NAN, true}), {}),
            "job 7  step 10/40  640 samples/s  skipped  3 s left");
}

TEST(ProgressLine, DrawsABarWhereItCanBeRedrawn) {
  EXPECT_EQ(ProgressLine(RunningJob(20, 40), std::nullopt, {.bar = true}),
            "job 7  [############............]  step 20/40  640 samples/s  "
            "2 s left");
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

TEST(ProgressLine, LeavesOutWhatIsNotKnown) {
  v1::Job job = RunningJob(3, 0);
  job.set_samples_per_second(0);

  EXPECT_EQ(ProgressLine(job, std::nullopt, {.bar = true}), "job 7  step 3");
}

TEST(ProgressLine, SaysWhyAJobWaits) {
  v1::Job job = RunningJob(0, 0);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_why("waits for job 6");

  EXPECT_EQ(ProgressLine(job, std::nullopt, {}),
            "job 7  queued  waits for job 6");
}

TEST(ProgressLine, SaysThePhaseBeforeAndAfterTraining) {
  v1::Job job = RunningJob(0, 40);
  job.set_phase("preparing");
  EXPECT_EQ(ProgressLine(job, std::nullopt, {}), "job 7  preparing");

  job = RunningJob(40, 40);
  job.set_phase("saving");
  EXPECT_EQ(ProgressLine(job, Loss({40, 0.5}), {}),
            "job 7  step 40/40  640 samples/s  loss 0.5000  saving");
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
  v1::Job job = RunningJob(0, 100);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_why("waits for job 6");

  EXPECT_TRUE(progress.OnProgress(job, At(0)));
  EXPECT_FALSE(progress.OnProgress(job, At(60)));
  job.set_why("waits for workers");
  EXPECT_TRUE(progress.OnProgress(job, At(61)));
  EXPECT_TRUE(progress.OnProgress(RunningJob(0, 100), At(62)));
}

TEST(RestartBackoff, DoublesUpToItsLongest) {
  RestartBackoff backoff;

  EXPECT_EQ(backoff.OnDeath(absl::ZeroDuration()), absl::Milliseconds(500));
  EXPECT_EQ(backoff.OnDeath(absl::ZeroDuration()), absl::Seconds(1));
  for (int i = 0; i < 20; ++i) backoff.OnDeath(absl::ZeroDuration());
  EXPECT_EQ(backoff.OnDeath(absl::ZeroDuration()), RestartBackoff::kLongest);
}

TEST(RestartBackoff, ForgivesWhoLivedLong) {
  RestartBackoff backoff;
  backoff.OnDeath(absl::ZeroDuration());
  backoff.OnDeath(absl::ZeroDuration());

  EXPECT_EQ(backoff.OnDeath(RestartBackoff::kHealthy), RestartBackoff::kFirst);
}

}  // namespace
}  // namespace paceline

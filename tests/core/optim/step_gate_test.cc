#include "core/optim/step_gate.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfiniteLoss = std::numeric_limits<double>::infinity();
constexpr int64_t kTotalSteps = 100;

TrainSpec Train() {
  TrainSpec train;
  train.learning_rate.base = 0.1;
  return train;
}

StepReport Report(int64_t step, int stage,
                  std::vector<double> norms = {9, 16}) {
  StepReport report;
  report.step = step;
  report.stage = stage;
  report.result_hash = 1000 + stage;
  report.squared_norms = std::move(norms);
  report.samples = 10;
  return report;
}

StepVerdict Decide(const TrainSpec& train,
                   const std::vector<StepReport>& reports) {
  return DecideStep(train, kTotalSteps, reports);
}

TEST(DecideStep, DividesByTheSamplesOfTheBatch) {
  const StepVerdict verdict =
      Decide(Train(), {Report(3, 0, {9}), Report(3, 1, {16})});

  EXPECT_EQ(verdict.step, 3);
  EXPECT_FALSE(verdict.skip) << verdict.why;
  EXPECT_DOUBLE_EQ(verdict.gradient_norm, 0.5);  // sqrt(9 + 16) / 10
  EXPECT_EQ(verdict.gradient_scale, 0.1f);
  EXPECT_EQ(verdict.learning_rate, 0.1f);
  EXPECT_EQ(verdict.bias_correction1, 1);
  EXPECT_EQ(verdict.bias_correction2_sqrt, 1);
}

TEST(DecideStep, ClipsByTheNormOverAllStages) {
  TrainSpec train = Train();
  train.clip_norm = 0.25;

  const StepVerdict verdict =
      Decide(train, {Report(0, 0, {9}), Report(0, 1, {16})});

  EXPECT_EQ(verdict.gradient_scale,
            static_cast<float>(0.25 / (0.5 + 1e-6) / 10));
  EXPECT_THAT(verdict.why, HasSubstr("clipped: norm 0.5 above 0.25"));
}

TEST(DecideStep, LeavesANormBelowTheBoundAlone) {
  TrainSpec train = Train();
  train.clip_norm = 0.6;

  for (const double squared_norm : {25, 0}) {
    const StepVerdict verdict = Decide(train, {Report(0, 0, {squared_norm})});

    EXPECT_FALSE(verdict.skip) << verdict.why;
    EXPECT_EQ(verdict.gradient_scale, 0.1f) << verdict.why;
  }
}

TEST(DecideStep, DoesNotDependOnHowLayersAreCutIntoStages) {
  const std::vector<double> norms = {0.1, 1e-9, 3e7, 0.7, 1.0 / 3};
  const StepVerdict whole = Decide(Train(), {Report(0, 0, norms)});

  for (size_t cut = 1; cut < norms.size(); ++cut) {
    const auto at = norms.begin() + static_cast<int64_t>(cut);
    const StepVerdict halves = Decide(
        Train(),
        {Report(0, 0, {norms.begin(), at}), Report(0, 1, {at, norms.end()})});

    EXPECT_EQ(halves, whole) << cut;
  }
}

TEST(DecideStep, SkipsAndNamesTheStagesThatAreNotFinite) {
  StepReport flagged = Report(5, 1);
  flagged.finite = false;

  const StepVerdict verdict = Decide(
      Train(), {Report(5, 0), flagged, Report(5, 2), Report(5, 3, {1, kNoLoss}),
                Report(5, 4, {kInfiniteLoss, 1})});

  EXPECT_TRUE(verdict.skip);
  EXPECT_EQ(verdict.step, 5);
  EXPECT_THAT(verdict.why, HasSubstr("stage 1, 3, 4"));
  EXPECT_EQ(verdict, verdict) << "a skip holds no NaN";
}

TEST(DecideStep, SkipsASumThatOverflowsAndABatchWithoutSamples) {
  const double huge = std::numeric_limits<double>::max();

  const StepVerdict verdict =
      Decide(Train(), {Report(0, 0, {huge}), Report(0, 1, {huge})});

  EXPECT_TRUE(verdict.skip);
  EXPECT_THAT(verdict.why, HasSubstr("overflows"));
  StepReport report = Report(0, 0);
  report.samples = 0;

  EXPECT_TRUE(Decide(Train(), {report}).skip);
}

TEST(DecideStep, TakesBiasAndRateOfItsOwnStep) {
  TrainSpec train = Train();
  train.optimizer.name = "adamw";

  const StepVerdict first = Decide(train, {Report(0, 0)});
  const StepVerdict third = Decide(train, {Report(2, 0)});

  EXPECT_FLOAT_EQ(first.bias_correction1, 0.1f);
  EXPECT_FLOAT_EQ(first.bias_correction2_sqrt, std::sqrt(0.001f));
  EXPECT_FLOAT_EQ(third.bias_correction1, 1 - 0.9f * 0.9f * 0.9f);

  train.learning_rate.schedule = "cosine";
  EXPECT_EQ(Decide(train, {Report(50, 0)}).learning_rate, 0.05f);
}

class StepGateTest : public ::testing::Test {
 protected:
  // The verdict, or nothing; fails the test on an error.
  std::optional<StepVerdict> Add(const StepReport& report) {
    const auto verdict = gate_.Add(report);
    EXPECT_TRUE(verdict.ok()) << verdict.status();
    return verdict.ok() ? *verdict : std::nullopt;
  }

  // The verdict on a step that all stages have reported.
  std::optional<StepVerdict> Pass(int64_t step) {
    Add(Report(step, 0));
    Add(Report(step, 1));
    return Add(Report(step, 2));
  }

  StepGate gate_{Train(), kTotalSteps, /*replicas=*/{1, 1, 1}};
};

TEST_F(StepGateTest, DecidesWithTheLastReportInAnyOrder) {
  EXPECT_EQ(Add(Report(0, 2)), std::nullopt);
  EXPECT_EQ(Add(Report(0, 0)), std::nullopt);
  EXPECT_THAT(gate_.Missing(), ElementsAre(1));

  const std::optional<StepVerdict> verdict = Add(Report(0, 1));

  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(*verdict,
            Decide(Train(), {Report(0, 0), Report(0, 1), Report(0, 2)}));
  EXPECT_THAT(gate_.Missing(), ElementsAre(0, 1, 2));
}

TEST_F(StepGateTest, AnswersAgainUntilTheNextStepIsDecided) {
  const std::optional<StepVerdict> verdict = Pass(0);

  EXPECT_EQ(Add(Report(0, 1)), verdict);
  Add(Report(1, 0));
  Add(Report(1, 1));
  EXPECT_EQ(Add(Report(0, 1)), verdict) << "step 1 is still open";
}

TEST_F(StepGateTest, RefusesAStepLongDecidedAndAStageThatDoesNotExist) {
  Pass(0);
  Pass(1);

  for (const int step : {0, -1}) {
    EXPECT_TRUE(absl::IsAborted(gate_.Add(Report(step, 1)).status()));
  }
  for (const int stage : {-1, 3}) {
    EXPECT_TRUE(absl::IsInvalidArgument(gate_.Add(Report(2, stage)).status()));
  }
}

TEST(StepGate, BeginsAtAnyStep) {
  StepGate gate(Train(), kTotalSteps, /*replicas=*/{1}, /*first_step=*/5);

  for (const int step : {0, 4}) {
    EXPECT_TRUE(absl::IsAborted(gate.Add(Report(step, 0)).status())) << step;
  }
  EXPECT_TRUE(gate.Add(Report(5, 0)).value().has_value());
}

TEST_F(StepGateTest, RefusesAStepBeyondTheOpenOne) {
  Add(Report(0, 1));

  const absl::Status status = gate_.Add(Report(1, 1)).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stages 0, 2"));
}

TEST_F(StepGateTest, RefusesASecondAndDifferentReport) {
  Add(Report(0, 0));
  StepReport other = Report(0, 0);
  other.result_hash = 7;

  EXPECT_TRUE(absl::IsInvalidArgument(gate_.Add(other).status()));

  Add(Report(0, 1));
  EXPECT_TRUE(Add(Report(0, 2)).has_value()) << "the first one still counts";
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.Add(other).status()))
      << "also of the step before";
}

TEST_F(StepGateTest, RefusesSamplesThatDifferBetweenStages) {
  Add(Report(0, 0));
  StepReport other = Report(0, 1);
  other.samples = 11;

  const absl::Status status = gate_.Add(other).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("11 samples"));
  EXPECT_THAT(gate_.Missing(), ElementsAre(1, 2));
}

TEST_F(StepGateTest, TakesARepeatedReportWhoseNormIsNaNAndGoesOn) {
  StepReport bad = Report(0, 0, {kNoLoss});
  bad.finite = false;
  Add(bad);
  Add(Report(0, 1));

  EXPECT_EQ(Add(bad), std::nullopt);

  const std::optional<StepVerdict> verdict = Add(Report(0, 2));
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->skip);
  EXPECT_EQ(Add(bad), verdict);
  EXPECT_FALSE(Pass(1)->skip) << "it goes on";
}

TEST(StepGate, WaitsForAllReplicasAndTakesWhatTheyReportOnce) {
  StepGate gate(Train(), kTotalSteps, {1, 2});
  StepReport second = Report(0, 1);
  second.replica = 1;

  EXPECT_EQ(gate.Add(Report(0, 0)).value(), std::nullopt);
  EXPECT_EQ(gate.Add(second).value(), std::nullopt);
  EXPECT_THAT(gate.Missing(), ElementsAre(1));
  const auto verdict = gate.Add(Report(0, 1)).value();

  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(*verdict, Decide(Train(), {Report(0, 0), Report(0, 1)}));
  EXPECT_EQ(gate.Add(second).value(), verdict);
  second.step = 1;
  second.replica = 2;
  EXPECT_THAT(gate.Add(second).status().message(),
              HasSubstr("no replica 2 of stage 1, which has 2"));
}

TEST(StepGate, RefusesReplicasThatDiffer) {
  StepGate gate(Train(), kTotalSteps, {1, 2});
  StepReport second = Report(0, 1);
  second.replica = 1;
  second.result_hash = 7;

  ASSERT_TRUE(gate.Add(Report(0, 1)).ok());
  const absl::Status status = gate.Add(second).status();

  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(),
              HasSubstr("replicas 0 and 1 of stage 1 differ"));
}

TEST(SkipCount, EndsTheRunAtTheTwentiethInARow) {
  SkipCount count;
  for (int i = 0; i < 19; ++i) ASSERT_TRUE(count.OnStep(true, "nan").ok());
  ASSERT_TRUE(count.OnStep(false, "").ok());
  for (int i = 0; i < 19; ++i) ASSERT_TRUE(count.OnStep(true, "nan").ok());

  const absl::Status last = count.OnStep(true, "NaN in stage 1");

  EXPECT_EQ(last.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(last.message().find("20 steps in a row"), std::string::npos);
  EXPECT_NE(last.message().find("NaN in stage 1"), std::string::npos);
}

TEST(SkipCount, GoesOnFromThoseOfTheAttemptBefore) {
  SkipCount count(18);

  EXPECT_TRUE(count.OnStep(true, "").ok());
  EXPECT_FALSE(count.OnStep(true, "").ok());
}

}  // namespace
}  // namespace paceline

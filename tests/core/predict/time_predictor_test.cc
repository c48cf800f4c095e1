#include "core/predict/time_predictor.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TimePredictor Fitted() {
  std::vector<CurveRecipe> recipes;
  for (const char* op : {"gather", "reduce"}) {
    for (int hosts : {1, 2, 4}) {
      const double factor = hosts * (op[0] == 'g' ? 1 : 2);
      recipes.push_back(
          {{op, std::to_string(hosts)}, Affine(1e-5 * factor, 1e-9 * factor)});
    }
  }
  recipes.pop_back();  // reduce on 4 hosts
  return TimePredictor(MakeCurves({"op", "hosts"}, recipes));
}

TimeQuery Query(const std::string& op, const std::string& hosts, double size) {
  return {.size_column = "elements",
          .size = size,
          .features = {{"op", op}, {"hosts", hosts}}};
}

TEST(TimePredictor, SaysWhatItsAnswerStandsOn) {
  const TimePredictor predictor = Fitted();

  const auto basis = [&](const TimeQuery& query) {
    const auto prediction = predictor.Predict(query);
    EXPECT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_LE(prediction->low_seconds, prediction->seconds);
    EXPECT_GE(prediction->high_seconds, prediction->seconds);
    return TimeBasisName(prediction->basis);
  };

  EXPECT_EQ(basis(Query("gather", "2", 1024)), "measured");
  EXPECT_EQ(basis(Query("gather", "2", 1000)), "inside");
  EXPECT_EQ(basis(Query("gather", "2", 1e9)), "outside");
  EXPECT_EQ(basis(Query("reduce", "4", 1000)), "unseen");
}

TEST(TimePredictor, FindsACurveByAnySpellingOfItsNumbers) {
  const TimePredictor predictor = Fitted();

  EXPECT_EQ(predictor.Predict(Query("gather", "2.0", 64))->basis,
            TimeBasis::kMeasured);
}

TEST(TimePredictor, ForetellsACurveThatWasNeverMeasured) {
  const auto prediction = Value(Fitted().Predict(Query("reduce", "4", 1024)));

  const double truth = 8 * (1e-5 + 1.024e-6);
  EXPECT_LT(prediction.low_seconds, truth);
  EXPECT_GT(prediction.high_seconds, truth);
  EXPECT_NEAR(prediction.seconds, truth, 0.3 * truth);
}

TEST(TimePredictor, RefusesWhatItCannotKnow) {
  const TimePredictor predictor = Fitted();
  const auto message = [&](const TimeQuery& query, absl::StatusCode code) {
    const auto prediction = predictor.Predict(query);
    EXPECT_EQ(prediction.status().code(), code) << prediction.status();
    return std::string(prediction.status().message());
  };
  TimeQuery colour = Query("gather", "2", 1);
  colour.features.emplace_back("colour", "red");
  TimeQuery twice = Query("gather", "2", 1);
  twice.features.emplace_back("op", "reduce");
  TimeQuery flops = Query("gather", "2", 1);
  flops.size_column = "flops";

  constexpr absl::StatusCode kWrong = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(message(colour, kWrong),
              HasSubstr("no measurement has a column 'colour'; there are op, "
                        "hosts"));
  EXPECT_THAT(message(twice, kWrong), HasSubstr("'op' is given twice"));
  for (const double size : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(message(Query("gather", "2", size), kWrong),
                HasSubstr("need a finite number from 0 up"));
  }
  EXPECT_THAT(message(flops, absl::StatusCode::kNotFound),
              HasSubstr("nothing was measured over flops"));
}

// --- errors and intervals
// -----------------------------------------------------

// Deterministic noise of about 2 %.
TimeOf Noisy(double latency_seconds, int seed) {
  return [=](double size) {
    const double wave = std::sin(12.9898 * std::log1p(size) + 78.233 * seed);
    return (latency_seconds + 1e-9 * size) * (1 + 0.02 * wave);
  };
}

CurveSet NoisySet(int curves) {
  std::vector<CurveRecipe> recipes;
  for (int c = 0; c < curves; ++c) {
    recipes.push_back(
        {{std::to_string(c % 5), std::to_string(c / 5)}, Noisy(1e-5, c)});
  }
  return MakeCurves({"op", "mesh"}, recipes);
}

TEST(Evaluate, CountsInteriorPointsAndAllPointsOfCurvesHeldOut) {
  const CurveSet set = NoisySet(10);

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  EXPECT_EQ(result.interior.points, 10 * 18);
  EXPECT_EQ(result.heldout_curves, 10);
  EXPECT_EQ(result.heldout.points, 10 * 20);
  EXPECT_FALSE(result.sampled);
}

TEST(Evaluate, IsNearTheNoiseAndBetterThanALineOnACurvedCurve) {
  std::vector<CurveRecipe> recipes;
  for (int c = 0; c < 5; ++c) {
    recipes.push_back({{std::to_string(c)}, [c](double size) {
                         return Noisy(1e-5, c)(size) + 1e-7 * std::sqrt(size);
                       }});
  }
  const CurveSet set = MakeCurves({"op"}, recipes, Doublings(30));

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  EXPECT_LT(result.interior.predicted.mean, 0.05);
  EXPECT_GT(result.interior.line.mean, 5 * result.interior.predicted.mean);
}

TEST(Evaluate, SplitsInteriorPointsByDecade) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1, 1)}},
                                  {0, 0.5, 1, 5, 10, 99, 100, 1000});

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  ASSERT_EQ(result.decades.size(), 4);
  const int64_t points[] = {1, 2, 2, 1};
  const double from[] = {0, 1, 10, 100};
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(result.decades[d].errors.points, points[d]);
    EXPECT_DOUBLE_EQ(result.decades[d].from, from[d]);
    EXPECT_DOUBLE_EQ(result.decades[d].to, std::pow(10, d));
    EXPECT_NEAR(result.decades[d].errors.predicted.mean, 0, 1e-9);
  }
}

TEST(Evaluate, OfAPointKnowsNothingOfThatPoint) {
  TimingTable table =
      MakeTable({"op", "mesh"},
                {{{"a", "1"}, Noisy(1e-5, 1)}, {{"a", "2"}, Noisy(1e-5, 2)}},
                Doublings(20));
  const auto before = BuildCurves({table});
  table.measurements[{"a", "1"}][8].second *= 1000;
  const auto after = BuildCurves({table});

  const auto said = [](const CurveSet& set) {
    for (const LeftOutPoint& p : PredictLeftOut(set).interior) {
      if (p.curve == &set.curves[0] && p.point == 8) return p;
    }
    return LeftOutPoint();
  };

  EXPECT_EQ(said(before).seconds, said(after).seconds);
  EXPECT_NEAR(said(before).line_seconds, said(after).line_seconds, 1e-12);
}

TEST(Evaluate, OfNothingToLeaveOutHasNoErrors) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1, 1)}}, {1, 2});

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  EXPECT_EQ(result.interior.points, 0);
  EXPECT_TRUE(std::isnan(result.interior.predicted.mean));
  EXPECT_EQ(result.heldout_curves, 0);
  EXPECT_TRUE(std::isnan(result.heldout_coverage));
}

TEST(LeaveOut, TriesAtMostSoManyPointsEvenlyTaken) {
  const CurveSet set = NoisySet(20);

  const LeftOut left_out =
      PredictLeftOut(set, {.points = 40, .comparisons = 100});

  EXPECT_TRUE(left_out.sampled);
  EXPECT_EQ(Evaluate(set, left_out).heldout_curves, 5);
  EXPECT_EQ(left_out.interior.size(), 40);
  EXPECT_LE(left_out.unseen.size(), 40);
}

TEST(Intervals, HoldAboutTheirLevelOfWhatWasLeftOut) {
  const CurveSet set = NoisySet(20);

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  EXPECT_NEAR(result.interior_coverage, kIntervalLevel, 0.06);
  EXPECT_NEAR(result.heldout_coverage, kIntervalLevel, 0.08);
}

TEST(Intervals, AreWiderTheLessThereIsToGoBy) {
  const CurveSet set = NoisySet(20);
  const IntervalTable table(PredictLeftOut(set));

  for (const bool unseen : {false, true}) {
    const auto width = [&](int distance) {
      const IntervalFactors factors =
          table.Factors(unseen, distance, "elements", 1000);
      EXPECT_LT(factors.low, 1);
      EXPECT_GT(factors.high, 1);
      return factors.high / factors.low;
    };

    EXPECT_GE(width(2), width(1));
    EXPECT_GT(width(4), width(2));
    EXPECT_GT(width(5), width(4));
  }
}

TEST(Intervals, HoldWhatNoPairTellsInBothDirections) {
  // Two curves, a factor 3 apart: each is all there is to know of the other.
  const CurveSet set = MakeCurves(
      {"op"}, {{{"a"}, Affine(1, 1)}, {{"b"}, Affine(3, 3)}}, Doublings(25));
  const IntervalTable table(PredictLeftOut(set));

  const IntervalFactors factors =
      table.Factors(true, UnseenCurve::kNoPair, "elements", 1000);

  EXPECT_NEAR(factors.high, 3, 0.01);
  EXPECT_NEAR(factors.low, 1 / 3.0, 0.01);
}

TEST(Intervals, AreWideGuessesWithoutLeftOutPoints) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1, 1)}}, {1, 2});
  const IntervalTable table(PredictLeftOut(set));

  EXPECT_EQ(table.Factors(false, 0, "elements", 1).high, 2);
  EXPECT_EQ(table.Factors(false, 3, "elements", 1).high, 8);
  EXPECT_EQ(table.Factors(true, 1, "elements", 1).high, 4);
}

}  // namespace
}  // namespace paceline

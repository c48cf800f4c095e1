#include "core/predict/curve_error.h"

#include <cmath>

#include "core/predict/curve_prediction.h"
#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"

namespace paceline {
namespace {

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

  EXPECT_EQ(result.points, 10 * 18);
  EXPECT_EQ(result.heldout_curves, 10);
  EXPECT_EQ(result.heldout_points, 10 * 20);
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

  EXPECT_LT(result.predicted.mean, 0.05);
  EXPECT_GT(result.line.mean, 5 * result.predicted.mean);
}

TEST(Evaluate, SplitsInteriorPointsByDecade) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1, 1)}},
                                  {0, 0.5, 1, 5, 10, 99, 100, 1000});

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  ASSERT_EQ(result.decades.size(), 4);
  const int64_t points[] = {1, 2, 2, 1};
  const double from[] = {0, 1, 10, 100};
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(result.decades[d].points, points[d]);
    EXPECT_DOUBLE_EQ(result.decades[d].from, from[d]);
    EXPECT_DOUBLE_EQ(result.decades[d].to, std::pow(10, d));
    EXPECT_NEAR(result.decades[d].predicted.mean, 0, 1e-9);
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
  ASSERT_TRUE(before.ok() && after.ok());

  const auto said = [](const CurveSet& set) {
    for (const LeftOutPoint& p : PredictLeftOut(set).interior) {
      if (p.curve == 0 && p.point == 8) return p;
    }
    return LeftOutPoint();
  };

  EXPECT_EQ(said(*before).log_predicted, said(*after).log_predicted);
  EXPECT_NEAR(said(*before).line_seconds, said(*after).line_seconds, 1e-12);
}

TEST(Evaluate, OfNothingToLeaveOutHasNoErrors) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1, 1)}}, {1, 2});

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  EXPECT_EQ(result.points, 0);
  EXPECT_TRUE(std::isnan(result.predicted.mean));
  EXPECT_EQ(result.heldout_curves, 0);
  EXPECT_TRUE(std::isnan(result.heldout_coverage));
}

TEST(LeaveOut, TriesAtMostSoManyPointsEvenlyTaken) {
  const CurveSet set = NoisySet(20);

  const LeftOut left_out =
      PredictLeftOut(set, {.points = 40, .comparisons = 100});

  EXPECT_TRUE(left_out.sampled);
  EXPECT_EQ(left_out.unseen_curves, 5);
  EXPECT_EQ(left_out.interior.size(), 40);
  EXPECT_LE(left_out.unseen.size(), 40);
}

TEST(Intervals, HoldAboutTheirLevelOfWhatWasLeftOut) {
  const CurveSet set = NoisySet(20);

  const Evaluation result = Evaluate(set, PredictLeftOut(set));

  EXPECT_NEAR(result.interior_coverage, kIntervalLevel, 0.06);
  EXPECT_NEAR(result.heldout_coverage, kIntervalLevel, 0.08);
}

TEST(Intervals, AreWiderTheFurtherOutside) {
  const CurveSet set = NoisySet(20);
  const IntervalTable table(set, PredictLeftOut(set));

  const IntervalFactors inside = table.Inside("elements", 1000);
  const IntervalFactors one = table.Outside("elements", 1000, 1);
  const IntervalFactors six = table.Outside("elements", 1000, 6);

  EXPECT_LT(inside.low, 1);
  EXPECT_GT(inside.high, 1);
  EXPECT_LE(one.low, inside.low);
  EXPECT_GE(one.high, inside.high);
  EXPECT_LT(six.low, one.low);
  EXPECT_GT(six.high, one.high);
}

TEST(Intervals, AreWiderTheMoreRemoteTheCurvesTheyStandOn) {
  const CurveSet set = NoisySet(20);
  const IntervalTable table(set, PredictLeftOut(set));
  const auto width = [&](int distance) {
    const IntervalFactors factors = table.Unseen("elements", 1000, distance);
    return factors.high / factors.low;
  };

  EXPECT_GE(width(2), width(1));
  EXPECT_GT(width(4), width(2));
  EXPECT_GT(width(5), width(4));
}

TEST(Intervals, HoldWhatNoPairTellsInBothDirections) {
  // Two curves, a factor 3 apart: each is all there is to know of the other.
  const CurveSet set = MakeCurves(
      {"op"}, {{{"a"}, Affine(1, 1)}, {{"b"}, Affine(3, 3)}}, Doublings(25));
  const IntervalTable table(set, PredictLeftOut(set));

  const IntervalFactors factors =
      table.Unseen("elements", 1000, UnseenCurve::kNoPair);

  EXPECT_NEAR(factors.high, 3, 0.01);
  EXPECT_NEAR(factors.low, 1 / 3.0, 0.01);
}

TEST(Intervals, AreWideGuessesWithoutLeftOutPoints) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1, 1)}}, {1, 2});
  const IntervalTable table(set, PredictLeftOut(set));

  EXPECT_EQ(table.Inside("elements", 1).high, 2);
  EXPECT_EQ(table.Unseen("elements", 1, 1).high, 4);
  EXPECT_EQ(table.Outside("elements", 1, 3).high, 8);
}

}  // namespace
}  // namespace paceline

#include "core/predict/known_curve.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"

namespace paceline {
namespace {

// Twice as slow from 64 on: a protocol switch.
TimeOf Switching(double latency_seconds) {
  return [=](double size) {
    return (latency_seconds + 1e-9 * size) * (size >= 64 ? 2 : 1);
  };
}

TEST(KnownCurve, IsExactOnAStraightLine) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1e-5, 1e-9)}});
  const KnownCurve known(set, set.curves[0]);

  EXPECT_NEAR(std::exp(known.LogSeconds(1000)), 1e-5 + 1e-6, 1e-12);
  EXPECT_NEAR(std::exp(known.LogSeconds(1024, 11)), 1e-5 + 1.024e-6, 1e-12);
}

TEST(KnownCurve, AnswersAMeasuredSizeWithItsMeasurement) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Switching(1e-5)}});

  EXPECT_EQ(KnownCurve(set, set.curves[0]).LogSeconds(64),
            std::log(Switching(1e-5)(64)));
}

TEST(KnownCurve, LearnsFromItsSistersWhereAProtocolSwitches) {
  const CurveSet alone = MakeCurves({"mesh"}, {{{"1"}, Switching(1e-5)}});
  const CurveSet sisters = MakeCurves({"mesh"}, {{{"1"}, Switching(1e-5)},
                                                 {{"2"}, Switching(1.1e-5)},
                                                 {{"3"}, Switching(1.2e-5)}});
  const double truth = Switching(1e-5)(64);

  const double without =
      std::exp(KnownCurve(alone, alone.curves[0]).LogSeconds(64, 7));
  const double with =
      std::exp(KnownCurve(sisters, sisters.curves[0]).LogSeconds(64, 7));

  EXPECT_GT(std::abs(without - truth) / truth, 0.2);
  EXPECT_LT(std::abs(with - truth) / truth, 0.01);
}

TEST(KnownCurve, HeedsNotSistersThatDisagreeNearBy) {
  const TimeOf wild = [](double size) {
    return 1e-5 * (static_cast<int>(std::log2(1 + size)) % 2 == 0 ? 1 : 9);
  };
  const CurveSet set =
      MakeCurves({"mesh"}, {{{"1"}, Affine(1e-5, 1e-9)}, {{"2"}, wild}});

  const double seconds =
      std::exp(KnownCurve(set, set.curves[0]).LogSeconds(1024, 11));

  EXPECT_NEAR(seconds, 1e-5 + 1.024e-6, 1e-8);
}

TEST(KnownCurve, DoesNotReadThePointThatIsLeftOut) {
  const std::vector<CurveRecipe> recipes = {{{"1", "f16"}, Switching(1e-5)},
                                            {{"1", "f32"}, Switching(1.3e-5)},
                                            {{"2", "f16"}, Switching(1.1e-5)}};
  const CurveSet set = MakeCurves({"mesh", "dtype"}, recipes);
  const Curve& whole = CurveOf(set, {"1", "f16"});
  const KnownCurve known(set, whole);

  for (int p = 0; p < whole.points(); ++p) {
    TimingTable table = MakeTable({"mesh", "dtype"}, recipes, Doublings(20));
    table.rows.erase(table.rows.begin() + p);
    const auto rest = BuildCurves({table});
    ASSERT_TRUE(rest.ok());
    const KnownCurve never(*rest, CurveOf(*rest, {"1", "f16"}));

    EXPECT_EQ(known.LogSeconds(whole.sizes[p], p),
              never.LogSeconds(whole.sizes[p]))
        << "point " << p;
  }
}

TEST(KnownCurve, TakesNothingFromCopiesOfItself) {
  const CurveSet copied = MakeCurves(
      {"mesh"}, {{{"1"}, Switching(1e-5)}, {{"2"}, Switching(1e-5)}});
  const CurveSet alone = MakeCurves({"mesh"}, {{{"1"}, Switching(1e-5)}});

  EXPECT_EQ(KnownCurve(copied, copied.curves[0]).LogSeconds(64, 7),
            KnownCurve(alone, alone.curves[0]).LogSeconds(64, 7));
}

TEST(KnownCurve, MovesBeyondItsLastPointAsItsSistersDo) {
  TimingTable table = MakeTable({"mesh"},
                                {{{"1"}, Switching(1e-5)},
                                 {{"2"}, Switching(1.1e-5)},
                                 {{"3"}, Switching(1.2e-5)}},
                                Doublings(20));
  // Of mesh 1 only what lies below the switch.
  table.rows.erase(table.rows.begin() + 7, table.rows.begin() + 20);
  const auto set = BuildCurves({table});
  ASSERT_TRUE(set.ok());

  const double seconds =
      std::exp(KnownCurve(*set, CurveOf(*set, {"1"})).LogSeconds(64));

  EXPECT_NEAR(seconds, Switching(1e-5)(64), 1e-7);
}

TEST(KnownCurve, GoesOnAloneBeyondItsLastPoint) {
  const CurveSet set =
      MakeCurves({"op"}, {{{"a"}, Affine(0, 1e-9)}}, {1, 2, 4, 8});

  EXPECT_NEAR(std::exp(KnownCurve(set, set.curves[0]).LogSeconds(80)), 8e-8,
              1e-12);
}

TEST(KnownCurve, OfOnePointIsThatPointEverywhere) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(2, 0)}}, {8});
  const KnownCurve known(set, set.curves[0]);

  EXPECT_DOUBLE_EQ(std::exp(known.LogSeconds(1)), 2);
  EXPECT_DOUBLE_EQ(std::exp(known.LogSeconds(80)), 2);
}

}  // namespace
}  // namespace paceline

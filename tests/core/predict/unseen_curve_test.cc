#include "core/predict/unseen_curve.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"

namespace paceline {
namespace {

Curve Unknown(const std::vector<std::string>& features) {
  Curve curve;
  curve.size_column = "elements";
  curve.features = features;
  curve.family = -1;
  return curve;
}

double Seconds(const CurveSet& set, const std::vector<std::string>& features,
               double size) {
  const UnseenCurve unseen(set, Unknown(features));
  EXPECT_TRUE(unseen.known());
  return std::exp(unseen.LogSeconds(size));
}

TEST(UnseenCurve, LearnsFromOtherPairsWhatADifferenceCosts) {
  // "slow" takes three times as long on every mesh that was measured.
  const CurveSet set =
      MakeCurves({"op", "mesh"}, {{{"fast", "a"}, Affine(1e-5, 1e-9)},
                                  {{"slow", "a"}, Affine(3e-5, 3e-9)},
                                  {{"fast", "b"}, Affine(2e-5, 2e-9)},
                                  {{"slow", "b"}, Affine(6e-5, 6e-9)},
                                  {{"fast", "c"}, Affine(5e-5, 5e-9)},
                                  {{"slow", "c"}, Affine(15e-5, 15e-9)},
                                  {{"fast", "d"}, Affine(7e-5, 7e-9)}});

  const double truth = 21e-5 + 21e-9 * 4096;

  // Three pairs against the belief that nothing changes.
  EXPECT_NEAR(Seconds(set, {"slow", "d"}, 4096), truth, 0.3 * truth);
}

TEST(UnseenCurve, AppliesRatiosOfNumbersToNumbersNeverSeen) {
  const auto with_hosts = [](double hosts) {
    return Affine(1e-5 * hosts, 1e-9 * hosts);
  };
  std::vector<CurveRecipe> recipes;
  for (const int hosts : {1, 2, 4, 8}) {
    recipes.push_back({{std::to_string(hosts)}, with_hosts(hosts)});
  }
  const CurveSet set = MakeCurves({"hosts"}, recipes);

  const double seconds = Seconds(set, {"16"}, 1024);

  EXPECT_GT(seconds, 1.5 * with_hosts(8)(1024));
  EXPECT_LT(seconds, 1.2 * with_hosts(16)(1024));
}

TEST(UnseenCurve, ComparesTypesAtEqualBytesWhereOtherPairsDo) {
  // Time goes with bytes.
  const auto of_bytes = [](double factor, double bytes) {
    return [=](double size) { return factor * (1e-5 + 1e-9 * bytes * size); };
  };
  const CurveSet set = MakeCurves({"mesh", "dtype"},
                                  {{{"a", "f16"}, of_bytes(1, 2)},
                                   {{"a", "f32"}, of_bytes(1, 4)},
                                   {{"b", "f16"}, of_bytes(2, 2)},
                                   {{"b", "f32"}, of_bytes(2, 4)},
                                   {{"c", "f16"}, of_bytes(3, 2)}},
                                  Doublings(25));

  const double truth = of_bytes(3, 4)(1 << 20);

  EXPECT_NEAR(Seconds(set, {"c", "f32"}, 1 << 20), truth, 0.02 * truth);
}

TEST(UnseenCurve, ReadsNoPointOfTheCurveNorOfItsCopies) {
  const auto set_with = [](double factor) {
    return MakeCurves({"op", "mesh"},
                      {{{"x", "a"}, Affine(1e-5 * factor, 1e-9 * factor)},
                       {{"x", "copy"}, Affine(1e-5 * factor, 1e-9 * factor)},
                       {{"y", "a"}, Affine(2e-5, 2e-9)},
                       {{"y", "b"}, Affine(3e-5, 3e-9)},
                       {{"z", "a"}, Affine(4e-5, 5e-9)}});
  };
  const CurveSet one = set_with(1);
  const CurveSet other = set_with(1000);

  EXPECT_EQ(UnseenCurve(one, CurveOf(one, {"x", "a"})).LogSeconds(100),
            UnseenCurve(other, CurveOf(other, {"x", "a"})).LogSeconds(100));
}

TEST(UnseenCurve, WithoutAPairIsTheMostSimilarCurve) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1e-5, 1e-9)}});

  EXPECT_NEAR(Seconds(set, {"new"}, 4), 1e-5 + 4e-9, 1e-12);
}

// Two words, two numbers of hosts, all four combinations but ("b", "2").
CurveSet ThreeOfFour() {
  return MakeCurves({"op", "hosts"}, {{{"a", "1"}, Affine(1e-5, 1e-9)},
                                      {{"b", "1"}, Affine(2e-5, 2e-9)},
                                      {{"a", "2"}, Affine(3e-5, 3e-9)}});
}

TEST(UnseenCurve, IsAsRemoteAsTheFeaturesThatDiffer) {
  const CurveSet set = ThreeOfFour();

  EXPECT_EQ(UnseenCurve(set, Unknown({"b", "2"})).distance(), 1);
  // 4 hosts are more than were ever measured.
  EXPECT_EQ(UnseenCurve(set, Unknown({"a", "4"})).distance(), 2);
}

TEST(UnseenCurve, SaysWhenNoPairTellsWhatADifferenceCosts) {
  EXPECT_EQ(UnseenCurve(ThreeOfFour(), Unknown({"c", "1"})).distance(),
            UnseenCurve::kNoPair);
}

TEST(UnseenCurve, LeavesOutCurvesThatAreTooMuchAlike) {
  const CurveSet set =
      MakeCurves({"op", "dtype"}, {{{"a", "x"}, Affine(1e-5, 0)},
                                   {{"a", "y"}, Affine(2e-5, 0)},
                                   {{"b", "y"}, Affine(9e-5, 0)}});
  const Curve& target = CurveOf(set, {"a", "x"});

  EXPECT_NEAR(std::exp(UnseenCurve(set, target, 2).LogSeconds(4)), 9e-5, 1e-12);
  EXPECT_FALSE(UnseenCurve(set, target, 3).known());
}

TEST(UnseenCurve, IsUnknownWhenNothingCountsTheSameSizes) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(1e-5, 1e-9)}});
  Curve flops = Unknown({"a"});
  flops.size_column = "flops";

  EXPECT_FALSE(UnseenCurve(set, flops).known());
}

}  // namespace
}  // namespace paceline

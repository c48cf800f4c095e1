#include "core/predict/curve.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

CurveSet Built(const std::vector<std::string>& texts) {
  std::vector<TimingTable> tables;
  for (const std::string& text : texts) {
    tables.push_back(Value(ParseTimingCsv("t.csv", text)));
  }
  return BuildCurves(tables);
}

TEST(Curves, SortSizesAndMergeRepeatsOfOneByTheirMedian) {
  const CurveSet set = Built(
      {"op,elements,seconds\na,4,9\na,4,1\na,4,2\na,8,1\na,8,3\na,0,1\n"});

  ASSERT_EQ(set.curves.size(), 1);
  EXPECT_THAT(set.curves[0].sizes, ElementsAre(0, 4, 8));
  EXPECT_THAT(set.curves[0].seconds, ElementsAre(1, 2, 2));
}

TEST(Curves, OfTablesWithOtherColumnsLiveInOneSet) {
  const CurveSet set = Built({"op,dtype,elements,seconds\na,f32,1,1\n",
                              "dtype,hosts,flops,seconds\nf16,2,1,1\n"});

  EXPECT_THAT(set.columns, ElementsAre("op", "dtype", "hosts"));
  ASSERT_EQ(set.curves.size(), 2);
  EXPECT_EQ(set.curves[0].size_column, "elements");
  EXPECT_THAT(set.curves[0].features, ElementsAre("a", "f32", ""));
  EXPECT_THAT(set.curves[1].features, ElementsAre("", "f16", "2"));
}

TEST(Curves, WithTheSameMeasurementsAreOneFamily) {
  const CurveSet set = MakeCurves(
      {"mesh"},
      {{{"1"}, Affine(1, 1)}, {{"2"}, Affine(1, 1)}, {{"3"}, Affine(1, 2)}});

  EXPECT_EQ(set.curves[0].family, set.curves[1].family);
  EXPECT_NE(set.curves[0].family, set.curves[2].family);
}

TEST(Curves, OfManyRowsAreBuiltInTimeThatGrowsWithTheRows) {
  std::string text = "op,elements,seconds\n";
  for (int row = 0; row < 200000; ++row) {
    absl::StrAppend(&text, "op", row % 5000, ",", row / 5000, ",1e-5\n");
  }

  const CurveSet set = Built({text});

  ASSERT_EQ(set.curves.size(), 5000);
  for (const Curve& curve : set.curves) EXPECT_EQ(curve.points(), 40);
}

TEST(LogSecondsAt, IsTheLineBetweenNeighboursAndABoundedSlopeBeyond) {
  const auto at = [](std::vector<double> sizes, std::vector<double> seconds,
                     double size) {
    Curve curve;
    curve.sizes = std::move(sizes);
    curve.seconds = std::move(seconds);
    return std::exp(LogSecondsAt(curve, size));
  };

  EXPECT_DOUBLE_EQ(at({0, 4, 8}, {1, 2, 4}, 4), 2);
  EXPECT_DOUBLE_EQ(at({0, 4, 8}, {1, 2, 4}, 6), 3);
  EXPECT_DOUBLE_EQ(at({0, 4, 8}, {1, 2, 4}, 16), 8);
  EXPECT_DOUBLE_EQ(at({1, 2}, {2, 1}, 8), 1) << "never falls";
  EXPECT_NEAR(at({1, 2}, {1, 100}, 8), 400, 1e-9) << "no faster than the size";
}

TEST(ElementBytesOf, ReadsTheBitsInAName) {
  EXPECT_EQ(ElementBytesOf("f16"), 2);
  EXPECT_EQ(ElementBytesOf("bf16"), 2);
  EXPECT_EQ(ElementBytesOf("float32"), 4);
  EXPECT_EQ(ElementBytesOf("int8"), 1);
  EXPECT_EQ(ElementBytesOf("fp8e4m3"), 1);
  EXPECT_EQ(ElementBytesOf("half"), 0);
}

// --- predictions
// --------------------------------------------------------------

// Twice as slow from 64 on: a protocol switch.
TimeOf Switching(double latency_seconds) {
  return [=](double size) {
    return (latency_seconds + 1e-9 * size) * (size >= 64 ? 2 : 1);
  };
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
      std::exp(KnownCurve(alone, alone.curves[0]).LogSeconds(64, {7, 8}));
  const double with =
      std::exp(KnownCurve(sisters, sisters.curves[0]).LogSeconds(64, {7, 8}));

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
      std::exp(KnownCurve(set, set.curves[0]).LogSeconds(1024, {11, 12}));

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
    auto& points = table.measurements[{"1", "f16"}];
    points.erase(points.begin() + p);
    const auto rest = BuildCurves({table});

    const KnownCurve never(rest, CurveOf(rest, {"1", "f16"}));

    EXPECT_EQ(known.LogSeconds(whole.sizes[p], {p, p + 1}),
              never.LogSeconds(whole.sizes[p]))
        << "point " << p;
  }
}

TEST(KnownCurve, TakesNothingFromCopiesOfItself) {
  const CurveSet copied = MakeCurves(
      {"mesh"}, {{{"1"}, Switching(1e-5)}, {{"2"}, Switching(1e-5)}});
  const CurveSet alone = MakeCurves({"mesh"}, {{{"1"}, Switching(1e-5)}});

  EXPECT_EQ(KnownCurve(copied, copied.curves[0]).LogSeconds(64, {7, 8}),
            KnownCurve(alone, alone.curves[0]).LogSeconds(64, {7, 8}));
}

TEST(KnownCurve, MovesBeyondItsLastPointAsItsSistersDo) {
  TimingTable table = MakeTable({"mesh"},
                                {{{"1"}, Switching(1e-5)},
                                 {{"2"}, Switching(1.1e-5)},
                                 {{"3"}, Switching(1.2e-5)}},
                                Doublings(20));
  // Mesh 1 keeps only the points below the switch.
  table.measurements[{"1"}].resize(7);
  const auto set = BuildCurves({table});

  const double seconds =
      std::exp(KnownCurve(set, CurveOf(set, {"1"})).LogSeconds(64));

  EXPECT_NEAR(seconds, Switching(1e-5)(64), 1e-7);
}

TEST(KnownCurve, OfOnePointIsThatPointEverywhere) {
  const CurveSet set = MakeCurves({"op"}, {{{"a"}, Affine(2, 0)}}, {8});
  const KnownCurve known(set, set.curves[0]);

  EXPECT_DOUBLE_EQ(std::exp(known.LogSeconds(1)), 2);
  EXPECT_DOUBLE_EQ(std::exp(known.LogSeconds(80)), 2);
}

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

constexpr char kHeader[] = "op,dtype,elements,seconds\n";

std::string ErrorOf(absl::string_view text) {
  const auto table = ParseTimingCsv("t.csv", text);
  EXPECT_FALSE(table.ok());
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(table.status().message());
}

TEST(TimingCsv, ReadsSizesSecondsAndFeaturesByName) {
  const auto table = Value(ParseTimingCsv(
      "t.csv", "seconds,op,flops,colour\n2e-5,dot,0,red\n3e-5,dot,64,red\n"));

  EXPECT_EQ(table.size_column, "flops");
  EXPECT_THAT(table.columns, ElementsAre("op", "colour"));
  EXPECT_THAT(table.measurements,
              ElementsAre(Pair(ElementsAre("dot", "red"),
                               ElementsAre(Pair(0, 2e-5), Pair(64, 3e-5)))));
}

TEST(TimingCsv, TakesByteOrderMarksCarriageReturnsAndEmptyLines) {
  const auto table = Value(ParseTimingCsv(
      "t.csv", "\xef\xbb\xbfop,bytes,seconds\r\n\r\nx,1,2\r\n\n"));

  EXPECT_EQ(table.columns.front(), "op");
  EXPECT_EQ(table.measurements.size(), 1);
}

TEST(TimingCsv, DropsTimesThatAreNotFiniteAndPositiveAndCountsThem) {
  const auto table = ParseTimingCsv(
      "t.csv", absl::StrCat(kHeader, "a,f32,1,inf\na,f32,2,nan\na,f32,3,0\n",
                            "a,f32,4,-1\na,f32,5,1\n"));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->dropped_rows, 4);
  EXPECT_THAT(table->measurements,
              ElementsAre(Pair(_, ElementsAre(Pair(5, 1)))));
}

TEST(TimingCsv, WithoutAUsableTimeIsRefused) {
  EXPECT_THAT(ErrorOf("op,elements,seconds\na,1,inf\na,2,nan\n"),
              HasSubstr("t.csv: none of its 2 times is finite and positive"));
}

TEST(TimingCsv, NamesFileLineAndWhatIsWrong) {
  const std::pair<std::string, std::string> texts[] = {
      {"", "t.csv:1: is empty"},
      {"\n\n", "is empty"},
      {kHeader, "no measurement"},
      {absl::StrCat(kHeader, "a,f32,1,1.73328"),
       "t.csv:2: the last line has no line break"},
      {"op,elements,millis\na,1,2\n", "t.csv:1: no column 'seconds'"},
      {"op,seconds\na,1\n", "got none"},
      {"elements,bytes,seconds\n1,4,1\n", "got elements and bytes"},
      {"op,op,elements,seconds\n", "'op' twice"},
      {"op,,elements,seconds\n", "column 2 of the header has no name"},
      {std::string("\x7f\x45LF\x02\x01\0\0\n", 9),
       "t.csv:1: is no text: byte 0x02"}};
  for (const auto& [text, why] : texts) {
    EXPECT_THAT(ErrorOf(text), HasSubstr(why));
  }
  const std::pair<std::string, std::string> rows[] = {
      {"a,f32,2",
       "t.csv:3: got 3 cells, need 4 (op,dtype,elements,seconds): is the file "
       "cut off?"},
      {"a,f32,2,1,9", "3: got 5 cells, need 4"},
      {"a,f32,-4,1", "t.csv:3: elements is -4, need a finite number"},
      {"a,f32,nan,1", "t.csv:3: elements is nan"},
      {"a,f32,inf,1", "t.csv:3: elements is inf"},
      {"a,f32,many,1", "t.csv:3: elements 'many' is no number"},
      {"a,f32,,1", "t.csv:3: elements '' is no number"},
      {"a,f32,4,fast", "t.csv:3: seconds 'fast' is no number"},
      {"a,f32,4,", "t.csv:3: seconds '' is no number"},
      {std::string("a,f32,4\0,1", 10), "t.csv:3: is no text: byte 0x00"},
      {"a,f32,\xff\xfe,1", "'\\xff\\xfe'"}};
  for (const auto& [row, why] : rows) {
    EXPECT_THAT(ErrorOf(absl::StrCat(kHeader, "a,f32,1,0.5\n", row, "\n")),
                HasSubstr(why));
  }
}

}  // namespace
}  // namespace paceline

#include "core/predict/curve.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/predict/curves.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TimingTable Parsed(absl::string_view text) {
  auto table = ParseTimingCsv("t.csv", text);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

CurveSet Built(const std::vector<TimingTable>& tables) {
  auto set = BuildCurves(tables);
  EXPECT_TRUE(set.ok()) << set.status();
  return *std::move(set);
}

TEST(Curves, MergeRepeatsOfOneSizeByTheirMedian) {
  const CurveSet set = Built(
      {Parsed("op,elements,seconds\na,4,9\na,4,1\na,4,2\na,8,1\na,8,3\n")});

  ASSERT_EQ(set.curves.size(), 1);
  EXPECT_THAT(set.curves[0].sizes, ElementsAre(4, 8));
  EXPECT_THAT(set.curves[0].seconds, ElementsAre(2, 2));
}

TEST(Curves, KeepSizeZeroAndSortSizes) {
  const CurveSet set =
      Built({Parsed("op,elements,seconds\na,4,3\na,0,1\na,2,2\n")});

  EXPECT_THAT(set.curves[0].sizes, ElementsAre(0, 2, 4));
  EXPECT_THAT(set.curves[0].seconds, ElementsAre(1, 2, 3));
}

TEST(Curves, OfTablesWithOtherColumnsLiveInOneSet) {
  const CurveSet set =
      Built({Parsed("op,dtype,elements,seconds\na,f32,1,1\n"),
             Parsed("dtype,hosts,flops,seconds\nf16,2,1,1\n")});

  EXPECT_THAT(set.columns, ElementsAre("op", "dtype", "hosts"));
  EXPECT_THAT(set.numeric, ElementsAre(false, false, true));
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

TEST(Curves, OfATableWithoutAUsableTimeAreRefused) {
  const auto set =
      BuildCurves({Parsed("op,elements,seconds\na,1,inf\na,2,nan\n")});

  EXPECT_EQ(set.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(set.status().message()),
              HasSubstr("t.csv: none of its 2 times is finite and positive"));
}

TEST(Curves, OfManyRowsAreBuiltInTimeThatGrowsWithTheRows) {
  std::string text = "op,elements,seconds\n";
  for (int row = 0; row < 200000; ++row) {
    absl::StrAppend(&text, "op", row % 5000, ",", row / 5000, ",1e-5\n");
  }

  const CurveSet set = Built({Parsed(text)});

  EXPECT_EQ(set.curves.size(), 5000);
  EXPECT_EQ(set.points(), 200000);
}

TEST(LogSecondsAt, IsTheLineBetweenNeighboursAndTheSlopeBeyond) {
  Curve curve;
  curve.sizes = {0, 4, 8};
  curve.seconds = {1, 2, 4};

  EXPECT_DOUBLE_EQ(std::exp(LogSecondsAt(curve, 4)), 2);
  EXPECT_DOUBLE_EQ(std::exp(LogSecondsAt(curve, 6)), 3);
  EXPECT_DOUBLE_EQ(std::exp(LogSecondsAt(curve, 16)), 8);
}

TEST(LogSecondsAt, NeverFallsOrRisesFasterThanTheSizeBeyondTheLast) {
  Curve curve;
  curve.sizes = {1, 2};
  curve.seconds = {2, 1};
  EXPECT_DOUBLE_EQ(std::exp(LogSecondsAt(curve, 8)), 1);

  curve.seconds = {1, 100};
  EXPECT_NEAR(std::exp(LogSecondsAt(curve, 8)), 400, 1e-9);
}

TEST(ElementBytesOf, ReadsTheBitsInAName) {
  EXPECT_EQ(ElementBytesOf("f16"), 2);
  EXPECT_EQ(ElementBytesOf("bf16"), 2);
  EXPECT_EQ(ElementBytesOf("float32"), 4);
  EXPECT_EQ(ElementBytesOf("int8"), 1);
  EXPECT_EQ(ElementBytesOf("half"), 0);
}

}  // namespace
}  // namespace paceline

#include "core/predict/timing_csv.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kHeader[] = "op,dtype,elements,seconds\n";

std::string ErrorOf(absl::string_view text) {
  const auto table = ParseTimingCsv("t.csv", text);
  EXPECT_FALSE(table.ok());
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(table.status().message());
}

std::string ErrorOfRow(absl::string_view row) {
  return ErrorOf(absl::StrCat(kHeader, "a,f32,1,0.5\n", row, "\n"));
}

TEST(TimingCsv, ReadsSizesSecondsAndFeaturesByName) {
  const auto table = ParseTimingCsv(
      "t.csv", "seconds,op,flops,colour\n2e-5,dot,0,red\n3e-5,dot,64,red\n");

  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->size_column, "flops");
  EXPECT_THAT(table->columns, ElementsAre("op", "colour"));
  EXPECT_THAT(table->keys, ElementsAre(ElementsAre("dot", "red")));
  ASSERT_EQ(table->rows.size(), 2);
  EXPECT_EQ(table->rows[0].size, 0);
  EXPECT_EQ(table->rows[1].size, 64);
  EXPECT_EQ(table->rows[1].seconds, 3e-5);
}

TEST(TimingCsv, TakesByteOrderMarksCarriageReturnsAndEmptyLines) {
  const auto table = ParseTimingCsv(
      "t.csv", "\xef\xbb\xbfop,bytes,seconds\r\n\r\nx,1,2\r\n\n");

  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->columns.front(), "op");
  EXPECT_EQ(table->rows.size(), 1);
}

TEST(TimingCsv, DropsTimesThatAreNotFiniteAndPositiveAndCountsThem) {
  const auto table = ParseTimingCsv(
      "t.csv", absl::StrCat(kHeader, "a,f32,1,inf\na,f32,2,nan\na,f32,3,0\n",
                            "a,f32,4,-1\na,f32,5,1\n"));

  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->dropped_rows, 4);
  ASSERT_EQ(table->rows.size(), 1);
  EXPECT_EQ(table->rows[0].size, 5);
}

TEST(TimingCsv, LeavesItToTheCurvesThatNoTimeIsUsable) {
  const auto table =
      ParseTimingCsv("t.csv", absl::StrCat(kHeader, "a,f32,1,inf\n"));

  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->rows, IsEmpty());
  EXPECT_EQ(table->dropped_rows, 1);
}

TEST(TimingCsv, NamesTheLineOfARowThatIsCutOff) {
  EXPECT_EQ(ErrorOfRow("a,f32,2"),
            "t.csv:3: got 3 cells, need 4 (op,dtype,elements,seconds): is the "
            "file cut off?");
}

TEST(TimingCsv, RefusesALastLineThatMayHaveLostDigits) {
  EXPECT_THAT(ErrorOf(absl::StrCat(kHeader, "a,f32,1,1.73328")),
              HasSubstr("t.csv:2: the last line has no line break"));
}

TEST(TimingCsv, RefusesMoreCellsThanColumns) {
  EXPECT_THAT(ErrorOfRow("a,f32,2,1,9"), HasSubstr("3: got 5 cells, need 4"));
}

TEST(TimingCsv, RefusesSizesThatAreNegativeNotFiniteOrNoNumber) {
  EXPECT_THAT(ErrorOfRow("a,f32,-4,1"),
              HasSubstr("t.csv:3: elements is -4, need a finite number"));
  EXPECT_THAT(ErrorOfRow("a,f32,nan,1"), HasSubstr("t.csv:3: elements is nan"));
  EXPECT_THAT(ErrorOfRow("a,f32,inf,1"), HasSubstr("t.csv:3: elements is inf"));
  EXPECT_THAT(ErrorOfRow("a,f32,many,1"),
              HasSubstr("t.csv:3: elements 'many' is no number"));
  EXPECT_THAT(ErrorOfRow("a,f32,,1"),
              HasSubstr("t.csv:3: elements '' is no number"));
}

TEST(TimingCsv, RefusesSecondsThatAreNoNumber) {
  EXPECT_THAT(ErrorOfRow("a,f32,4,fast"),
              HasSubstr("t.csv:3: seconds 'fast' is no number"));
  EXPECT_THAT(ErrorOfRow("a,f32,4,"),
              HasSubstr("t.csv:3: seconds '' is no number"));
}

TEST(TimingCsv, RefusesAHeaderWithoutSeconds) {
  EXPECT_THAT(ErrorOf("op,elements,millis\na,1,2\n"),
              HasSubstr("t.csv:1: no column 'seconds'"));
}

TEST(TimingCsv, RefusesNoAndTwoSizeColumns) {
  EXPECT_THAT(ErrorOf("op,seconds\na,1\n"), HasSubstr("got none"));
  EXPECT_THAT(ErrorOf("elements,bytes,seconds\n1,4,1\n"),
              HasSubstr("got elements and bytes"));
}

TEST(TimingCsv, RefusesColumnsNamedTwiceOrNotAtAll) {
  EXPECT_THAT(ErrorOf("op,op,elements,seconds\n"), HasSubstr("'op' twice"));
  EXPECT_THAT(ErrorOf("op,,elements,seconds\n"),
              HasSubstr("column 2 of the header has no name"));
}

TEST(TimingCsv, RefusesAnEmptyFileAndAHeaderAlone) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("t.csv:1: is empty"));
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf(kHeader), HasSubstr("no measurement"));
}

TEST(TimingCsv, RefusesWhatIsNoText) {
  const std::string elf("\x7f\x45LF\x02\x01\0\0\n", 9);

  EXPECT_THAT(ErrorOf(elf), HasSubstr("t.csv:1: is no text: byte 0x02"));
  EXPECT_THAT(ErrorOfRow(absl::string_view("a,f32,4\0,1", 10)),
              HasSubstr("t.csv:3: is no text: byte 0x00"));
}

TEST(TimingCsv, ShowsStrangeCellsWithoutTheirBytes) {
  EXPECT_THAT(ErrorOfRow("a,f32,\xff\xfe,1"), HasSubstr("'\\xff\\xfe'"));
}

}  // namespace
}  // namespace paceline

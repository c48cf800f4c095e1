#include "absl/strings/str_cat.h"
#include "core/predict/curve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

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

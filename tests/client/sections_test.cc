#include "client/render/sections.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/render/chart.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kHostile[] = "<b>\"x\"&'y'</b>";

// How often `part` stands in `text`.
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Report WithRows(size_t rows) {
  Section section = {
      .name = "loss", .title = "Loss", .titles = {"job", "step"}};
  for (size_t row = 0; row < rows; ++row) {
    section.rows.push_back({"7", absl::StrCat("row ", row)});
  }
  Report report;
  report.sections.push_back(section);
  return report;
}

TEST(EscapeHtml, LeavesNoMarkupAndNoControlCharacter) {
  EXPECT_EQ(EscapeHtml(kHostile),
            "&lt;b&gt;&quot;x&quot;&amp;&#39;y&#39;&lt;/b&gt;");
  EXPECT_EQ(EscapeHtml("a\x01"
                       "b\x1b[31m\xff"),
            "a?b?[31m\xEF\xBF\xBD");
}

// --- Charts -----------------------------------------------------------------

TEST(LineChart, LeavesGapsWhereNothingIsFinite) {
  const LineChart chart = {
      .what = "loss",
      .x_name = "step",
      .lines = {{"7", {{1, NAN}, {2, 1}, {3, HUGE_VAL}, {4, 2}, {5, 3}}}}};

  const std::string svg = RenderLineChart(chart);

  // A lone point, then a line of two.
  EXPECT_EQ(Count(svg, "h0"), 2);
  EXPECT_THAT(svg, HasSubstr("h0L708.0 12.0\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LineChart, IsEmptyWithoutAPoint) {
  EXPECT_EQ(RenderLineChart({.what = "loss", .marks = {{3, "here"}}}), "");
  EXPECT_EQ(RenderLineChart({.what = "loss", .lines = {{"7", {{1, NAN}}}}}),
            "");
}

TEST(LineChart, DrawsOneValueAndHugeValues) {
  for (const auto& points : {std::vector<std::pair<double, double>>{{1, 0}},
                             {{1, 5}, {2, 5}},
                             {{1, -9e99}, {2, 9e99}},
                             {{1e15, 1}, {1e15 + 2, 2}}}) {
    const std::string svg = RenderLineChart({.lines = {{"7", points}}});

    EXPECT_THAT(svg, HasSubstr("class=\"line c0\""));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(LineChart, ShowsMarksBesideTheLinesToo) {
  const std::string svg = RenderLineChart(
      {.lines = {{"7", {{10, 1}, {20, 2}}}}, .marks = {{0, "attempt 2"}}});

  EXPECT_THAT(svg, Says("attempt 2", "M64.0 12.0L64.0 252.0\" class=\"mark\""));
}

TEST(LineChart, DashesLinesThatShareAColor) {
  LineChart chart;
  for (int i = 0; i < 9; ++i) chart.lines.push_back({"7", {{1, 1}}});

  EXPECT_EQ(Count(RenderLineChart(chart), "class=\"line c0"), 2);
  EXPECT_EQ(Count(RenderLineChart(chart), "class=\"line c0 dashed\""), 1);
}

TEST(BarChart, LaysBarsOnOneAxisAndNamesThoseWithRoom) {
  const BarChart chart = {.rows = {"w1", "w2"},
                          .legend = {"forward", "backward"},
                          .bars = {{0, 0, 50, 0, "half"},
                                   {1, 50, 49.9, 1, "later"},
                                   {1, 99.9, 0.1, 1, "thin"}}};

  const std::string svg = RenderBarChart(chart);

  EXPECT_THAT(svg, HasSubstr("<rect x=\"132.0\" y=\"14.0\" width=\"288.00\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"420.0\" y=\"38.0\" width=\"287.42\""));
  EXPECT_EQ(Count(svg, ">half<"), 2) << "a tooltip and a text";
  EXPECT_EQ(Count(svg, ">thin<"), 1) << "a tooltip";
}

TEST(BarChart, IsEmptyWithoutABar) {
  EXPECT_EQ(RenderBarChart({.rows = {"w1"}}), "");
}

TEST(Charts, EscapeAllThatTheyAreGiven) {
  const LineChart lines = {.what = kHostile,
                           .x_name = kHostile,
                           .lines = {{kHostile, {{1, 1}, {2, 2}}}},
                           .marks = {{1, kHostile}}};
  const BarChart bars = {.what = kHostile,
                         .axis = kHostile,
                         .rows = {kHostile},
                         .legend = {kHostile},
                         .bars = {{0, 0, 1, 0, kHostile}}};

  for (const std::string& svg :
       {RenderLineChart(lines), RenderBarChart(bars)}) {
    EXPECT_THAT(svg, HasSubstr("&lt;b&gt;"));
    EXPECT_THAT(svg, Not(HasSubstr("<b>")));
    EXPECT_THAT(svg, Not(HasSubstr("\"x\"")));
  }
}

// --- Forms ------------------------------------------------------------------

TEST(Html, EscapesAllThatItIsGiven) {
  Report report = WithRows(0);
  report.title = kHostile;
  report.notes = {kHostile};
  report.sections[0].title = kHostile;
  report.sections[0].notes = {kHostile};
  report.sections[0].titles = {kHostile};
  report.sections[0].rows = {{kHostile}};

  const std::string html = HtmlOf(report);

  EXPECT_EQ(Count(html, "&lt;b&gt;"), 7) << "the title stands twice";
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
}

TEST(Html, FoldsALongTableAndLeavesOutTheMiddleOfAVeryLongOne) {
  EXPECT_THAT(HtmlOf(WithRows(0)), HasSubstr("Nothing to show"));
  EXPECT_THAT(HtmlOf(WithRows(kMostOpenRows)), Not(HasSubstr("<details>")));
  EXPECT_THAT(HtmlOf(WithRows(kMostOpenRows + 1)), HasSubstr("<details>"));
  EXPECT_THAT(HtmlOf(WithRows(kMostHtmlRows)), Not(HasSubstr("left out")));

  const std::string html = HtmlOf(WithRows(10'000));

  EXPECT_THAT(html, HasSubstr("8000 rows are left out"));
  EXPECT_EQ(Count(html, ">row "), static_cast<int>(kMostHtmlRows));
  EXPECT_THAT(html, Says(">row 999<", ">row 9000<", ">row 9999<"));
  EXPECT_THAT(html, Not(HasSubstr(">row 1000<")));
}

TEST(Csv, HasEveryRowBehindTheNameOfItsTable) {
  Report report = WithRows(3000);
  report.sections[0].rows[0] = {"a,b", "say \"no\"\nor not"};

  const std::string csv = CsvOf(report);

  EXPECT_EQ(csv.rfind("loss,job,step\nloss,\"a,b\",\"say \"\"no\"\" or not\"\n"
                      "loss,7,row 1\n",
                      0),
            0u)
      << csv.substr(0, 100);
  EXPECT_EQ(Count(csv, "\nloss,"), 3000);
  EXPECT_EQ(CsvOf(WithRows(0)), "");
}

TEST(Csv, HasNoCellThatASpreadsheetTakesForAFormula) {
  Report report = WithRows(1);
  report.sections[0].rows = {{"=1+1", "-inf"}, {"@a,b", "+2"}, {"-x", "a=b"}};

  EXPECT_THAT(CsvOf(report), Says("loss,'=1+1,-inf\n", "loss,\"'@a,b\",+2\n",
                                  "loss,'-x,a=b\n"));
}

TEST(Forms, AlignAColumnAsNumbersOnlyWhereAllItsCellsAre) {
  Report report = WithRows(1);
  report.sections[0].rows = {{"1e5", ""}, {"train", "nan"}, {"2", "3"}};

  EXPECT_THAT(LatexOf(report), HasSubstr("{tabular}{lr}"));
  EXPECT_THAT(HtmlOf(report), Says("<td>1e5<", "<td class=\"n\">nan<"));
}

TEST(Latex, EscapesAndAlignsCells) {
  Report report = WithRows(1);
  report.sections[0].rows = {{"50% of {a_b} & $c #1", "2.5"},
                             {"~\\^<>|", "-3"}};

  const std::string latex = LatexOf(report);

  EXPECT_THAT(latex, Says("\\begin{tabular}{lr}", "\\label{tab:loss}",
                          "50\\% of \\{a\\_b\\} \\& \\$c \\#1 & 2.5 \\\\\n",
                          "\\texttt{\\symbol{126}}\\texttt{\\symbol{92}}"));
}

TEST(Latex, LeavesOutALongTableAndSaysSo) {
  const std::string latex = LatexOf(WithRows(kMostOpenRows + 1));

  EXPECT_THAT(latex, Says("% loss: 41 rows", "--format csv"));
  EXPECT_THAT(latex, Not(HasSubstr("tabular")));
  EXPECT_THAT(LatexOf(WithRows(0)), Not(HasSubstr("loss")));
}

}  // namespace
}  // namespace paceline

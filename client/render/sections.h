// A report as data, sections with a table and charts, and the forms that it is
// printed in.  Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

// Charts as SVG, and the escaping that all HTML of the client goes through.
// Colors are the classes c0 to c7 and text has the color of the page, so that
// the page's style decides for light and dark.

// `text` for an element or a quoted attribute of HTML or XML.  Neither of them
// may hold control characters; each becomes '?'.
std::string EscapeHtml(absl::string_view text);

struct ChartLine {
  std::string name = {};
  // (x, y) by x.  A y that is not finite leaves a gap.
  std::vector<std::pair<double, double>> points = {};
};

struct LineChart {
  std::string what = {};    // for those who hear the page: "loss over steps"
  std::string x_name = {};  // below the axis: "step"
  std::vector<ChartLine> lines = {};
  // Vertical lines: (x, text).
  std::vector<std::pair<double, std::string>> marks = {};
};

// The chart with a legend; empty where there is nothing to draw.  Over more
// than three decades its scale is logarithmic.  A line that has left the others
// far below is clipped.
std::string RenderLineChart(const LineChart& chart);

struct ChartBar {
  size_t row = 0;
  double begin = 0;
  double length = 0;
  size_t color = 0;        // index into the legend
  std::string label = {};  // in the bar where there is room, and as its tooltip
};

// Rows of bars that lie on one axis from 0 on: shares of a whole, or what
// happened when.
struct BarChart {
  std::string what = {};
  std::string axis = {};  // "% of the time", "ms"
  std::vector<std::string> rows = {};
  std::vector<std::string> legend = {};
  std::vector<ChartBar> bars = {};
};

// As above.
std::string RenderBarChart(const BarChart& chart);

struct Section {
  std::string name = {};   // one word: "time-split"
  std::string title = {};  // for people
  std::vector<std::string> notes = {};
  std::vector<std::string> titles = {};             // of the columns
  std::vector<std::vector<std::string>> rows = {};  // each as long as `titles`
  std::vector<std::string> charts = {};             // as made above
  // The table is what the report is about: it stands open, before the charts.
  bool leads = false;
};

struct Report {
  std::string title = {};
  std::vector<std::string> notes = {};
  std::vector<Section> sections = {};
};

// Longer tables are folded in HTML and left out of LaTeX, but those that lead.
inline constexpr size_t kMostOpenRows = 40;
// Beside a chart, which shows the same, HTML folds one sooner.
inline constexpr size_t kMostRowsBesideCharts = 12;
// HTML shows no more rows of a table: the first half and the last half.
inline constexpr size_t kMostHtmlRows = 2000;

// A page that needs nothing from outside and no JavaScript.
std::string HtmlOf(const Report& report);

// All rows of all tables.  Each line begins with its section's name, so that
// `grep ^NAME,` gives one table with its titles.
std::string CsvOf(const Report& report);

// A `table` a section, which needs no package; an empty section has none.
std::string LatexOf(const Report& report);

struct ReportForm {
  const char* name;
  const char* ending;  // of a file's name
  std::string (*print)(const Report&);
  bool plain = false;  // numbers for programs
};
inline constexpr ReportForm kReportForms[] = {{"html", ".html", HtmlOf},
                                              {"csv", ".csv", CsvOf, true},
                                              {"latex", ".tex", LatexOf}};

}  // namespace paceline

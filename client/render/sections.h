// A report as data, sections with a table and charts, and the forms that it is
// printed in.  Pure.
#pragma once

#include <string>
#include <vector>

namespace paceline {

struct Section {
  std::string name = {};   // one word: "time-split"
  std::string title = {};  // for people
  std::vector<std::string> notes = {};
  std::vector<std::string> titles = {};             // of the columns
  std::vector<std::vector<std::string>> rows = {};  // each as long as `titles`
  std::vector<std::string> charts = {};  // as client/render/chart.h makes them
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

}  // namespace paceline

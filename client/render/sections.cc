#include "client/render/sections.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/values/text.h"
#include "core/base/text.h"

namespace paceline {
namespace {

// --- charts -----------------------------------------------------------------

// Pixels of the drawing, which the page scales.
constexpr double kWidth = 720;
constexpr double kLineHeight = 240;
constexpr double kRowHeight = 24;
constexpr double kAxisHeight = 34;
constexpr double kTop = 12;
constexpr double kRight = 12;
constexpr double kLineLeft = 64;
constexpr double kBarLeft = 132;
constexpr int kRowNameColumns = 44;
constexpr double kLetter = 6.5;  // the width of one, about
constexpr size_t kColors = 8;
constexpr double kDecades = 1e3;     // a wider range has a logarithmic scale
constexpr double kGreatest = 1e100;  // beyond it differences may be infinite

bool IsDrawable(double value) { return std::abs(value) < kGreatest; }

// Maps [least, most] to [from, to] pixels; what lies beyond is at the edge.
struct Scale {
  double least;
  double most;
  double from;
  double to;
  bool log = false;  // least > 0

  double operator()(double value) const {
    value = std::clamp(value, least, most);
    const double part = log ? std::log(value / least) / std::log(most / least)
                            : (value - least) / (most - least);
    return from + part * (to - from);
  }
};

// A range of one value gets some room.
Scale ScaleOf(double least, double most, double from, double to) {
  if (!(most > least)) {
    const double room = std::max(std::abs(least) / 10, 1e-9);
    least -= room;
    most += room;
  }
  return {least, most, from, to};
}

// About five round numbers of the scale.
std::vector<double> Ticks(const Scale& scale) {
  if (scale.log) {
    std::vector<double> ticks;
    const double first = std::ceil(std::log10(scale.least) - 1e-9);
    const double last = std::log10(scale.most) + 1e-9;
    const double each = std::max(1.0, std::ceil((last - first) / 6));
    for (double power = first; power <= last; power += each) {
      ticks.push_back(std::pow(10, power));
    }
    return ticks;
  }
  const double rough = (scale.most - scale.least) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5, 2, 1}) {
    if (rough <= factor * power) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::ceil(scale.least / step);
  for (int i = 0; i <= 6; ++i) {
    const double tick = (first + i) * step;
    if (tick <= scale.most) ticks.push_back(tick);
  }
  return ticks;
}

std::string ClassOf(size_t color) { return absl::StrCat("c", color % kColors); }

std::string TextAt(double x, double y, absl::string_view anchor,
                   absl::string_view text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n",
                         x, y, anchor, EscapeHtml(text));
}

std::string RuleAt(double x1, double y1, double x2, double y2,
                   absl::string_view style) {
  return absl::StrFormat("<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"%s\"/>\n",
                         x1, y1, x2, y2, style);
}

// The axis below a drawing, whose lower edge is at `y`.
std::string HorizontalAxis(const Scale& scale, double y,
                           absl::string_view name) {
  std::string body;
  for (const double tick : Ticks(scale)) {
    const std::string text = HumanNumber(tick);
    const bool fits = scale(tick) + kLetter * DisplayWidth(text) / 2 < kWidth;
    absl::StrAppend(&body, RuleAt(scale(tick), kTop, scale(tick), y, "grid"),
                    TextAt(fits ? scale(tick) : kWidth - 2, y + 14,
                           fits ? "mid" : "end", text));
  }
  return absl::StrCat(body,
                      TextAt((scale.from + scale.to) / 2, y + 29, "mid", name));
}

std::string Drawing(absl::string_view what, double height,
                    absl::string_view body) {
  return absl::StrFormat(
      "<div class=\"scroll\"><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
      "aria-label=\"%s\">\n"
      "%s</svg></div>\n",
      kWidth, height, EscapeHtml(what), body);
}

std::string Legend(const std::vector<std::string>& names) {
  std::string text = "<ul class=\"legend\">";
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&text, "<li class=\"", ClassOf(i), "\">",
                    EscapeHtml(names[i]), "</li>");
  }
  return absl::StrCat(text, "</ul>\n");
}

// The lines of nine and more share colors; the later ones are dashed.  Each of
// a few points has a dot.
std::string PathOf(const ChartLine& line, size_t index, const Scale& x,
                   const Scale& y) {
  constexpr size_t kFewPoints = 20;
  std::string path, dots;
  bool drawn = false;  // the point before
  for (const auto& [at, value] : line.points) {
    const bool draws = IsDrawable(value);
    if (draws && line.points.size() <= kFewPoints) {
      absl::StrAppendFormat(
          &dots,
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" class=\"%s\"><title>"
          "%s: %s</title></circle>\n",
          x(at), y(value), ClassOf(index), EscapeHtml(line.name),
          HumanNumber(value));
    }
    if (draws) {
      // "h0" is a dot where no neighbour is drawn.
      absl::StrAppend(&path, drawn ? "L" : "M",
                      absl::StrFormat("%.1f %.1f", x(at), y(value)),
                      drawn ? "" : "h0");
    }
    drawn = draws;
  }
  return absl::StrCat("<path d=\"", path, "\" class=\"line ", ClassOf(index),
                      index < kColors ? "" : " dashed", "\"><title>",
                      EscapeHtml(line.name), "</title></path>\n", dots);
}

// Up to where the values of `lines` are drawn.  The lines of jobs that have
// diverged do not count, so that they do not flatten the others.
double GreatestOf(const std::vector<ChartLine>& lines) {
  constexpr double kDiverged = 100;  // times what is usual
  constexpr double kRoom = 2;
  std::vector<double> medians, greatest;  // of each line
  for (const ChartLine& line : lines) {
    std::vector<double> values;
    for (const auto& [at, value] : line.points) {
      if (IsDrawable(value)) values.push_back(value);
    }
    if (values.empty()) continue;
    std::sort(values.begin(), values.end());
    medians.push_back(values[(values.size() - 1) / 2]);
    greatest.push_back(values.back());
  }
  std::sort(medians.begin(), medians.end());
  const double limit = kDiverged * medians[(medians.size() - 1) / 2];
  double most = 0;
  for (const double each : greatest) {
    if (each <= limit) most = std::max(most, each);
  }
  const double all = *std::max_element(greatest.begin(), greatest.end());
  return most > 0 && all > limit ? kRoom * most : all;
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(Printable(text), {{"&", "&amp;"},
                                               {"<", "&lt;"},
                                               {">", "&gt;"},
                                               {"\"", "&quot;"},
                                               {"'", "&#39;"}});
}

std::string RenderLineChart(const LineChart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double left = kInfinity, right = -kInfinity;
  double low = kInfinity, high = -kInfinity;
  for (const ChartLine& line : chart.lines) {
    for (const auto& [at, value] : line.points) {
      if (!IsDrawable(value)) continue;
      left = std::min(left, at);
      right = std::max(right, at);
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (left > right) return "";
  for (const auto& [at, text] : chart.marks) {
    left = std::min(left, at);
    right = std::max(right, at);
  }
  const double bottom = kTop + kLineHeight;
  const double most = GreatestOf(chart.lines);
  const Scale x = ScaleOf(left, right, kLineLeft, kWidth - kRight);
  Scale y = ScaleOf(low, most, bottom, kTop);
  y.log = low > 0 && most > kDecades * low;

  std::string body = HorizontalAxis(
      x, bottom,
      absl::StrCat(chart.x_name, y.log ? "; logarithmic" : "",
                   high > most ? absl::StrCat("; above ", HumanNumber(most),
                                              " at the upper edge")
                               : ""));
  for (const double tick : Ticks(y)) {
    absl::StrAppend(
        &body, RuleAt(kLineLeft, y(tick), kWidth - kRight, y(tick), "grid"),
        TextAt(kLineLeft - 6, y(tick) + 4, "end", HumanNumber(tick)));
  }
  double row = 0;  // marks near each other have their texts below each other
  for (const auto& [at, text] : chart.marks) {
    const bool fits = x(at) + 3 + kLetter * DisplayWidth(text) < kWidth;
    absl::StrAppend(&body, RuleAt(x(at), kTop, x(at), bottom, "mark"),
                    TextAt(fits ? x(at) + 3 : x(at) - 3, kTop + 9 + 12 * row,
                           fits ? "begin" : "end", text));
    row = row < 4 ? row + 1 : 0;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    absl::StrAppend(&body, PathOf(chart.lines[i], i, x, y));
    names.push_back(chart.lines[i].name);
  }
  return absl::StrCat(Drawing(chart.what, bottom + kAxisHeight, body),
                      Legend(names));
}

std::string RenderBarChart(const BarChart& chart) {
  double most = 0;
  std::vector<int> bars_in(chart.rows.size(), 0);
  for (const ChartBar& bar : chart.bars) {
    most = std::max(most, bar.begin + bar.length);
    ++bars_in[bar.row];
  }
  if (!(most > 0)) return "";
  const double bottom =
      kTop + kRowHeight * static_cast<double>(chart.rows.size());
  int columns = 0;  // of the longest name
  for (const std::string& row : chart.rows) {
    columns = std::max(columns, DisplayWidth(Printable(row)));
  }
  columns = std::min(columns, kRowNameColumns);
  const double left = std::max(kBarLeft, 8 + kLetter * columns);
  const Scale x = {0, most, left, kWidth - kRight};
  const auto top_of = [](size_t row) {
    return kTop + kRowHeight * static_cast<double>(row) + 2;
  };

  std::string body = HorizontalAxis(x, bottom, chart.axis);
  for (size_t row = 0; row < chart.rows.size(); ++row) {
    const std::string name = Printable(chart.rows[row]);
    const bool fits = DisplayWidth(name) <= columns;
    absl::StrAppend(
        &body,
        TextAt(
            left - 6, top_of(row) + 14, "end",
            fits ? name : absl::StrCat(CutToWidth(name, columns - 3), "...")));
  }
  for (const ChartBar& bar : chart.bars) {
    const double begin = x(bar.begin);
    const double width = x(bar.begin + bar.length) - begin;
    absl::StrAppendFormat(
        &body,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
        "class=\"%s\"><title>%s</title></rect>\n",
        begin, top_of(bar.row), width, kRowHeight - 4, ClassOf(bar.color),
        EscapeHtml(bar.label));
    const double needs = kLetter * DisplayWidth(bar.label);
    if (needs < width) {
      absl::StrAppend(&body, TextAt(begin + width / 2, top_of(bar.row) + 14,
                                    "mid in", bar.label));
    } else if (bars_in[bar.row] == 1 && begin + width + 4 + needs < kWidth) {
      absl::StrAppend(&body, TextAt(begin + width + 4, top_of(bar.row) + 14,
                                    "begin", bar.label));
    }
  }
  return absl::StrCat(Drawing(chart.what, bottom + kAxisHeight, body),
                      Legend(chart.legend));
}

namespace {

using Cells = std::vector<std::string>;

bool IsNumber(const std::string& cell) {
  double value = 0;
  return absl::SimpleAtod(cell, &value);
}

// [columns] whether all that stands there is a number.
std::vector<bool> NumberColumns(const Section& section) {
  std::vector<bool> numbers(section.titles.size(), true);
  for (const Cells& row : section.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      numbers[i] = numbers[i] && (row[i].empty() || IsNumber(row[i]));
    }
  }
  return numbers;
}

// --- HTML -------------------------------------------------------------------

constexpr char kStyle[] = R"(
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:0 auto;
padding:1rem;overflow-wrap:break-word}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .4rem}
.scroll{overflow-x:auto;overflow-wrap:normal}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.15rem .7rem .15rem 0;
border-bottom:1px solid #8886}td.n{text-align:right}
svg{width:100%;min-width:36rem;height:auto}svg text{font:11px system-ui;fill:currentColor}
svg .in{fill:#000}.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:#8886}.mark{stroke:currentColor;stroke-dasharray:2 3}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linecap:round}
.dashed{stroke-dasharray:6 4}rect,circle{fill:var(--c)}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1rem}
.legend li::before{content:"";display:inline-block;width:.8em;height:.8em;
margin-right:.4em;background:var(--c)}
.c0{--c:#3d9be0}.c1{--c:#e69f00}.c2{--c:#1aa37a}.c3{--c:#cc79a7}
.c4{--c:#d9622b}.c5{--c:#9a7fd1}.c6{--c:#8f9499}.c7{--c:#b5a02c}
)";

// Whether the table is too long to stand open.
bool IsLong(const Section& section) {
  return section.rows.size() > kMostOpenRows && !section.leads;
}

std::string HtmlRow(const Cells& cells, absl::string_view tag,
                    const std::vector<bool>& numbers) {
  std::string line = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppend(&line, "<", tag, numbers[i] ? " class=\"n\">" : ">",
                    EscapeHtml(cells[i]), "</", tag, ">");
  }
  return absl::StrCat(line, "</tr>\n");
}

std::string HtmlTable(const Section& section) {
  const size_t rows = section.rows.size();
  if (rows == 0) return "<p>Nothing to show.</p>\n";
  const std::vector<bool> numbers = NumberColumns(section);
  std::string text = absl::StrCat("<div class=\"scroll\"><table>\n<thead>",
                                  HtmlRow(section.titles, "th", numbers),
                                  "</thead>\n<tbody>\n");
  const size_t left_out = rows > kMostHtmlRows ? rows - kMostHtmlRows : 0;
  for (size_t row = 0; row < rows; ++row) {
    if (left_out > 0 && row == kMostHtmlRows / 2) {
      absl::StrAppend(&text, "<tr><td colspan=\"", section.titles.size(), "\">",
                      left_out, " rows are left out; --format csv has all",
                      "</td></tr>\n");
      row += left_out;
    }
    absl::StrAppend(&text, HtmlRow(section.rows[row], "td", numbers));
  }
  text += "</tbody>\n</table></div>\n";
  const bool beside_charts =
      !section.charts.empty() && rows > kMostRowsBesideCharts;
  if (section.leads || !(IsLong(section) || beside_charts)) return text;
  return absl::StrCat("<details><summary>as a table (", rows,
                      " rows)</summary>\n", text, "</details>\n");
}

std::string HtmlNotes(const Cells& notes) {
  return Joined(notes, "", [](const std::string& note) {
    return absl::StrCat("<p>", EscapeHtml(note), "</p>\n");
  });
}

// --- CSV and LaTeX ----------------------------------------------------------

// RFC 4180; a cell has no line break.  A quote keeps spreadsheets from taking
// text for a formula.
std::string CsvRow(const std::string& name, const Cells& cells) {
  std::string line = name;
  for (const std::string& each : cells) {
    std::string cell = Printable(each);
    if (cell.find_first_of("=+-@") == 0 && !IsNumber(cell)) {
      cell = absl::StrCat("'", cell);
    }
    const bool quoted = cell.find_first_of(",\"") != std::string::npos;
    absl::StrAppend(&line, quoted ? ",\"" : ",",
                    quoted ? absl::StrReplaceAll(cell, {{"\"", "\"\""}}) : cell,
                    quoted ? "\"" : "");
  }
  return absl::StrCat(line, "\n");
}

// The typewriter font has these characters whatever the encoding.
std::string EscapeLatex(absl::string_view text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    if (absl::string_view("{}$&#%_").find(c) != absl::string_view::npos) {
      absl::StrAppend(&escaped, "\\", std::string(1, c));
    } else if (absl::string_view("\\~^<>|").find(c) !=
               absl::string_view::npos) {
      absl::StrAppend(&escaped, "\\texttt{\\symbol{", int{c}, "}}");
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string LatexRow(const Cells& cells) {
  return absl::StrCat(Joined(cells, " & ", EscapeLatex), " \\\\\n");
}

std::string LatexTable(const Section& section) {
  std::string columns;
  for (const bool number : NumberColumns(section)) {
    columns += number ? "r" : "l";
  }
  std::string text = absl::StrCat(
      "\\begin{table}\n\\caption{", EscapeLatex(section.title),
      "}\n\\label{tab:", section.name, "}\n\\begin{tabular}{", columns,
      "}\n\\hline\n", LatexRow(section.titles), "\\hline\n");
  for (const Cells& row : section.rows) text += LatexRow(row);
  return absl::StrCat(text, "\\hline\n\\end{tabular}\n\\end{table}\n");
}

}  // namespace

std::string HtmlOf(const Report& report) {
  const std::string title = EscapeHtml(report.title);
  std::string text = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
      title, "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>",
      title, "</h1>\n", HtmlNotes(report.notes));
  for (const Section& section : report.sections) {
    const std::string charts = absl::StrJoin(section.charts, "");
    absl::StrAppend(&text, "<section id=\"", section.name, "\">\n<h2>",
                    EscapeHtml(section.title), "</h2>\n",
                    HtmlNotes(section.notes), section.leads ? "" : charts,
                    HtmlTable(section), section.leads ? charts : "",
                    "</section>\n");
  }
  return absl::StrCat(text, "</body>\n</html>\n");
}

std::string CsvOf(const Report& report) {
  std::string text;
  for (const Section& section : report.sections) {
    if (section.rows.empty()) continue;
    text += CsvRow(section.name, section.titles);
    for (const Cells& row : section.rows) text += CsvRow(section.name, row);
  }
  return text;
}

std::string LatexOf(const Report& report) {
  std::string text = absl::StrCat("% ", Printable(report.title), "\n");
  for (const Section& section : report.sections) {
    const size_t rows = section.rows.size();
    if (IsLong(section)) {
      absl::StrAppend(&text, "% ", section.name, ": ", rows,
                      " rows, which --format csv has\n");
    } else if (rows > 0) {
      text += LatexTable(section);
    }
  }
  return text;
}

}  // namespace paceline

#include "client/render/sections.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/render/chart.h"
#include "client/values/text.h"

namespace paceline {
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
  std::string text;
  for (const std::string& note : notes) {
    absl::StrAppend(&text, "<p>", EscapeHtml(note), "</p>\n");
  }
  return text;
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
  const auto append = [](std::string* out, const std::string& cell) {
    out->append(EscapeLatex(cell));
  };
  return absl::StrCat(absl::StrJoin(cells, " & ", append), " \\\\\n");
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

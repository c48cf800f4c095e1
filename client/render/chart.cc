#include "client/render/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/render/text.h"

namespace paceline {
namespace {

// Pixels of the drawing, which the page scales.
constexpr double kWidth = 720;
constexpr double kLineHeight = 240;
constexpr double kRowHeight = 24;
constexpr double kAxisHeight = 34;
constexpr double kTop = 12;
constexpr double kRight = 12;
constexpr double kLineLeft = 64;
constexpr double kBarLeft = 132;
constexpr int kRowNameColumns = 19;
constexpr double kLetter = 6.5;  // the width of one, about
constexpr size_t kColors = 8;
constexpr double kGreatest = 1e100;  // beyond it differences may be infinite

bool IsDrawable(double value) { return std::abs(value) < kGreatest; }

// Maps [least, most] to [from, to] pixels.
struct Scale {
  double least;
  double most;
  double from;
  double to;

  double operator()(double value) const {
    return from + (value - least) / (most - least) * (to - from);
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
    absl::StrAppend(&body, RuleAt(scale(tick), kTop, scale(tick), y, "grid"),
                    TextAt(scale(tick), y + 14, "mid", HumanNumber(tick)));
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

// The lines of nine and more share colors; the later ones are dashed.
std::string PathOf(const ChartLine& line, size_t index, const Scale& x,
                   const Scale& y) {
  std::string path;
  bool drawn = false;  // the point before
  for (const auto& [at, value] : line.points) {
    const bool draws = IsDrawable(value);
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
                      EscapeHtml(line.name), "</title></path>\n");
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
  const Scale x = ScaleOf(left, right, kLineLeft, kWidth - kRight);
  const Scale y = ScaleOf(low, high, bottom, kTop);

  std::string body = HorizontalAxis(x, bottom, chart.x_name);
  for (const double tick : Ticks(y)) {
    absl::StrAppend(
        &body, RuleAt(kLineLeft, y(tick), kWidth - kRight, y(tick), "grid"),
        TextAt(kLineLeft - 6, y(tick) + 4, "end", HumanNumber(tick)));
  }
  for (const auto& [at, text] : chart.marks) {
    absl::StrAppend(&body, RuleAt(x(at), kTop, x(at), bottom, "mark"),
                    TextAt(x(at) + 3, kTop + 9, "begin", text));
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
  for (const ChartBar& bar : chart.bars) {
    most = std::max(most, bar.begin + bar.length);
  }
  if (!(most > 0)) return "";
  const double bottom =
      kTop + kRowHeight * static_cast<double>(chart.rows.size());
  const Scale x = {0, most, kBarLeft, kWidth - kRight};
  const auto top_of = [](size_t row) {
    return kTop + kRowHeight * static_cast<double>(row) + 2;
  };

  std::string body = HorizontalAxis(x, bottom, chart.axis);
  for (size_t row = 0; row < chart.rows.size(); ++row) {
    absl::StrAppend(
        &body, TextAt(kBarLeft - 6, top_of(row) + 14, "end",
                      CutToWidth(Printable(chart.rows[row]), kRowNameColumns)));
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
    if (kLetter * DisplayWidth(bar.label) < width) {
      absl::StrAppend(&body, TextAt(begin + width / 2, top_of(bar.row) + 14,
                                    "mid in", bar.label));
    }
  }
  return absl::StrCat(Drawing(chart.what, bottom + kAxisHeight, body),
                      Legend(chart.legend));
}

}  // namespace paceline

// Charts as SVG, and the escaping that all HTML of the client goes through:
// data in, text out.  Pure.
//
// Colors are the classes c0 to c7 and text has the color of the page, so that
// the page's style decides for light and dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

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

}  // namespace paceline

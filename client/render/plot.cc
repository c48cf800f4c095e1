#include "client/render/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/render/text.h"

namespace paceline {
namespace {

constexpr int kLabelColumns = 10;
// U+2581 to U+2588: one to eight eighths.
constexpr const char* kEighths[] = {" ", "▁", "▂", "▃", "▄",
                                    "▅", "▆", "▇", "█"};

struct Columns {
  std::vector<double> values;  // mean of a column's points, gaps carried on
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
};

std::optional<Columns> Gather(const LossCurve& curve, int columns) {
  std::vector<double> sums(columns, 0);
  std::vector<int> counts(columns, 0);
  const int64_t first = curve.begin()->step();
  const int64_t span = curve.rbegin()->step() - first + 1;
  if (span < 2) return std::nullopt;
  for (const v1::StepRecord& point : curve) {
    if (!std::isfinite(point.loss())) continue;
    const int64_t column = (point.step() - first) * columns / span;
    if (column < 0 || column >= columns) continue;
    sums[column] += point.loss();
    ++counts[column];
  }
  Columns result;
  double last = std::numeric_limits<double>::quiet_NaN();
  for (int c = 0; c < columns; ++c) {
    if (counts[c] > 0) {
      last = sums[c] / counts[c];
      result.least = std::min(result.least, last);
      result.greatest = std::max(result.greatest, last);
    }
    result.values.push_back(last);
  }
  if (!std::isfinite(result.least)) return std::nullopt;
  return result;
}

// Filled eighths of the cell in `row` (0 is the lowest) of a bar of `eighths`.
int CellEighths(int eighths, int row) {
  return std::clamp(eighths - 8 * row, 0, 8);
}

}  // namespace

std::string PlotLoss(const LossCurve& curve, const PlotOptions& options) {
  const bool finite = std::any_of(
      curve.begin(), curve.end(),
      [](const v1::StepRecord& point) { return std::isfinite(point.loss()); });
  if (!curve.empty() && !finite) return "no finite loss\n";
  if (curve.size() < 2) return "";
  const std::optional<Columns> columns = Gather(curve, options.columns);
  if (!columns.has_value()) return "";

  // The least value still shows one eighth, so that it differs from no value.
  const double range = columns->greatest - columns->least;
  std::vector<int> eighths;
  for (const double value : columns->values) {
    const double share = range > 0 ? (value - columns->least) / range : 0.5;
    eighths.push_back(std::isnan(value)
                          ? 0
                          : 1 + static_cast<int>(std::lround(
                                    share * (8 * options.rows - 1))));
  }

  std::string text;
  for (int row = options.rows - 1; row >= 0; --row) {
    std::string label;
    if (row == options.rows - 1) label = HumanNumber(columns->greatest);
    if (row == 0) label = HumanNumber(columns->least);
    absl::StrAppendFormat(&text, "%*s |", kLabelColumns, label);
    std::string line;
    for (const int bar : eighths) {
      const int cell = CellEighths(bar, row);
      // Half a cell rounds up, and the lowest row always shows the bar.
      const char* ascii = cell >= 4 || (row == 0 && cell > 0) ? "#" : " ";
      line += options.unicode ? kEighths[cell] : ascii;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  const std::string first = absl::StrCat("step ", curve.begin()->step());
  const std::string last = absl::StrCat(curve.rbegin()->step());
  const int gap =
      std::max<int>(1, options.columns - first.size() - last.size());
  absl::StrAppend(&text, std::string(kLabelColumns + 2, ' '), first,
                  std::string(gap, ' '), last, "\n");
  return text;
}

}  // namespace paceline

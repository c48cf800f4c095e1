#include "core/plan/pooling.h"

#include <algorithm>

namespace paceline {
namespace {

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<double> Pulls(const std::vector<double>& values, double noise) {
  std::vector<double> pulls(values.size(), 0);
  if (values.empty()) return pulls;
  const double median = Median(values);
  if (!(median > 0)) return pulls;
  for (size_t i = 0; i < values.size(); ++i) {
    const double distance = (values[i] / median - 1) / noise;
    pulls[i] = 1 / (1 + distance * distance);
  }
  return pulls;
}

}  // namespace paceline

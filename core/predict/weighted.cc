#include "core/predict/weighted.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace paceline {

double WeightedMedian(std::vector<Weighted> values) {
  std::sort(
      values.begin(), values.end(),
      [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double total = 0;
  for (const Weighted& v : values) total += v.weight;
  double below = 0;
  for (const Weighted& v : values) {
    below += v.weight;
    if (2 * below >= total) return v.value;
  }
  return 0;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return Quantile(values, 0.5);
}

double Quantile(const std::vector<double>& sorted, double part) {
  const double rank = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(std::floor(rank));
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] +
         (rank - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace paceline

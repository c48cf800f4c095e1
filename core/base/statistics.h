// Means, medians and quantiles of measured numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/time/time.h"

namespace paceline {

// 0 for none.
inline double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// Between the ranks; `part` in [0, 1], `sorted` ascending and not empty.
inline double Quantile(const std::vector<double>& sorted, double part) {
  const double rank = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(std::floor(rank));
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] +
         (rank - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

// 0 for none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return Quantile(values, 0.5);
}

// The longest of the last 64 durations.  Thread-compatible.
class RecentLongest {
 public:
  void Add(absl::Duration each) { last_[added_++ % last_.size()] = each; }
  // 0: there is none.
  absl::Duration Get() const { return *std::ranges::max_element(last_); }

 private:
  std::array<absl::Duration, 64> last_ = {};
  size_t added_ = 0;
};

}  // namespace paceline

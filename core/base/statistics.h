// Means, medians and quantiles of measured numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace paceline {

double Mean(const std::vector<double>& values);  // 0 for none
double Median(std::vector<double> values);       // 0 for none
// Between the ranks; `part` in [0, 1], `sorted` ascending and not empty.
double Quantile(const std::vector<double>& sorted, double part);

// The longest of the last 64 durations.  Thread-compatible.
class RecentLongest {
 public:
  void Add(absl::Duration each) { last_[added_++ % last_.size()] = each; }
  // 0: there is none.
  absl::Duration Get() const {
    return *std::max_element(last_.begin(), last_.end());
  }

 private:
  std::array<absl::Duration, 64> last_ = {};
  size_t added_ = 0;
};

}  // namespace paceline

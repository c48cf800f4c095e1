#include "core/round/patience.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace paceline {

void Patience::Add(absl::Duration wait) {
  waits_.push_back(wait);
  if (waits_.size() > static_cast<size_t>(policy_.remembered)) {
    waits_.pop_front();
  }
}

absl::Duration Patience::Get() const {
  if (waits_.empty()) return policy_.ceiling;
  std::vector<absl::Duration> sorted(waits_.begin(), waits_.end());
  const auto index =
      std::min(sorted.size() - 1,
               static_cast<size_t>(policy_.quantile *
                                   static_cast<double>(sorted.size())));
  const auto place = sorted.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(sorted.begin(), place, sorted.end());
  return std::min(std::max(policy_.factor * *place, policy_.floor),
                  policy_.ceiling);
}

}  // namespace paceline

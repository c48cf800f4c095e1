#include "core/round/deadline.h"

#include <algorithm>
#include <cstddef>

namespace paceline {
namespace {

absl::Duration Median(std::vector<absl::Duration> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Deadline::Add(const std::vector<absl::Duration>& arrivals) {
  // The first part's arrival is where the count begins: it says nothing.
  for (size_t i = 1; i < arrivals.size(); ++i) {
    computed_.reset();
    arrivals_.push_back(arrivals[i]);
    if (arrivals_.size() > static_cast<size_t>(policy_.remembered)) {
      arrivals_.pop_front();
    }
  }
}

absl::Duration Deadline::Get(absl::Duration first) const {
  if (!computed_.has_value()) computed_ = Compute();
  return std::min(std::max({*computed_, policy_.floor, policy_.share * first}),
                  policy_.ceiling);
}

absl::Duration Deadline::Compute() const {
  if (arrivals_.empty()) return policy_.ceiling;
  const absl::Duration median = Median({arrivals_.begin(), arrivals_.end()});
  std::vector<absl::Duration> distances;
  for (const absl::Duration arrival : arrivals_) {
    distances.push_back(absl::AbsDuration(arrival - median));
  }
  return median + policy_.deviations * Median(std::move(distances));
}

void PartnerWait::Add(absl::Duration wait) {
  waits_.push_back(wait);
  if (waits_.size() > static_cast<size_t>(policy_.remembered)) {
    waits_.pop_front();
  }
}

absl::Duration PartnerWait::Get() const {
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

#include "core/cluster/run_order.h"

#include <algorithm>

namespace paceline {

int StageCount(const RunOrder& order) {
  return order.stages.empty() ? 0 : order.stages.back().stage + 1;
}

absl::Span<const StagePlacement> ReplicasOf(const RunOrder& order, int stage) {
  StagePlacement any;
  any.stage = stage;
  const auto [first, last] =
      std::equal_range(order.stages.begin(), order.stages.end(), any,
                       [](const StagePlacement& a, const StagePlacement& b) {
                         return a.stage < b.stage;
                       });
  return absl::MakeConstSpan(order.stages)
      .subspan(first - order.stages.begin(), last - first);
}

}  // namespace paceline

#include "core/schedule/compute_order.h"

#include <algorithm>

namespace paceline {
namespace {

// `warm_up` forwards, then a forward and a backward in turn while there are
// forwards left, then the backwards that remain.
ComputeOrder InTurn(int stage, int micro_batches, int warm_up) {
  ComputeOrder order;
  int backwards = 0;
  for (int forward = 0; forward < micro_batches; ++forward) {
    order.push_back({stage, forward, /*backward=*/false});
    if (forward >= warm_up) {
      order.push_back({stage, backwards++, /*backward=*/true});
    }
  }
  while (backwards < micro_batches) {
    order.push_back({stage, backwards++, /*backward=*/true});
  }
  return order;
}

ComputeOrder ForwardOnly(int stage, int micro_batches) {
  ComputeOrder order;
  for (int i = 0; i < micro_batches; ++i) {
    order.push_back({stage, i, /*backward=*/false});
  }
  return order;
}

ComputeOrder GPipe(const ScheduleRequest& request, int stage) {
  if (!request.training) return ForwardOnly(stage, request.micro_batches);
  return InTurn(stage, request.micro_batches,
                /*warm_up=*/request.micro_batches);
}

ComputeOrder OneForwardOneBackward(const ScheduleRequest& request, int stage) {
  if (!request.training) return ForwardOnly(stage, request.micro_batches);
  return InTurn(stage, request.micro_batches,
                std::min(request.stages - 1 - stage, request.micro_batches));
}

struct Entry {
  absl::string_view name;
  Generator generator;
};

// Sorted by name.
constexpr Entry kGenerators[] = {
    {"1f1b", &OneForwardOneBackward},
    {"gpipe", &GPipe},
};

}  // namespace

Generator FindGenerator(absl::string_view name) {
  for (const Entry& entry : kGenerators) {
    if (entry.name == name) return entry.generator;
  }
  return nullptr;
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kGenerators) names.emplace_back(entry.name);
  return names;
}

}  // namespace paceline

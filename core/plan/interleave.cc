#include "core/plan/interleave.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/plan/cost.h"

namespace paceline {
namespace {

// Two stages a worker, on as many workers as layers and micro-batches allow.
Dealing DealTwoEach(const DealingRequest& request) {
  int workers = std::min(request.workers, request.layers / 2);
  while (workers > 1 && request.micro_batches % workers != 0) --workers;
  workers = std::max(workers, 1);
  return {std::min(2 * workers, request.layers), workers};
}

int WorkersFor(int stages, int workers) {
  int used = std::max(1, std::min(workers, stages / 2));
  while (stages % used != 0) --used;
  return used;
}

}  // namespace

absl::StatusOr<Dealing> DealStages(const DealingRequest& request) {
  if (request.stages == 0) return DealTwoEach(request);
  const Dealing dealing{request.stages,
                        WorkersFor(request.stages, request.workers)};
  if (request.micro_batches % dealing.workers == 0) return dealing;
  return absl::InvalidArgumentError(absl::StrCat(
      "interleaved-1f1b with ", dealing.stages, " stages on ", dealing.workers,
      " workers needs the micro-batches of a batch to be a multiple of ",
      dealing.workers, ", train.batch and train.micro_batch make ",
      request.micro_batches,
      ": change one of them, pipeline.stages, or use pipeline.schedule 1f1b"));
}

std::vector<LayerRange> CutForDealing(const PlanProblem& problem, int stages) {
  const int layers = static_cast<int>(problem.layers.size());
  const int devices = static_cast<int>(problem.devices.size());
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  // longest[s][l]: of the best cut of the first l layers in s stages; begin:
  // its last stage's first layer.
  std::vector<std::vector<double>> longest(
      stages + 1, std::vector<double>(layers + 1, kImpossible));
  std::vector<std::vector<int>> begin(stages + 1,
                                      std::vector<int>(layers + 1, 0));
  longest[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    const int device = (s - 1) % devices;
    std::vector<double> until = {0};  // seconds of the first l layers there
    for (int l = 0; l < layers; ++l) {
      until.push_back(until.back() + LayerSeconds(problem, {l, l + 1}, device));
    }
    for (int last = s; last <= layers; ++last) {
      for (int first = s - 1; first < last; ++first) {
        const double most =
            std::max(longest[s - 1][first], until[last] - until[first]);
        if (most < longest[s][last]) {
          longest[s][last] = most;
          begin[s][last] = first;
        }
      }
    }
  }
  std::vector<LayerRange> ranges(stages);
  int last = layers;
  for (int s = stages; s >= 1; --s) {
    ranges[s - 1] = {begin[s][last], last};
    last = begin[s][last];
  }
  return ranges;
}

}  // namespace paceline

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/plan/cost_table.h"
#include "core/plan/search/policies.h"
#include "core/plan/search/walk.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// CPU time (-O2): a step took up to 45 ns in the exact search when it gave up
// (2026-11-21), and 0.5 to 2 us in a walk on 24 to 128 devices (2026-11-30).
constexpr double kExactSteps = 3e7;
constexpr int64_t kLongWalkSteps = 400000;

// Returns steps for about as much time as the exact search of a small problem
// takes: one to some milliseconds.
int64_t ShortWalkSteps(const CostTable& table) {
  const double sets = std::exp2(std::min(table.devices(), 20));
  return static_cast<int64_t>(
      std::clamp(table.layers() * table.layers() * sets / 48, 3000.0, 10000.0));
}

// Replaces `placement` by the best of `steps` steps of walks where that is
// cheaper.
void Improve(const CostTable& table, int64_t steps, Placement& placement) {
  constexpr uint64_t kSeed = 1;
  absl::StatusOr<Placement> found = BestOfWalks(table, kSeed, steps);
  if (!found.ok() ||
      (!placement.empty() && UntiedCostOf(table, *found).step_seconds >=
                                 UntiedCostOf(table, placement).step_seconds)) {
    return;
  }
  placement = *std::move(found);
  // Interchangeable devices hold stages in the order of their numbers.
  for (const std::vector<int>& members :
       InterchangeableDevices(table.problem())) {
    auto next = members.begin();
    for (PlacedStage& stage : placement) {
      for (int& device : stage.devices) {
        if (std::ranges::binary_search(members, device)) device = *next++;
      }
    }
  }
  for (PlacedStage& stage : placement) {
    std::ranges::sort(stage.devices);
    stage.shares = SharesFor(table, stage.layers, stage.devices);
  }
}

// Returns 1 to `most`, those nearest to `stages` first; of two equally near the
// larger, whose stages are smaller.
std::vector<int> StageCounts(int most, int stages) {
  std::vector<int> counts(most);
  std::iota(counts.rbegin(), counts.rend(), 1);
  std::ranges::stable_sort(
      counts, {}, [stages](int count) { return std::abs(count - stages); });
  return counts;
}

absl::StatusOr<Solved> SolveOnce(const PlanProblem& problem) {
  const CostTable table(problem);
  Solved answer;
  Improve(table, ShortWalkSteps(table), answer.placement);
  const double known = answer.placement.empty()
                           ? HUGE_VAL
                           : UntiedCostOf(table, answer.placement).step_seconds;
  Solved exact = SolveExactly(table, known, kExactSteps);
  if (!exact.placement.empty()) answer.placement = std::move(exact.placement);
  answer.exact = exact.exact;
  if (!answer.exact) Improve(table, kLongWalkSteps, answer.placement);
  if (answer.placement.empty()) return NothingFits(problem);
  return answer;
}

}  // namespace

absl::StatusOr<Solved> SolveOptimal(const PlanProblem& problem) {
  if (!CountsEarlier(problem) || !problem.training || problem.stages > 0) {
    return SolveOnce(problem);
  }
  // If this problem has no answer, the original one has none either: it needs
  // more memory.
  PACELINE_ASSIGN_OR_RETURN(Solved loose, SolveOnce(problem));
  if (SecondsIfItFits(problem, loose.placement) < HUGE_VAL) return loose;

  const int most =
      static_cast<int>(std::min(problem.layers.size(), problem.devices.size()));
  Solved best;
  best.exact = loose.exact;
  double best_seconds = HUGE_VAL;
  int tried = 0;
  for (const int stages :
       StageCounts(most, static_cast<int>(loose.placement.size()))) {
    PlanProblem counted = problem;
    counted.stages = stages;
    if (LowerBoundSeconds(counted) >= best_seconds) continue;
    if (++tried > kMostStageCounts) {
      best.exact = false;
      if (!best.placement.empty()) break;
    }
    absl::StatusOr<Solved> answer = SolveOnce(counted);
    if (!answer.ok()) {
      // An inexact search that found nothing has proved nothing.
      best.exact = best.exact && most <= kMostStageCounts;
      continue;
    }
    best.exact = best.exact && answer->exact;
    const double seconds = SecondsIfItFits(counted, answer->placement);
    if (seconds >= best_seconds) continue;
    best_seconds = seconds;
    best.placement = std::move(answer->placement);
  }
  if (best.placement.empty()) return NothingFits(problem);
  return best;
}

}  // namespace paceline

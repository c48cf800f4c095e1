#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/plan/cost_table.h"
#include "core/plan/search/policies.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// CPU time (2026-11-21, -O2): a step took up to 45 ns in the exact search when
// it gave up, and 45 to 140 ns in the heuristic one.
constexpr double kExactSteps = 3e7;
constexpr double kLongSearchSteps = 4e6;

// Returns steps for as much time as the exact search of a small problem takes,
// at most some milliseconds.
double ShortSearchSteps(const CostTable& table) {
  constexpr double kMost = 30000;
  const double sets = std::exp2(std::min(table.devices(), 20));
  return std::min(kMost, table.layers() * table.layers() * sets / 16);
}

// Returns the step time; infinity: the placement does not fit.
double SecondsOf(const PlanProblem& problem, const Placement& placement) {
  const absl::StatusOr<PlacementCost> cost = CostOf(problem, placement);
  if (!cost.ok() || !CheckMemory(problem, placement, *cost).ok()) {
    return HUGE_VAL;
  }
  return cost->step_seconds;
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
  answer.placement = SearchPlacement(table, ShortSearchSteps(table));
  const auto known = [&] {
    return answer.placement.empty() ? HUGE_VAL
                                    : ObjectiveOf(table, answer.placement);
  };
  Solved exact = SolveExactly(table, known(), kExactSteps);
  if (!exact.placement.empty()) answer.placement = std::move(exact.placement);
  answer.exact = exact.exact;
  if (!answer.exact) {
    Placement longer = SearchPlacement(table, kLongSearchSteps);
    if (!longer.empty() && ObjectiveOf(table, longer) < known()) {
      answer.placement = std::move(longer);
    }
  }
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
  if (SecondsOf(problem, loose.placement) < HUGE_VAL) return loose;

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
    const double seconds = SecondsOf(counted, answer->placement);
    if (seconds >= best_seconds) continue;
    best_seconds = seconds;
    best.placement = std::move(answer->placement);
  }
  if (best.placement.empty()) return NothingFits(problem);
  return best;
}

}  // namespace paceline

#include "core/plan/dp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/plan/dp_chain.h"
#include "core/plan/dp_exact.h"
#include "core/plan/dp_search.h"
#include "core/plan/dp_table.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

// Seconds of CPU (2026-11-21, -O2): giving up the exact search took up to 45 ns
// a step, the heuristic one 45 to 140 ns a step.
constexpr double kExactSteps = 3e7;
constexpr double kLongSearchSteps = 4e6;

// As long as the exact search of a small problem takes, at most some
// milliseconds.
double ShortSearchSteps(const DpTable& table) {
  constexpr double kMost = 30000;
  const double sets = std::exp2(std::min(table.devices(), 20));
  return std::min(kMost, table.layers() * table.layers() * sets / 16);
}

}  // namespace

absl::StatusOr<DpAnswer> SolveDp(const PlanProblem& problem) {
  const DpTable table(problem);
  DpAnswer answer;
  answer.placement = SearchPlacement(table, {ShortSearchSteps(table)});
  const auto known = [&] {
    return answer.placement.empty() ? HUGE_VAL
                                    : ObjectiveOf(table, answer.placement);
  };
  DpExactAnswer exact = SolveExactly(table, {known(), kExactSteps});
  if (!exact.placement.empty()) answer.placement = std::move(exact.placement);
  answer.exact = exact.finished;
  if (!exact.finished) {
    Placement longer = SearchPlacement(table, {kLongSearchSteps});
    if (!longer.empty() && ObjectiveOf(table, longer) < known()) {
      answer.placement = std::move(longer);
    }
  }
  if (answer.placement.empty()) return NothingFits(problem);
  return answer;
}

}  // namespace paceline

#include "core/plan/search/policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/search/policies.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

struct Policy {
  absl::string_view name;
  absl::StatusOr<Solved> (*solve)(const PlanProblem& problem,
                                  const PolicyOptions& options);
};

absl::StatusOr<Solved> Placed(absl::StatusOr<Placement> placement,
                              bool exact = false) {
  PACELINE_RETURN_IF_ERROR(placement.status());
  return Solved{*std::move(placement), exact};
}

// Sorted by name.
constexpr Policy kPolicies[] = {
    {"brute",
     [](const PlanProblem& problem, const PolicyOptions&) {
       return Placed(BrutePlacement(problem), true);
     }},
    {"equal",
     [](const PlanProblem& problem, const PolicyOptions&) {
       return Placed(EqualPlacement(problem));
     }},
    {"mcmc",
     [](const PlanProblem& problem, const PolicyOptions& options) {
       return Placed(McmcPlacement(problem, options.seed));
     }},
    {"min-cut",
     [](const PlanProblem& problem, const PolicyOptions&) {
       return Placed(MinCutPlacement(problem));
     }},
    {"optimal", [](const PlanProblem& problem,
                   const PolicyOptions&) { return SolveOptimal(problem); }},
    {"soft",
     [](const PlanProblem& problem, const PolicyOptions& options) {
       return Placed(SoftPlacement(problem, options.seed));
     }},
};

absl::Status UnknownPolicy(absl::string_view policy) {
  constexpr size_t kMostLetters = 64;  // longer names get no suggestion
  const std::string shown(policy.substr(0, kMostLetters));
  const std::string meant = DidYouMean(shown, PolicyNames());
  return InvalidArgument(
      "no policy '", shown, "'",
      meant.empty() ? "." : absl::StrCat(": did you mean '", meant, "'?"),
      " There are ", absl::StrJoin(PolicyNames(), ", "));
}

double GapOf(double seconds, double bound_seconds) {
  if (bound_seconds > 0) return std::max(0.0, seconds / bound_seconds - 1);
  return seconds > 0 ? HUGE_VAL : 0;
}

absl::StatusOr<PlanAnswer> AnswerOf(const PlanProblem& problem, Solved solved,
                                    const PolicyOptions& options) {
  // The relative rounding error between the bound and the cost.
  constexpr double kRounding = 1e-9;
  PlanAnswer answer;
  PACELINE_ASSIGN_OR_RETURN(answer.cost, CostOf(problem, solved.placement));
  answer.placement = std::move(solved.placement);
  const double seconds = answer.cost.step_seconds;
  if (!std::isfinite(seconds)) {
    return InvalidArgument(
        "the step would take longer than a number can hold: check the units of "
        "seconds, bytes and bandwidths");
  }
  answer.lower_bound_seconds = std::min(LowerBoundSeconds(problem), seconds);
  answer.gap = GapOf(seconds, answer.lower_bound_seconds);
  answer.exact = solved.exact || answer.gap <= kRounding;
  answer.why = WhyOf(problem, answer, options.predicted);
  return answer;
}

// Returns the best placement of all layers on one device that holds them, if it
// takes less than `seconds`.
std::optional<Placement> OneStageBelow(const PlanProblem& problem,
                                       double seconds) {
  std::optional<Placement> best;
  const int layers = static_cast<int>(problem.layers.size());
  const int devices = static_cast<int>(problem.devices.size());
  for (int device = 0; device < devices; ++device) {
    const Placement placement = {{{0, layers}, {device}, {1}}};
    const absl::StatusOr<PlacementCost> cost = CostOf(problem, placement);
    if (!cost.ok() || cost->step_seconds >= seconds ||
        !CheckMemory(problem, placement, *cost).ok()) {
      continue;
    }
    seconds = cost->step_seconds;
    best = placement;
  }
  return best;
}

// The policies ignore ties while they search.  Their largest error is on one
// stage, where ties cost nothing.
absl::Status LookAtTies(const PlanProblem& problem, Solved& solved) {
  solved.exact = false;
  if (problem.stages > 1) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const PlacementCost cost,
                            CostOf(problem, solved.placement));
  std::optional<Placement> together = OneStageBelow(problem, cost.step_seconds);
  if (together.has_value()) solved.placement = *std::move(together);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

absl::StatusOr<PlanAnswer> SolvePlan(absl::string_view policy,
                                     const PlanProblem& problem,
                                     const PolicyOptions& options) {
  const std::string name = PresentPolicy(policy);
  const auto* const known =
      std::ranges::find(kPolicies, absl::string_view(name), &Policy::name);
  if (known == std::end(kPolicies)) return UnknownPolicy(policy);
  PACELINE_RETURN_IF_ERROR(CheckProblem(problem));
  if (problem.splits && problem.replicas) {
    PlanProblem single = problem;
    single.replicas = false;
    return SolvePlan(policy, single, options);
  }
  PlanProblem untied = problem;
  untied.ties.clear();
  PACELINE_ASSIGN_OR_RETURN(Solved solved, known->solve(untied, options));
  if (!problem.ties.empty()) {
    PACELINE_RETURN_IF_ERROR(LookAtTies(problem, solved));
  }
  PACELINE_ASSIGN_OR_RETURN(PlanAnswer answer,
                            AnswerOf(problem, std::move(solved), options));
  PACELINE_RETURN_IF_ERROR(CheckMemory(problem, answer.placement, answer.cost));
  return answer;
}

absl::StatusOr<PlanAnswer> AnswerFor(const PlanProblem& problem,
                                     const Placement& placement) {
  PACELINE_RETURN_IF_ERROR(CheckProblem(problem));
  return AnswerOf(problem, {placement, false}, {});
}

}  // namespace paceline

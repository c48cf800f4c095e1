#include "core/plan/search/policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/search/policies.h"
#include "core/plan/why.h"

namespace paceline {
namespace {

struct Policy {
  absl::string_view name;
  absl::StatusOr<Solved> (*solve)(const PlanProblem& problem, uint64_t seed);
};

// Gives every policy one signature; those that draw take the seed.
template <auto kPlace, bool kExact = false>
absl::StatusOr<Solved> Place(const PlanProblem& problem, uint64_t seed) {
  const auto place = [&] {
    if constexpr (std::is_invocable_v<decltype(kPlace), const PlanProblem&>) {
      return kPlace(problem);
    } else {
      return kPlace(problem, seed);
    }
  };
  PACELINE_ASSIGN_OR_RETURN(Placement placement, place());
  return Solved{std::move(placement), kExact};
}

// Sorted by name.
constexpr Policy kPolicies[] = {
    {"brute", Place<BrutePlacement, /*kExact=*/true>},
    {"equal", Place<EqualPlacement>},
    {"mcmc", Place<McmcPlacement>},
    {"min-cut", Place<MinCutPlacement>},
    {"optimal", [](const PlanProblem& problem,
                   uint64_t) { return SolveOptimal(problem); }},
    {"soft", Place<SoftPlacement>},
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

// The policies ignore ties while they search.  Their largest error is on one
// stage, where ties cost nothing: takes the best such stage if it is quicker.
void LookAtTies(const PlanProblem& problem, Solved& solved) {
  solved.exact = false;
  if (problem.stages > 1) return;
  double least = SecondsIfItFits(problem, solved.placement);
  const int layers = static_cast<int>(problem.layers.size());
  for (int device = 0; device < std::ssize(problem.devices); ++device) {
    const Placement together = {{{0, layers}, {device}, {1}}};
    const double seconds = SecondsIfItFits(problem, together);
    if (seconds >= least) continue;
    least = seconds;
    solved.placement = together;
  }
}

}  // namespace

std::vector<std::string> PolicyNames() {
  return NamesOf(kPolicies, &Policy::name);
}

absl::StatusOr<PlanAnswer> SolvePlan(absl::string_view policy,
                                     const PlanProblem& problem,
                                     const PolicyOptions& options) {
  const std::string name = PresentPolicy(policy);
  const Policy* const known = FindNamed(kPolicies, name, &Policy::name);
  if (known == nullptr) return UnknownPolicy(policy);
  PACELINE_RETURN_IF_ERROR(CheckProblem(problem));
  if (problem.splits && problem.replicas) {
    PlanProblem single = problem;
    single.replicas = false;
    return SolvePlan(policy, single, options);
  }
  PlanProblem untied = problem;
  untied.ties.clear();
  PACELINE_ASSIGN_OR_RETURN(Solved solved, known->solve(untied, options.seed));
  if (!problem.ties.empty()) LookAtTies(problem, solved);
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

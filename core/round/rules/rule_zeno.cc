#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base/errors.h"
#include "core/round/rules/rule_blocks.h"
#include "core/round/rules/rule_kinds.h"

namespace paceline {
namespace {

// Xie, Koyejo and Gupta 2019, "Zeno: distributed stochastic gradient descent
// with suspicion-based fault-tolerance", definitions 2 and 3: the score of a
// mean gradient u is f(x) - f(x - gamma u) - rho |u|^2 on a small batch that
// the server trusts; the n - k highest are averaged (the paper's b is k).
// Assumes one honest member at least, k no fewer than the liars, and a trusted
// batch that resembles the training data.
// Departure: a member whose score is not finite (its step ruins the loss) is
// dropped even if k others are dropped already.
// Decide: one read for the lengths, and n + 1 evaluations of the loss.
class ZenoRule final : public WeightedRule {
 public:
  ZenoRule(int64_t k, double gamma, double rho, TrustedLoss& loss)
      : k_(k), gamma_(gamma), rho_(rho), loss_(loss) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override;

 private:
  const int64_t k_;
  const double gamma_;
  const double rho_;
  TrustedLoss& loss_;  // outlives the rule
};

}  // namespace

absl::StatusOr<RuleVerdict> ZenoRule::Decide(
    absl::Span<const RulePart> parts) const {
  PACELINE_RETURN_IF_ERROR(CheckParts(parts));
  PACELINE_RETURN_IF_ERROR(CheckDrops("zeno", k_, parts));
  const std::vector<double> lengths =
      SquaredDistancesTo(parts, [](const BlockRows&, float* zeros) {
        std::fill_n(zeros, kRuleBlock, 0.0f);
      });
  PACELINE_RETURN_IF_ERROR(CheckFinite(parts, lengths));
  PACELINE_ASSIGN_OR_RETURN(const double present, loss_.AtPresent());
  if (!std::isfinite(present)) {
    return FailedPrecondition(
        "zeno's trusted loss is ", present,
        " before any step: the model has diverged, restore a snapshot");
  }
  RuleVerdict verdict;
  std::vector<double> worse;  // of each member, the score's negative
  for (size_t i = 0; i < parts.size(); ++i) {
    const double step = gamma_ / static_cast<double>(parts[i].samples);
    PACELINE_ASSIGN_OR_RETURN(const double after,
                              loss_.After(parts[i].values, step));
    double score = present - after - rho_ * lengths[i];
    // Also a loss that fell to minus infinity: no honest step does that.
    if (!std::isfinite(score)) score = -std::numeric_limits<double>::infinity();
    verdict.scores.push_back(score);
    worse.push_back(-score);
  }

  const std::vector<int> order = Ascending(worse);
  std::vector<double> weights(parts.size(), 0);
  for (int64_t i = 0; i < std::ssize(parts) - k_; ++i) {
    if (std::isfinite(worse[order[i]])) weights[order[i]] = 1;
  }
  if (weights[order[0]] == 0) {
    return FailedPrecondition(
        "zeno's trusted loss is not finite after a step of gamma=", gamma_,
        " along any of ", parts.size(),
        " parts: skip the step, or lower gamma");
  }
  SetWeights(parts, weights, verdict);
  verdict.why = WhyUsed("zeno uses", "scores", verdict);
  return verdict;
}

std::unique_ptr<Rule> MakeZeno(const RuleSpec& spec, TrustedLoss* loss) {
  return std::make_unique<ZenoRule>(spec.k, spec.gamma, spec.rho, *loss);
}

}  // namespace paceline

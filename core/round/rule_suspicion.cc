#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/round/rule_blocks.h"
#include "core/round/rule_kinds.h"

namespace paceline {
namespace {

// Distance of each part's mean to the coordinate-wise median.
std::vector<double> DistancesToMedian(absl::Span<const RulePart> parts) {
  const size_t length = parts[0].values.size();
  const std::vector<float> factors = MeanFactors(parts);
  std::vector<double> distances(parts.size(), 0);
  BlockRows rows(parts.size());
  BlockRows scratch(parts.size());
  float median[kRuleBlock];
  for (size_t at = 0; at < length; at += kRuleBlock) {
    rows.Load(parts, factors, at, length);
    scratch = rows;
    MedianOfColumns(scratch, median);
    for (size_t i = 0; i < parts.size(); ++i) {
      distances[i] += SquaredDistance(rows.row(i), median);
    }
  }
  for (double& distance : distances) distance = std::sqrt(distance);
  return distances;
}

double SuspicionOf(double distance, double median_distance) {
  if (median_distance > 0) return distance / median_distance;
  return distance == 0 ? 0 : std::numeric_limits<double>::infinity();
}

// Weighting by suspicion, in the form that this project's issue gives: s_i is
// the distance of part i to the coordinate-wise median over the median of
// these distances; the k most suspect are dropped, the others weigh
// alpha / (alpha + s_i), normalised.  In spirit the reweighting by residuals
// of Fu, Xie, Li and Chen 2019; no proof of its own.
// Assumes n >= 2k + 1, so that the median is between honest values, and that
// liars are farther from it than most: one that stays close keeps a weight,
// but moves the result no farther than its distance.
// Where half of the members sit on the median itself, the median distance is
// 0: s_i is then 0 for them and infinity for the others, which weigh nothing.
// Decide: one read, a median of n and n distances a coordinate.
class SuspicionRule final : public WeightedRule {
 public:
  SuspicionRule(int64_t k, double alpha) : k_(k), alpha_(alpha) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override;

 private:
  const int64_t k_;
  const double alpha_;
};

}  // namespace

absl::StatusOr<RuleVerdict> SuspicionRule::Decide(
    absl::Span<const RulePart> parts) const {
  PACELINE_RETURN_IF_ERROR(CheckParts(parts));
  const auto members = static_cast<int64_t>(parts.size());
  if (k_ >= members) {
    return absl::FailedPreconditionError(
        absl::StrCat("suspicion drops k=", k_, " members and leaves none of ",
                     members, " parts: wait for more, or use a lower k"));
  }

  const std::vector<double> distances = DistancesToMedian(parts);
  RuleVerdict verdict;
  for (const double distance : distances) {
    if (!std::isfinite(distance)) return NonFinitePart(parts);
  }
  const double median_distance = MedianOf(distances);
  for (const double distance : distances) {
    verdict.scores.push_back(SuspicionOf(distance, median_distance));
  }
  // The least suspect is never dropped, and infinity is never the least: the
  // weights cannot all be 0.
  const std::vector<int> order = Ascending(verdict.scores);
  std::vector<double> weights(parts.size(), 0);
  for (int64_t i = 0; i < members - k_; ++i) {
    weights[order[i]] = alpha_ / (alpha_ + verdict.scores[order[i]]);
  }
  SetWeights(parts, weights, verdict);
  verdict.why = absl::StrCat(
      "suspicion uses ", absl::StrJoin(verdict.used, ", "), " of ", members,
      " members; s ", absl::StrJoin(verdict.scores, ", "));
  return verdict;
}

std::unique_ptr<Rule> MakeSuspicion(const RuleSpec& spec,
                                    TrustedLoss* /*loss*/) {
  return std::make_unique<SuspicionRule>(spec.k, spec.alpha);
}

}  // namespace paceline

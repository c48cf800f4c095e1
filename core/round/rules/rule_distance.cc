// Rules that compare distances: krum between all pairs of parts, suspicion to
// the median.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "core/base/errors.h"
#include "core/round/rules/rule_blocks.h"
#include "core/round/rules/rule_kinds.h"

namespace paceline {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Squared distances between all pairs; blocks are added in order.  All rows of
// a block are in the cache while its pairs are computed.
Matrix SquaredDistances(absl::Span<const RulePart> parts) {
  const size_t members = parts.size();
  const size_t length = parts[0].values.size();
  const std::vector<float> factors = MeanFactors(parts);
  Matrix distances(members, std::vector<double>(members));
  BlockRows rows(members);
  for (size_t at = 0; at < length; at += kRuleBlock) {
    rows.Load(parts, factors, at, length);
    for (size_t i = 0; i < members; ++i) {
      for (size_t j = i + 1; j < members; ++j) {
        distances[i][j] += SquaredDistance(rows.row(i), rows.row(j));
      }
    }
  }
  for (size_t i = 0; i < members; ++i) {
    for (size_t j = i + 1; j < members; ++j) distances[j][i] = distances[i][j];
  }
  return distances;
}

// Sum of the `neighbours` least distances to others, least first.
double ScoreOf(std::vector<double> distances, size_t self, size_t neighbours) {
  distances.erase(distances.begin() + static_cast<std::ptrdiff_t>(self));
  std::sort(distances.begin(), distances.end());
  return std::accumulate(
      distances.begin(),
      distances.begin() + static_cast<std::ptrdiff_t>(neighbours), 0.0);
}

// Blanchard, El Mhamdi, Guerraoui and Stainer 2017, "Machine learning with
// adversaries: Byzantine tolerant gradient descent", section 4 (Krum) and 5
// (Multi-Krum).  A part's score is the sum of the squared distances to its
// n - k - 2 nearest others; the `selected` lowest are averaged.
// Assumes n >= 2k + 3, honest gradients drawn from one distribution whose
// spread is small beside its mean.  Multi-Krum is covered for selected <=
// n - k - 2 (Damaskinos et al. 2019, "AggregaThor").
// Decide: one read, n (n - 1) / 2 distances of O(d).
class KrumRule final : public WeightedRule {
 public:
  KrumRule(int64_t k, int64_t selected) : k_(k), selected_(selected) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    const auto members = static_cast<int64_t>(parts.size());
    if (k_ > members - 3) {
      return FailedPrecondition("krum with k=", k_, " needs at least ", k_ + 3,
                                " parts, so that each has a neighbour; ",
                                members,
                                " came: wait for more, or use a lower k");
    }
    if (selected_ > members - k_) {
      return FailedPrecondition("krum averages selected=", selected_, " of ",
                                members, " parts of which k=", k_,
                                " may lie: wait for more, or select fewer");
    }

    const Matrix distances = SquaredDistances(parts);
    for (const std::vector<double>& row : distances) {
      PACELINE_RETURN_IF_ERROR(CheckFinite(parts, row));
    }
    RuleVerdict verdict;
    for (size_t i = 0; i < parts.size(); ++i) {
      verdict.scores.push_back(
          ScoreOf(distances[i], i, static_cast<size_t>(members - k_ - 2)));
    }
    const std::vector<int> order = Ascending(verdict.scores);
    std::vector<double> weights(parts.size(), 0);
    for (int64_t i = 0; i < selected_; ++i) weights[order[i]] = 1;
    SetWeights(parts, weights, verdict);
    verdict.why = WhyUsed("krum chose", "scores", verdict);
    return verdict;
  }

 private:
  const int64_t k_;
  const int64_t selected_;
};

// Distance of each part's mean to the coordinate-wise median.
std::vector<double> DistancesToMedian(absl::Span<const RulePart> parts) {
  BlockRows scratch(parts.size());
  std::vector<double> distances =
      SquaredDistancesTo(parts, [&](const BlockRows& means, float* median) {
        scratch = means;
        MedianOfColumns(scratch, median);
      });
  for (double& distance : distances) distance = std::sqrt(distance);
  return distances;
}

double SuspicionOf(double distance, double median_distance) {
  if (median_distance > 0) return distance / median_distance;
  return distance == 0 ? 0 : std::numeric_limits<double>::infinity();
}

// Weighting by suspicion, in a form of our own: s_i is
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
      absl::Span<const RulePart> parts) const override {
    PACELINE_RETURN_IF_ERROR(CheckParts(parts));
    PACELINE_RETURN_IF_ERROR(CheckDrops("suspicion", k_, parts));
    const std::vector<double> distances = DistancesToMedian(parts);
    PACELINE_RETURN_IF_ERROR(CheckFinite(parts, distances));
    RuleVerdict verdict;
    const double median_distance = MedianOf(distances);
    for (const double distance : distances) {
      verdict.scores.push_back(SuspicionOf(distance, median_distance));
    }
    // The least suspect is never dropped, and infinity is never the least: the
    // weights cannot all be 0.
    const std::vector<int> order = Ascending(verdict.scores);
    std::vector<double> weights(parts.size(), 0);
    for (int64_t i = 0; i < std::ssize(parts) - k_; ++i) {
      weights[order[i]] = alpha_ / (alpha_ + verdict.scores[order[i]]);
    }
    SetWeights(parts, weights, verdict);
    verdict.why = WhyUsed("suspicion uses", "s", verdict);
    return verdict;
  }

 private:
  const int64_t k_;
  const double alpha_;
};

}  // namespace

std::unique_ptr<Rule> MakeKrum(const RuleSpec& spec, TrustedLoss* /*loss*/) {
  return std::make_unique<KrumRule>(spec.k, spec.selected);
}

std::unique_ptr<Rule> MakeSuspicion(const RuleSpec& spec,
                                    TrustedLoss* /*loss*/) {
  return std::make_unique<SuspicionRule>(spec.k, spec.alpha);
}

}  // namespace paceline

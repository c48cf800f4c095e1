#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/round/rule_blocks.h"
#include "core/round/rule_kinds.h"

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

absl::Status CheckFinite(absl::Span<const RulePart> parts,
                         const Matrix& distances) {
  const bool finite = std::all_of(
      distances.begin(), distances.end(), [](const std::vector<double>& row) {
        return std::all_of(row.begin(), row.end(),
                           [](double d) { return std::isfinite(d); });
      });
  return finite ? absl::OkStatus() : NonFinitePart(parts);
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
      absl::Span<const RulePart> parts) const override;

 private:
  const int64_t k_;
  const int64_t selected_;
};

}  // namespace

absl::StatusOr<RuleVerdict> KrumRule::Decide(
    absl::Span<const RulePart> parts) const {
  PACELINE_RETURN_IF_ERROR(CheckParts(parts));
  const auto members = static_cast<int64_t>(parts.size());
  if (k_ > members - 3) {
    return absl::FailedPreconditionError(
        absl::StrCat("krum with k=", k_, " needs at least ", k_ + 3,
                     " parts, so that each has a neighbour; ", members,
                     " came: wait for more, or use a lower k"));
  }
  if (selected_ > members - k_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "krum averages selected=", selected_, " of ", members,
        " parts of which k=", k_, " may lie: wait for more, or select fewer"));
  }

  const Matrix distances = SquaredDistances(parts);
  PACELINE_RETURN_IF_ERROR(CheckFinite(parts, distances));
  RuleVerdict verdict;
  for (size_t i = 0; i < parts.size(); ++i) {
    verdict.scores.push_back(
        ScoreOf(distances[i], i, static_cast<size_t>(members - k_ - 2)));
  }
  const std::vector<int> order = Ascending(verdict.scores);
  std::vector<double> weights(parts.size(), 0);
  for (int64_t i = 0; i < selected_; ++i) weights[order[i]] = 1;
  SetWeights(parts, weights, verdict);
  verdict.why = absl::StrCat("krum chose ", absl::StrJoin(verdict.used, ", "),
                             " of ", members, " members; scores ",
                             absl::StrJoin(verdict.scores, ", "));
  return verdict;
}

std::unique_ptr<Rule> MakeKrum(const RuleSpec& spec, TrustedLoss* /*loss*/) {
  return std::make_unique<KrumRule>(spec.k, spec.selected);
}

}  // namespace paceline

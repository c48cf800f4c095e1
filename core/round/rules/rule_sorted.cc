// median and trimmed-mean: rules that sort the values of each coordinate.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/round/rules/rule_blocks.h"
#include "core/round/rules/rule_kinds.h"

namespace paceline {
namespace {

// Calls with_block(rows, count, result of the block) for each block of the
// range, its rows loaded with means.
template <typename WithBlock>
void ForEachBlock(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
                  size_t begin, size_t end, absl::Span<float> result,
                  WithBlock with_block) {
  PACELINE_CHECK(
      verdict.factors.size() == parts.size() && result.size() == end - begin,
      "factors=", verdict.factors.size(), " parts=", parts.size(),
      " result=", result.size(), " range=", end - begin);
  BlockRows rows(parts.size());
  for (size_t at = begin; at < end; at += kRuleBlock) {
    const size_t count = rows.Load(parts, verdict.factors, at, end);
    with_block(rows, count, result.data() + (at - begin));
  }
}

// Sum of rows [first, last) times scale, in float64: the mean of equal values
// is that value.
void MeanOfRows(const BlockRows& rows, size_t first, size_t last, double scale,
                float* mean) {
  double sum[kRuleBlock] = {};
  for (size_t index = first; index < last; ++index) {
    const float* const row = rows.row(index);
    for (size_t i = 0; i < kRuleBlock; ++i) sum[i] += row[i];
  }
  for (size_t i = 0; i < kRuleBlock; ++i) {
    mean[i] = static_cast<float>(sum[i] * scale);
  }
}

// Coordinate-wise median and trimmed mean: Yin, Chen, Ramchandran and Bartlett
// 2018, "Byzantine-robust distributed learning: towards optimal statistical
// rates", definitions 1 and 2.
// Assumes n >= 2k + 1: each coordinate then lies between honest values.
// Departure: a count k is trimmed at each end, not a fraction.  The middle two
// are averaged in float64, the untrimmed summed there in ascending order, so
// that the result does not depend on which member sent which value.
// Decide O(n).  Combine: one read, O(n log^2 n) exchanges a coordinate.
class MedianRule final : public Rule {
 public:
  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override;
  void Combine(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
               size_t begin, size_t end,
               absl::Span<float> result) const override;
};

class TrimmedMeanRule final : public Rule {
 public:
  explicit TrimmedMeanRule(int64_t k) : k_(k) {}

  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override;
  void Combine(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
               size_t begin, size_t end,
               absl::Span<float> result) const override;

 private:
  const int64_t k_;
};

}  // namespace

absl::StatusOr<RuleVerdict> MedianRule::Decide(
    absl::Span<const RulePart> parts) const {
  PACELINE_RETURN_IF_ERROR(CheckParts(parts));
  RuleVerdict verdict = AllUsed(parts);
  verdict.factors = MeanFactors(parts);
  verdict.why = absl::StrCat("median of ", Counted(parts.size(), "member"));
  return verdict;
}

void MedianRule::Combine(absl::Span<const RulePart> parts,
                         const RuleVerdict& verdict, size_t begin, size_t end,
                         absl::Span<float> result) const {
  ForEachBlock(parts, verdict, begin, end, result,
               [](BlockRows& rows, size_t count, float* to) {
                 float median[kRuleBlock];
                 MedianOfColumns(rows, median);
                 std::copy_n(median, count, to);
               });
}

absl::StatusOr<RuleVerdict> TrimmedMeanRule::Decide(
    absl::Span<const RulePart> parts) const {
  PACELINE_RETURN_IF_ERROR(CheckParts(parts));
  const auto members = static_cast<int64_t>(parts.size());
  if (k_ > (members - 1) / 2) {
    return FailedPrecondition(
        "trimmed-mean cuts k=", k_, " values at each end and leaves none of ",
        Counted(members, "part"), ": wait for more, or use a lower k");
  }
  RuleVerdict verdict = AllUsed(parts);
  verdict.factors = MeanFactors(parts);
  verdict.why = absl::StrCat("mean of the middle ", members - 2 * k_, " of ",
                             Counted(members, "member"));
  return verdict;
}

void TrimmedMeanRule::Combine(absl::Span<const RulePart> parts,
                              const RuleVerdict& verdict, size_t begin,
                              size_t end, absl::Span<float> result) const {
  const auto first = static_cast<size_t>(k_);
  const size_t last = parts.size() - first;
  const double scale = 1 / static_cast<double>(last - first);
  ForEachBlock(parts, verdict, begin, end, result,
               [=](BlockRows& rows, size_t count, float* to) {
                 float mean[kRuleBlock];
                 SortColumns(rows);
                 MeanOfRows(rows, first, last, scale, mean);
                 std::copy_n(mean, count, to);
               });
}

std::unique_ptr<Rule> MakeMedian(const RuleSpec& /*spec*/,
                                 TrustedLoss* /*loss*/) {
  return std::make_unique<MedianRule>();
}

std::unique_ptr<Rule> MakeTrimmedMean(const RuleSpec& spec,
                                      TrustedLoss* /*loss*/) {
  return std::make_unique<TrimmedMeanRule>(spec.k);
}

}  // namespace paceline

#include "core/round/rules/rule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/round/rules/rule_blocks.h"
#include "core/round/rules/rule_kinds.h"
#include "core/round/rules/rule_traits.h"

namespace paceline {
namespace {

// Sum of all parts over the sum of all samples.
// Assumes that no member lies.  Decide O(n).
class MeanRule final : public WeightedRule {
 public:
  absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const override;
};

}  // namespace

absl::Status CheckParts(absl::Span<const RulePart> parts) {
  if (parts.empty()) {
    return InvalidArgument("no part to aggregate: a round needs at least one");
  }
  int64_t room = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].values.size() != parts[0].values.size()) {
      return InvalidArgument("part ", i, " has ", parts[i].values.size(),
                             " values, part 0 has ", parts[0].values.size(),
                             ": parts of one round are of one length");
    }
    if (parts[i].samples < 1) {
      return InvalidArgument("part ", i, " covers ", parts[i].samples,
                             " samples: leave out a part without any");
    }
    if (parts[i].samples > room) {
      return InvalidArgument(
          "part ", i, " covers ", parts[i].samples,
          " samples: more than can be counted with the others'; "
          "refuse such a part where it arrives");
    }
    room -= parts[i].samples;
  }
  return absl::OkStatus();
}

absl::Status CheckDrops(const char* name, int64_t k,
                        absl::Span<const RulePart> parts) {
  if (k < std::ssize(parts)) return absl::OkStatus();
  return FailedPrecondition(name, " drops k=", k,
                            " members and leaves none of ", parts.size(),
                            " parts: wait for more, or use a lower k");
}

absl::Status CheckFinite(absl::Span<const RulePart> parts,
                         absl::Span<const double> distances) {
  if (std::all_of(distances.begin(), distances.end(),
                  [](double distance) { return std::isfinite(distance); })) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t at = FindNonFinite(parts[i].values);
    if (at == parts[i].values.size()) continue;
    return InvalidArgument("part ", i, " holds ", parts[i].values[at],
                           " at value ", at,
                           ": refuse such a part where it arrives");
  }
  return Internal("a distance between finite parts is not finite");
}

std::vector<double> SquaredDistancesTo(
    absl::Span<const RulePart> parts,
    absl::FunctionRef<void(const BlockRows& means, float* block)> reference) {
  const size_t length = parts[0].values.size();
  const std::vector<float> factors = MeanFactors(parts);
  std::vector<double> distances(parts.size(), 0);
  BlockRows means(parts.size());
  float block[kRuleBlock] = {};
  for (size_t at = 0; at < length; at += kRuleBlock) {
    means.Load(parts, factors, at, length);
    reference(means, block);
    for (size_t i = 0; i < parts.size(); ++i) {
      distances[i] += SquaredDistance(means.row(i), block);
    }
  }
  return distances;
}

RuleVerdict AllUsed(absl::Span<const RulePart> parts) {
  RuleVerdict verdict;
  verdict.used.resize(parts.size());
  std::iota(verdict.used.begin(), verdict.used.end(), 0);
  for (const RulePart& part : parts) verdict.samples += part.samples;
  return verdict;
}

void SetWeights(absl::Span<const RulePart> parts,
                absl::Span<const double> weights, RuleVerdict& verdict) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  PACELINE_CHECK(sum > 0, "sum of weights=", sum);
  verdict.factors.assign(parts.size(), 0);
  verdict.used.clear();
  verdict.samples = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (weights[i] == 0) continue;
    verdict.factors[i] = static_cast<float>(
        weights[i] / sum / static_cast<double>(parts[i].samples));
    verdict.used.push_back(static_cast<int>(i));
    verdict.samples += parts[i].samples;
  }
}

std::string WhyUsed(const char* does, const char* scores,
                    const RuleVerdict& verdict) {
  return absl::StrCat(does, " ", absl::StrJoin(verdict.used, ", "), " of ",
                      Counted(verdict.scores.size(), "member"), "; ", scores,
                      " ", absl::StrJoin(verdict.scores, ", "));
}

std::vector<int> Ascending(absl::Span<const double> values) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&values](int a, int b) { return values[a] < values[b]; });
  return order;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) * 0.5;
}

void WeightedRule::Combine(absl::Span<const RulePart> parts,
                           const RuleVerdict& verdict, size_t begin, size_t end,
                           absl::Span<float> result) const {
  PACELINE_CHECK(
      verdict.factors.size() == parts.size() && result.size() == end - begin,
      "factors=", verdict.factors.size(), " parts=", parts.size(),
      " result=", result.size(), " range=", end - begin);
  WeightedSum(parts, verdict.factors, begin, end, result);
}

absl::StatusOr<RuleVerdict> MeanRule::Decide(
    absl::Span<const RulePart> parts) const {
  PACELINE_RETURN_IF_ERROR(CheckParts(parts));
  RuleVerdict verdict = AllUsed(parts);
  verdict.factors.assign(parts.size(), 1);
  verdict.divisor = verdict.samples;
  verdict.why = absl::StrCat("mean of ", Counted(verdict.samples, "sample"),
                             " of ", Counted(parts.size(), "member"));
  return verdict;
}

std::unique_ptr<Rule> MakeMean(const RuleSpec& /*spec*/,
                               TrustedLoss* /*loss*/) {
  return std::make_unique<MeanRule>();
}

absl::StatusOr<std::unique_ptr<Rule>> MakeRule(const RuleSpec& spec,
                                               TrustedLoss* loss) {
  PACELINE_RETURN_IF_ERROR(CheckRuleNumbers(spec));
  const RuleTraits& traits = TraitsOf(spec.name);
  if (traits.trusts_a_batch && loss == nullptr) {
    return InvalidArgument(
        "rule ", spec.name,
        " scores parts by a loss and got none: give it a trusted batch, or use "
        "another rule");
  }
  return traits.make(spec, loss);
}

}  // namespace paceline

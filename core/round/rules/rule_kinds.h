// The rules' common parts, and how each rule is made.  A rule's own file says
// its source, its assumption, its cost, and where we depart.
//
// Costs are for n parts of d coordinates.  "One read" is one pass over all
// parts, which takes most of the time.  CPU ms of 9 parts of 1M values, one
// core, November 2026: one read 1.2, mean 1.1, median 2.6, zeno without losses
// 2.8, trimmed-mean 4.5, suspicion 4.6, krum 5.0.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/round/rules/rule.h"
#include "core/round/rules/rule_blocks.h"

namespace paceline {

// InvalidArgument unless there is a part, all are of one length, each has a
// sample, and all samples together fit an int64.  O(parts).
absl::Status CheckParts(absl::Span<const RulePart> parts);

// FailedPrecondition where the rule `name`, which drops `k` members, would
// leave none of the parts.
absl::Status CheckDrops(const char* name, int64_t k,
                        absl::Span<const RulePart> parts);

// InvalidArgument if one of `distances` is not finite: names the first part
// that holds NaN or infinity.  Internal if no part does.
absl::Status CheckFinite(absl::Span<const RulePart> parts,
                         absl::Span<const double> distances);

// Squared distances of the parts' means to a vector.  `reference` gets the
// means of each block, and writes that block of the vector to `block`
// [kRuleBlock]; blocks are added in order.  One read.
std::vector<double> SquaredDistancesTo(
    absl::Span<const RulePart> parts,
    absl::FunctionRef<void(const BlockRows& means, float* block)> reference);

// The verdict in which all members are used: samples and `used` are filled
// in, factors, scores and why are left to the rule.
RuleVerdict AllUsed(absl::Span<const RulePart> parts);

// Fills `used`, samples and factors of a verdict whose result is the mean over
// members by `weights` [parts], at least 0, not all 0; they are normalised by
// their sum in member order, in float64.
void SetWeights(absl::Span<const RulePart> parts,
                absl::Span<const double> weights, RuleVerdict& verdict);

// "DOES 0, 2 of 3 members; SCORES 1, 5, 2": the members used and their scores.
std::string WhyUsed(const char* does, const char* scores,
                    const RuleVerdict& verdict);

// Places 0 .. values.size() - 1, least value first, lower place first among
// equals.  No NaN.
std::vector<int> Ascending(absl::Span<const double> values);

// The middle value, or the mean of the two middle ones.  Not empty, no NaN.
double MedianOf(std::vector<double> values);

// Rules whose result is a sum of parts, each by its factor: one read of the
// members that are used, O(n d).
class WeightedRule : public Rule {
 public:
  void Combine(absl::Span<const RulePart> parts, const RuleVerdict& verdict,
               size_t begin, size_t end, absl::Span<float> result) const final;
};

// The factories of rule_traits.cc's table, which has checked the numbers.
// loss: zeno's, may be null for the others.
std::unique_ptr<Rule> MakeMean(const RuleSpec& spec, TrustedLoss* loss);
std::unique_ptr<Rule> MakeMedian(const RuleSpec& spec, TrustedLoss* loss);
std::unique_ptr<Rule> MakeTrimmedMean(const RuleSpec& spec, TrustedLoss* loss);
std::unique_ptr<Rule> MakeKrum(const RuleSpec& spec, TrustedLoss* loss);
std::unique_ptr<Rule> MakeSuspicion(const RuleSpec& spec, TrustedLoss* loss);
std::unique_ptr<Rule> MakeZeno(const RuleSpec& spec, TrustedLoss* loss);

}  // namespace paceline

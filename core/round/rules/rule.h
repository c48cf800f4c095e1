// Aggregation rules make one result of the parts of a round.
//
// A part is a SUM of gradients over a member's samples.  `mean` divides the sum
// of all parts by all samples, as if one process had seen them all; the other
// rules look at each member's mean (part / samples), give every member the same
// weight whatever its samples, and so withstand members that lie, also about
// their samples.  Of n members k may lie:
//
//   rule          withstands k liars if    result
//   mean          k = 0                    weighted by samples
//   median        n >= 2k + 1              coordinate-wise
//   trimmed-mean  n >= 2k + 1              coordinate-wise, k cut at each end
//   krum          n >= 2k + 3              the part nearest to its neighbours
//   suspicion     n >= 2k + 1              weighted by nearness to the median
//   zeno          n >= k + 1               the n - k that lower a loss most
//
// (AllRules() has this table as data.)  Members are named by their place in
// id order: parts[i] everywhere.  Ties go to the lower place.
//
// Same bytes: the arithmetic is + - * / and sqrt in an order that the source
// fixes, members in id order, whatever the CPU, its SIMD width, or the ranges
// that Combine is called with.  (zeno's losses are the caller's; one server
// computes them and its result travels.)
//
// NaN and infinity: the border refuses parts that hold one (FindNonFinite in
// rule_blocks.h finds it); with one the rules' result is unspecified, but
// nothing crashes and no bound of memory is crossed.
//
// Memory: no copy of a part; one or two blocks of 1 KiB a member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace paceline {

// A rule and its numbers.  CheckRule() checks them.  A field that
// the rule does not use must hold a legal value too, as the defaults are.
struct RuleSpec {
  std::string name = "mean";

  // Liars to withstand: trimmed-mean cuts k values at each end; suspicion and
  // zeno (b there) drop k members; krum calls it f.  The results of mean and
  // median do not depend on k; CheckRule judges these rules by it.
  int64_t k = 0;

  // krum: how many of the best are averaged (m of multi-krum; 1: Krum).
  int64_t selected = 1;

  // suspicion: a member at the median distance weighs alpha / (alpha + 1).
  double alpha = 1;

  // zeno: the step along a part for which the loss is asked.  The paper takes
  // the learning rate; so should the caller, there is no default.
  double gamma = 0;

  // zeno: the price of a part's squared length.
  double rho = 0.0005;
};

// One member's part.
struct RulePart {
  absl::Span<const float> values;  // [n] float32, a sum over samples
  int64_t samples = 0;             // at least 1
};

// A rule's decision about the members.  All vectors are [parts].
struct RuleVerdict {
  // Combine multiplies part i by factors[i]; 0: dropped, never read.
  std::vector<float> factors;

  // krum: sum of squared distances to the neighbours; suspicion: s_i; zeno:
  // the score.  Empty for the coordinate-wise rules.
  std::vector<double> scores;

  // Places of the members that the result is made of, ascending.
  std::vector<int> used;

  // The optimizer divides the result by this, once:
  // all samples for mean, 1 for the others, whose result is a mean already.
  int64_t divisor = 1;

  // For people: which members were dropped and by what numbers.
  std::string why;
};

// Evaluates the model on a small batch that the server trusts (zeno).
class TrustedLoss {
 public:
  virtual ~TrustedLoss() = default;

  // f(x - step * direction): the mean loss at these parameters; direction [n]
  // float32, or empty: f(x).  The parameters are x again afterwards.  NaN or
  // infinity are legal answers.
  virtual absl::StatusOr<double> After(absl::Span<const float> direction,
                                       double step) = 0;
};

// One rule with its numbers.  Immutable (zeno borrows its TrustedLoss, which
// must outlive it, and is as thread-safe as that); safe to use for any number
// of rounds.
//
// A round calls Decide once and Combine for all coordinates, in ranges of any
// size and order:
//
//   ASSIGN(const RuleVerdict verdict, rule->Decide(parts));
//   for (each range) rule->Combine(parts, verdict, begin, end, result_range);
//
// A rule that does not read whole parts (RuleTraits) decides by sizes and
// samples alone: then Decide may come before the values have arrived, and
// Combine as soon as all parts have those of its range.
class Rule {
 public:
  virtual ~Rule() = default;

  // Judges the members; parts in id order.  Each rule's file names the cost.
  // Memory beside blocks: O(parts), krum O(parts^2).
  //
  // Errors:
  //   InvalidArgument     no part, parts of unlike length, samples below 1 or
  //                       beyond int64 in sum, or a value found that is not
  //                       finite
  //   FailedPrecondition  too few parts came for the rule's k; zeno: the
  //                       trusted loss is not finite, or is after every step
  //   any                 of the TrustedLoss
  virtual absl::StatusOr<RuleVerdict> Decide(
      absl::Span<const RulePart> parts) const = 0;

  // Writes coordinates [begin, end) of the result; result [end - begin]
  // float32, not overlapping a part.  `verdict` is Decide's on these parts.
  virtual void Combine(absl::Span<const RulePart> parts,
                       const RuleVerdict& verdict, size_t begin, size_t end,
                       absl::Span<float> result) const = 0;
};

// loss: zeno's, may be null for the others.
//
// Errors: InvalidArgument for an unknown name, a number out of its range, and
// zeno without a loss.
absl::StatusOr<std::unique_ptr<Rule>> MakeRule(const RuleSpec& spec,
                                               TrustedLoss* loss);

// A bound that is linear in k: members >= per_liar * k + beside.
struct MemberBound {
  int64_t per_liar = 1;
  int64_t beside = 1;

  // Divides, since a product with a user's k may overflow int64.
  bool Holds(int64_t members, int64_t k) const {
    return k <= MostLiars(members);
  }
  int64_t MostLiars(int64_t members) const {
    return members < beside ? -1 : (members - beside) / per_liar;
  }
};

// The properties of a rule, for code that treats rules differently.
struct RuleTraits {
  const char* name;
  std::unique_ptr<Rule> (*make)(const RuleSpec& spec, TrustedLoss* loss);
  MemberBound computes;    // with fewer members it is an error
  MemberBound withstands;  // with fewer members it is a warning
  const char* what_k_does;
  const char* source;

  bool withstands_liars = true;
  // With k = 0 it is the mean.
  bool needs_k = false;
  // Reads whole parts, and so cannot be sharded.
  bool reads_whole_parts = false;
  // Its sum does not depend on samples: it may begin while parts arrive.
  bool sums_ahead = false;
  // Averages RuleSpec::selected parts.
  bool selects = false;
  // Asks for losses on a batch that the server trusts, and steps by gamma.
  bool trusts_a_batch = false;
};

// The table of all rules.  No other code compares a rule's name.
absl::Span<const RuleTraits> AllRules();
// Names of all rules, for messages and help.
std::vector<std::string> RuleNames();

// Null: no rule has this name.
const RuleTraits* FindRule(const std::string& name);
// The rule must exist.
const RuleTraits& TraitsOf(const std::string& name);
// "mean, median or trimmed-mean": rules that may be sharded.
std::string ShardableRules();

// Judges a rule before it is used: at submit, with as many members as the job
// will have; call it with the job's min_parts as well, since a round may close
// with as few.
//
// Returns the assumptions that do not hold, each as a sentence with the numbers
// and a way out: the rule computes something, but its source promises nothing
// about it.
//
// Errors: InvalidArgument for
//   - an unknown rule, a negative or non-finite number, alpha or selected
//     below what the rule needs, zeno without gamma
//   - k that leaves no part (trimmed-mean: members <= 2k; krum: members <=
//     k + 2, no neighbour to compare with; suspicion, zeno: members <= k)
//   - krum that averages more than members - k
absl::StatusOr<std::vector<std::string>> CheckRule(const RuleSpec& spec,
                                                   int64_t members);

// The part of CheckRule that does not know the members.
absl::Status CheckRuleNumbers(const RuleSpec& spec);

}  // namespace paceline

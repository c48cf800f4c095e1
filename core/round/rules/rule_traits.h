// The table of all rules, and the checks that a job or a round fulfils the
// assumptions of its rule.  No other code compares a rule's name.  Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/round/rules/rule.h"

namespace paceline {

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

// Names of all rules, for messages and help.
const std::vector<std::string>& RuleNames();

// Null: no rule has this name.
const RuleTraits* FindRule(const std::string& name);
// The rule must exist.
const RuleTraits& TraitsOf(const std::string& name);
// "mean, median or trimmed-mean": rules that may be sharded.
std::string ShardableRules();

// Judges a rule before it is used: at submit, with as many members and shards
// as the job will have; call it with the job's min_parts as well, since a
// round may close with as few.
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
//   - a whole-vector rule (krum, suspicion, zeno) with shards > 1
absl::StatusOr<std::vector<std::string>> CheckRule(const RuleSpec& spec,
                                                   int64_t members,
                                                   int64_t shards);

// The part of CheckRule that knows neither members nor shards.
absl::Status CheckRuleNumbers(const RuleSpec& spec);

}  // namespace paceline

#include "core/round/rules/rule.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {
namespace {

absl::Status CheckAtLeast(const char* name, double value, double least,
                          bool more) {
  if (std::isfinite(value) && (more ? value > least : value >= least)) {
    return absl::OkStatus();
  }
  return InvalidArgument("aggregation ", name, " is ", value, ": it must be ",
                         more ? "above " : "at least ", least, " and finite");
}

// k < members here, so nothing overflows for any real number of members.
int64_t MembersNeeded(const MemberBound& bound, int64_t k) {
  return bound.per_liar * k + bound.beside;
}

absl::Status CheckMembers(const RuleTraits& traits, const RuleSpec& spec,
                          int64_t members) {
  if (!traits.computes.Holds(members, spec.k)) {
    const int64_t most = traits.computes.MostLiars(members);
    return InvalidArgument(
        "rule ", spec.name, " with k=", spec.k, " ", traits.what_k_does, " of ",
        Counted(members, "member"), ": ",
        most >= 0 ? absl::StrCat("use k of at most ", most)
                  : absl::StrCat("it needs at least ", traits.computes.beside,
                                 " members"));
  }
  if (traits.selects && spec.selected > members - spec.k) {
    return InvalidArgument("rule ", spec.name,
                           " averages selected=", spec.selected, " of ",
                           Counted(members, "member"), " of which k=", spec.k,
                           " may lie: select at most ", members - spec.k);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> RuleNames() {
  return NamesOf(AllRules(), &RuleTraits::name);
}

const RuleTraits* FindRule(const std::string& name) {
  return FindNamed(AllRules(), name, &RuleTraits::name);
}

const RuleTraits& TraitsOf(const std::string& name) {
  const RuleTraits* const traits = FindRule(name);
  PACELINE_CHECK(traits != nullptr, name);
  return *traits;
}

std::string ShardableRules() {
  std::vector<std::string> names;
  for (const RuleTraits& traits : AllRules()) {
    if (!traits.reads_whole_parts) names.push_back(traits.name);
  }
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

absl::Status CheckRuleNumbers(const RuleSpec& spec) {
  const RuleTraits* const traits = FindRule(spec.name);
  if (traits == nullptr) {
    return InvalidArgument("unknown aggregation rule \"", spec.name,
                           "\": use one of ", absl::StrJoin(RuleNames(), ", "));
  }
  if (spec.k < 0) {
    return InvalidArgument("aggregation k is ", spec.k,
                           ": it must be at least 0");
  }
  if (spec.selected < 1) {
    return InvalidArgument("aggregation selected is ", spec.selected,
                           ": it must be at least 1");
  }
  PACELINE_RETURN_IF_ERROR(CheckAtLeast("alpha", spec.alpha, 0, true));
  PACELINE_RETURN_IF_ERROR(
      CheckAtLeast("gamma", spec.gamma, 0, traits->trusts_a_batch));
  return CheckAtLeast("rho", spec.rho, 0, false);
}

absl::StatusOr<std::vector<std::string>> CheckRule(const RuleSpec& spec,
                                                   int64_t members) {
  PACELINE_RETURN_IF_ERROR(CheckRuleNumbers(spec));
  const RuleTraits& traits = TraitsOf(spec.name);
  if (members < 1) {
    return InvalidArgument("aggregation over ", members,
                           " members: there must be at least 1");
  }
  PACELINE_RETURN_IF_ERROR(CheckMembers(traits, spec, members));

  std::vector<std::string> warnings;
  if (!traits.withstands_liars && spec.k > 0) {
    warnings.push_back(
        absl::StrCat("rule ", spec.name, " withstands no liar, but k=", spec.k,
                     " of ", Counted(members, "member"),
                     " may lie: one is enough to move the result anywhere; use "
                     "another rule"));
  } else if (!traits.withstands.Holds(members, spec.k)) {
    const int64_t most = traits.withstands.MostLiars(members);
    warnings.push_back(absl::StrCat(
        "rule ", spec.name, " withstands k=", spec.k, " liars of at least ",
        MembersNeeded(traits.withstands, spec.k), " members (", traits.source,
        "), there are ", members, ": ",
        most >= 0 ? absl::StrCat("use k of at most ", most)
                  : "it withstands none",
        ", or more members"));
  }
  if (traits.needs_k && spec.k == 0 && members > 1) {
    warnings.push_back(absl::StrCat("rule ", spec.name,
                                    " with k=0 averages all ", members,
                                    " members and withstands no liar: set k"));
  }
  if (traits.selects && spec.selected > members - spec.k - 2) {
    warnings.push_back(absl::StrCat(
        "rule ", spec.name, " averages selected=", spec.selected,
        " parts; with k=", spec.k, " of ", Counted(members, "member"),
        " no more than ", members - spec.k - 2,
        " are covered (Damaskinos et al. 2019)"));
  }
  return warnings;
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

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/round/rules/rule.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

// "RULE MEMBERS KEY=VALUE...": what is wrong with it, or its warnings.
std::string Checked(const std::string& question) {
  const std::vector<std::string> words = absl::StrSplit(question, ' ');
  RuleSpec spec{.name = words[0], .gamma = 0.1};
  for (size_t i = 2; i < words.size(); ++i) {
    const std::pair<std::string, std::string> part =
        absl::StrSplit(words[i], '=');
    if (part.first == "k") spec.k = std::stoll(part.second);
    if (part.first == "selected") spec.selected = std::stoll(part.second);
    if (part.first == "alpha") spec.alpha = std::stod(part.second);
    if (part.first == "rho") spec.rho = std::stod(part.second);
    if (part.first == "gamma") spec.gamma = std::stod(part.second);
  }
  const auto warnings = CheckRule(spec, std::stoll(words[1]));
  if (!warnings.ok()) return warnings.status().ToString();
  return absl::StrCat("OK\n", absl::StrJoin(*warnings, "\n"));
}

TEST(CheckRule, SaysWhatCannotBeAndWarnsOfWhatARuleDoesNotWithstand) {
  ExpectAnswers("core/rules", Checked);
}

TEST(ShardableRules, AreThoseThatDoNotJudgeWholeParts) {
  EXPECT_EQ(ShardableRules(), "mean, median or trimmed-mean");
}

}  // namespace
}  // namespace paceline

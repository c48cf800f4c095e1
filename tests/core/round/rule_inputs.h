// Members' parts for the tests of rules, and the rules written as plainly as
// their definitions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/round/rules/rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {

// Owns what RulePart borrows.
struct Members {
  std::vector<std::vector<float>> sums;
  std::vector<int64_t> samples;

  void Add(std::vector<float> sum, int64_t count) {
    sums.push_back(std::move(sum));
    samples.push_back(count);
  }
  std::vector<RulePart> parts() const {
    std::vector<RulePart> all;
    for (size_t i = 0; i < sums.size(); ++i) {
      all.push_back({sums[i], samples[i]});
    }
    return all;
  }
  // float32, as the rules take it.
  float mean(size_t member, size_t at) const {
    return sums[member][at] *
           static_cast<float>(1 / static_cast<double>(samples[member]));
  }
};

// `members` parts of `length` values in about [-8, 8), 1 to 16 samples each.
inline Members RandomMembers(size_t members, size_t length, uint64_t seed) {
  SplitMix64 random(seed);
  Members all;
  for (size_t i = 0; i < members; ++i) {
    const auto samples = static_cast<int64_t>(1 + random.Below(16));
    std::vector<float> sum;
    for (size_t at = 0; at < length; ++at) {
      sum.push_back((random.Unit() - 0.5f) * static_cast<float>(samples) * 16);
    }
    all.Add(std::move(sum), samples);
  }
  return all;
}

// Members of one sample each: what the parts are is what the means are.
inline Members MembersOf(std::vector<std::vector<float>> sums) {
  Members all;
  for (auto& sum : sums) all.Add(std::move(sum), 1);
  return all;
}

struct Outcome {
  RuleVerdict verdict;
  std::vector<float> result;
};

// Decides and combines; fails the test when the rule does not.  loss: null but
// for zeno.
inline Outcome RunRule(const RuleSpec& spec, const Members& members,
                       TrustedLoss* loss = nullptr) {
  const auto rule = Value(MakeRule(spec, loss));
  Outcome outcome;
  outcome.result.assign(members.sums[0].size(), -77);
  const std::vector<RulePart> parts = members.parts();
  outcome.verdict = Value(rule->Decide(parts));
  rule->Combine(parts, outcome.verdict, 0, outcome.result.size(),
                absl::MakeSpan(outcome.result));
  return outcome;
}

// A rule must not decide about these parts, and says this among other things.
inline void ExpectUndecided(const RuleSpec& spec,
                            const std::vector<RulePart>& parts,
                            absl::StatusCode code, const std::string& says,
                            TrustedLoss* loss = nullptr) {
  ExpectError(Value(MakeRule(spec, loss))->Decide(parts).status(), code,
              ::testing::HasSubstr(says));
}

}  // namespace paceline

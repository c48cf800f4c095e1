#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/round/rules/rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

RuleSpec SpecOf(const std::string& name, int64_t k) {
  return {.name = name, .k = k, .gamma = 0.1};
}

// The rule with one of its numbers set to `value`.
template <typename T>
RuleSpec With(RuleSpec spec, T RuleSpec::*number, T value) {
  spec.*number = value;
  return spec;
}

RuleSpec KrumOf(int64_t k, int64_t selected) {
  return With(SpecOf("krum", k), &RuleSpec::selected, selected);
}

std::vector<std::string> WarningsOf(const RuleSpec& spec, int64_t members) {
  return Value(CheckRule(spec, members, 1));
}

TEST(CheckRule, RefusesWhatCannotBeAndSaysWhatWould) {
  const RuleSpec suspicion = SpecOf("suspicion", 1);
  const RuleSpec zeno = SpecOf("zeno", 1);
  const struct {
    RuleSpec spec;
    const char* says;
    int64_t members = 9;
    int64_t shards = 1;
  } kCases[] = {
      {SpecOf("average", 0),
       "\"average\": use one of mean, median, trimmed-mean, krum"},
      {SpecOf("median", -1), "aggregation k is -1: it must be at least 0"},
      {KrumOf(1, 0), "aggregation selected is 0: it must be at least 1"},
      {With(suspicion, &RuleSpec::alpha, 0.0),
       "aggregation alpha is 0: it must be above 0 and finite"},
      {With(suspicion, &RuleSpec::alpha, kInfinity),
       "aggregation alpha is inf: it must be above 0 and finite"},
      {With(zeno, &RuleSpec::rho, -0.5),
       "aggregation rho is -0.5: it must be at least 0 and finite"},
      {With(zeno, &RuleSpec::gamma, 0.0),
       "aggregation gamma is 0: it must be above 0 and finite"},
      {With(zeno, &RuleSpec::gamma, std::nan("")),
       "aggregation gamma is nan: it must be above 0 and finite"},
      {SpecOf("mean", 0), "0 members in 1 shards", 0},
      {SpecOf("mean", 0), "4 members in -2 shards", 4, -2},
      {SpecOf("trimmed-mean", 2),
       "leaves no part of 4 members: use k of at most 1", 4},
      {SpecOf("krum", 3),
       "part to compare with of 5 members: use k of at most 2", 5},
      {SpecOf("krum", 0), "of 2 members: it needs at least 3 members", 2},
      {SpecOf("suspicion", 3),
       "leaves no part of 3 members: use k of at most 2", 3},
      {SpecOf("median", 4), "no honest member of 4 members: use k of at most 3",
       4},
      {KrumOf(2, 8),
       "selected=8 of 9 members of which k=2 may lie: select at most 7"},
      {SpecOf("krum", 1), "cannot work on 3 shards: use shards 1, or mean", 9,
       3},
  };
  for (const auto& [spec, says, members, shards] : kCases) {
    ExpectError(CheckRule(spec, members, shards).status(),
                absl::StatusCode::kInvalidArgument, HasSubstr(says));
  }
}

TEST(CheckRule, TakesTheLargestKThatLeavesAPartAndSurvivesTheLargest) {
  for (const auto& [name, k] : {std::pair{"mean", 8},
                                {"median", 8},
                                {"trimmed-mean", 4},
                                {"krum", 6},
                                {"suspicion", 8},
                                {"zeno", 8}}) {
    EXPECT_TRUE(CheckRule(SpecOf(name, k), 9, 1).ok()) << name;
    EXPECT_FALSE(CheckRule(SpecOf(name, k + 1), 9, 1).ok()) << name;
    EXPECT_FALSE(CheckRule(SpecOf(name, kMost), 9, 1).ok()) << name;
  }
  EXPECT_FALSE(CheckRule(KrumOf(1, kMost), 9, 1).ok());
}

TEST(CheckRule, WorksOnShardsUnlessTheRuleJudgesWholeParts) {
  for (const std::string& name : RuleNames()) {
    EXPECT_EQ(CheckRule(SpecOf(name, 1), 9, 3).ok(),
              !TraitsOf(name).reads_whole_parts)
        << name;
  }
  EXPECT_EQ(ShardableRules(), "mean, median or trimmed-mean");
}

TEST(CheckRule, WarnsOfWhatARuleDoesNotWithstandOrCover) {
  const struct {
    RuleSpec spec;
    int64_t members;
    const char* says;
  } kCases[] = {
      {SpecOf("krum", 4), 9,
       "(Blanchard et al. 2017), there are 9: use k of at most 3"},
      {SpecOf("median", 5), 9,
       "(Yin et al. 2018), there are 9: use k of at most 4"},
      {SpecOf("suspicion", 5), 9,
       "at least 11 members (the median's breakdown point), there are 9"},
      {SpecOf("mean", 2), 9,
       "mean withstands no liar, but k=2 of 9 members may lie"},
      {SpecOf("trimmed-mean", 0), 4,
       "averages all 4 members and withstands no liar: set k"},
      {SpecOf("zeno", 0), 4, "k=0"},
      {KrumOf(2, 6), 9, "no more than 5 are covered (Damaskinos et al. 2019)"},
      // Just outside of what the next test has.
      {SpecOf("median", 3), 6, "at least 7 members"},
      {SpecOf("krum", 3), 8, "at least 9 members"},
      {SpecOf("suspicion", 3), 6, "at least 7 members"},
  };
  for (const auto& [spec, members, says] : kCases) {
    EXPECT_THAT(WarningsOf(spec, members), ElementsAre(HasSubstr(says)));
  }
}

TEST(CheckRule, IsSilentJustInsideAnAssumption) {
  for (const auto& [name, k, members] : {std::tuple{"median", 3, 7},
                                         {"krum", 3, 9},
                                         {"suspicion", 3, 7},
                                         {"zeno", 3, 4},
                                         {"trimmed-mean", 3, 7},
                                         {"trimmed-mean", 0, 1}}) {
    EXPECT_THAT(WarningsOf(SpecOf(name, k), members), IsEmpty()) << name;
  }
  EXPECT_THAT(WarningsOf(KrumOf(2, 5), 9), IsEmpty());
}

}  // namespace
}  // namespace paceline

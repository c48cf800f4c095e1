#include "core/round/rule_traits.h"

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RuleSpec SpecOf(const std::string& name, int64_t k) {
  RuleSpec spec;
  spec.name = name;
  spec.k = k;
  spec.gamma = 0.1;
  return spec;
}

std::vector<std::string> WarningsOf(const RuleSpec& spec, int64_t members) {
  const auto warnings = CheckRule(spec, members, 1);
  EXPECT_TRUE(warnings.ok()) << warnings.status();
  return warnings.value_or(std::vector<std::string>());
}

void ExpectRefused(const RuleSpec& spec, int64_t members, int64_t shards,
                   const std::string& message) {
  const auto warnings = CheckRule(spec, members, shards);
  EXPECT_EQ(warnings.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(warnings.status().message(), message);
}

TEST(CheckRule, NamesAllRulesForOneThatIsUnknown) {
  ExpectRefused(SpecOf("average", 0), 4, 1,
                "unknown aggregation rule \"average\": use one of mean, "
                "median, trimmed-mean, krum, suspicion, zeno");
}

TEST(CheckRule, RefusesNumbersOutOfTheirRange) {
  RuleSpec spec = SpecOf("median", -1);
  ExpectRefused(spec, 4, 1, "aggregation k is -1: it must be at least 0");

  spec = SpecOf("krum", 1);
  spec.selected = 0;
  ExpectRefused(spec, 9, 1, "aggregation selected is 0: it must be at least 1");

  spec = SpecOf("suspicion", 1);
  spec.alpha = 0;
  ExpectRefused(spec, 9, 1,
                "aggregation alpha is 0: it must be above 0 and finite");
  spec.alpha = std::numeric_limits<double>::infinity();
  ExpectRefused(spec, 9, 1,
                "aggregation alpha is inf: it must be above 0 and finite");

  spec = SpecOf("zeno", 1);
  spec.rho = -0.5;
  ExpectRefused(spec, 9, 1,
                "aggregation rho is -0.5: it must be at least 0 and finite");
  spec = SpecOf("zeno", 1);
  spec.gamma = 0;
  ExpectRefused(spec, 9, 1,
                "aggregation gamma is 0: it must be above 0 and finite");
  spec.gamma = std::nan("");
  ExpectRefused(spec, 9, 1,
                "aggregation gamma is nan: it must be above 0 and finite");

  ExpectRefused(SpecOf("mean", 0), 0, 1,
                "aggregation over 0 members in 1 shards: both must be at "
                "least 1");
  ExpectRefused(SpecOf("mean", 0), 4, -2,
                "aggregation over 4 members in -2 shards: both must be at "
                "least 1");
}

TEST(CheckRule, RefusesAKThatLeavesNoPart) {
  ExpectRefused(SpecOf("trimmed-mean", 2), 4, 1,
                "rule trimmed-mean with k=2 cuts k values at each end and "
                "leaves no part of 4 members: use k of at most 1");
  ExpectRefused(SpecOf("krum", 3), 5, 1,
                "rule krum with k=3 compares a part with members - k - 2 "
                "others and leaves no part to compare with of 5 members: use "
                "k of at most 2");
  ExpectRefused(SpecOf("krum", 0), 2, 1,
                "rule krum with k=0 compares a part with members - k - 2 "
                "others and leaves no part to compare with of 2 members: it "
                "needs at least 3 members");
  ExpectRefused(SpecOf("suspicion", 3), 3, 1,
                "rule suspicion with k=3 drops k members and leaves no part "
                "of 3 members: use k of at most 2");
  ExpectRefused(SpecOf("zeno", 7), 3, 1,
                "rule zeno with k=7 drops k members and leaves no part of 3 "
                "members: use k of at most 2");
  ExpectRefused(SpecOf("median", 4), 4, 1,
                "rule median with k=4 leaves no honest member of 4 members: "
                "use k of at most 3");
}

TEST(CheckRule, TakesTheLargestKThatLeavesAPart) {
  for (const auto& [name, k] :
       std::vector<std::tuple<std::string, int64_t>>{{"mean", 8},
                                                     {"median", 8},
                                                     {"trimmed-mean", 4},
                                                     {"krum", 6},
                                                     {"suspicion", 8},
                                                     {"zeno", 8}}) {
    EXPECT_TRUE(CheckRule(SpecOf(name, k), 9, 1).ok()) << name;
    EXPECT_FALSE(CheckRule(SpecOf(name, k + 1), 9, 1).ok()) << name;
  }
}

TEST(CheckRule, SurvivesTheLargestNumbers) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const std::string& name : RuleNames()) {
    EXPECT_FALSE(CheckRule(SpecOf(name, kMost), 9, 1).ok()) << name;
  }
  RuleSpec spec = SpecOf("krum", 1);
  spec.selected = kMost;
  EXPECT_FALSE(CheckRule(spec, 9, 1).ok());
}

TEST(CheckRule, RefusesWholeVectorRulesOverShards) {
  for (const std::string name : {"krum", "suspicion", "zeno"}) {
    EXPECT_TRUE(TraitsOf(name).reads_whole_parts);
    ExpectRefused(SpecOf(name, 1), 9, 3,
                  "rule " + name +
                      " judges whole parts and cannot work on 3 shards: use "
                      "shards 1, or mean, median or trimmed-mean");
  }
  for (const std::string name : {"mean", "median", "trimmed-mean"}) {
    EXPECT_FALSE(TraitsOf(name).reads_whole_parts);
    EXPECT_TRUE(CheckRule(SpecOf(name, 1), 9, 3).ok());
  }
}

TEST(CheckRule, RefusesToAverageMoreThanTheHonest) {
  RuleSpec spec = SpecOf("krum", 2);
  spec.selected = 8;

  ExpectRefused(spec, 9, 1,
                "rule krum averages selected=8 of 9 members of which k=2 may "
                "lie: select at most 7");
}

TEST(CheckRule, WarnsOfAViolatedAssumptionWithItsNumbers) {
  EXPECT_THAT(
      WarningsOf(SpecOf("krum", 4), 9),
      ElementsAre("rule krum withstands k=4 liars of at least 11 members "
                  "(Blanchard et al. 2017), there are 9: use k of at most 3, "
                  "or more members"));
  EXPECT_THAT(WarningsOf(SpecOf("median", 5), 9),
              ElementsAre("rule median withstands k=5 liars of at least 11 "
                          "members (Yin et al. 2018), there are 9: use k of "
                          "at most 4, or more members"));
  EXPECT_THAT(WarningsOf(SpecOf("suspicion", 5), 9),
              ElementsAre(HasSubstr("at least 11 members (the median's "
                                    "breakdown point), there are 9")));
  EXPECT_THAT(WarningsOf(SpecOf("mean", 2), 9),
              ElementsAre("rule mean withstands no liar, but k=2 of 9 members "
                          "may lie: one is enough to move the result "
                          "anywhere; use another rule"));
}

TEST(CheckRule, WarnsWhereNobodyIsLeftOut) {
  EXPECT_THAT(WarningsOf(SpecOf("trimmed-mean", 0), 4),
              ElementsAre("rule trimmed-mean with k=0 averages all 4 members "
                          "and withstands no liar: set k"));
  EXPECT_THAT(WarningsOf(SpecOf("zeno", 0), 4), ElementsAre(HasSubstr("k=0")));
  EXPECT_THAT(WarningsOf(SpecOf("trimmed-mean", 0), 1), ElementsAre());
}

TEST(CheckRule, WarnsOfMoreSelectedThanMultiKrumCovers) {
  RuleSpec spec = SpecOf("krum", 2);
  spec.selected = 5;
  EXPECT_THAT(WarningsOf(spec, 9), ElementsAre());

  spec.selected = 6;
  EXPECT_THAT(
      WarningsOf(spec, 9),
      ElementsAre("rule krum averages selected=6 parts; with k=2 of 9 members "
                  "no more than 5 are covered (Damaskinos et al. 2019)"));
}

TEST(CheckRule, IsSilentJustInsideAnAssumptionAndWarnsJustOutside) {
  const std::vector<std::tuple<std::string, int64_t, int64_t>> least = {
      {"median", 3, 7},
      {"krum", 3, 9},
      {"suspicion", 3, 7},
  };
  for (const auto& [name, k, members] : least) {
    EXPECT_THAT(WarningsOf(SpecOf(name, k), members), ElementsAre()) << name;
    EXPECT_EQ(WarningsOf(SpecOf(name, k), members - 1).size(), 1u) << name;
  }
  EXPECT_THAT(WarningsOf(SpecOf("zeno", 3), 4), ElementsAre());
  EXPECT_THAT(WarningsOf(SpecOf("trimmed-mean", 3), 7), ElementsAre());
}

}  // namespace
}  // namespace paceline

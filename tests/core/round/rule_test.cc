// The rules by hand on small numbers, and their errors.
#include "core/round/rules/rule.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/rule_inputs.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
constexpr const char* kWithoutLoss[] = {"mean", "median", "trimmed-mean",
                                        "krum", "suspicion"};

TEST(Mean, AddsSumsAndDividesByAllSamples) {
  Members members;
  members.Add({1, 10}, 1);
  members.Add({6, -4}, 3);

  const Outcome outcome = RunRule({.name = "mean"}, members);

  EXPECT_THAT(outcome.result, ElementsAre(7, 6));
  EXPECT_EQ(outcome.verdict.divisor, 4);
  EXPECT_THAT(outcome.verdict.used, ElementsAre(0, 1));
  EXPECT_EQ(outcome.verdict.why, "mean of 4 samples of 2 members");
}

TEST(Mean, AddsInMemberOrder) {
  // 1 is lost beside 2^25, and kept once that is gone.
  const float large = 0x1p25f;

  EXPECT_THAT(
      RunRule({.name = "mean"}, MembersOf({{large}, {1}, {-large}})).result,
      ElementsAre(0));
  EXPECT_THAT(
      RunRule({.name = "mean"}, MembersOf({{large}, {-large}, {1}})).result,
      ElementsAre(1));
}

TEST(TrimmedMean, OfEqualValuesIsThatValue) {
  const float third = 1.0f / 3;
  const Members members =
      MembersOf(std::vector<std::vector<float>>(7, {third, 0.1f}));

  const Outcome outcome = RunRule({.name = "trimmed-mean", .k = 2}, members);

  EXPECT_THAT(outcome.result, ElementsAre(third, 0.1f));
  EXPECT_THAT(outcome.verdict.why, HasSubstr("middle 3 of 7 members"));
}

TEST(Krum, AveragesTheSelectedWithoutLookingAtTheirSamples) {
  Members members;
  members.Add({2 * 8}, 8);
  members.Add({1}, 1);
  members.Add({4}, 1);
  members.Add({7}, 1);
  members.Add({100}, 1);

  const Outcome outcome =
      RunRule({.name = "krum", .k = 1, .selected = 2}, members);

  EXPECT_THAT(outcome.verdict.used, ElementsAre(0, 1));
  EXPECT_THAT(outcome.result, ElementsAre(1.5f));
  EXPECT_EQ(outcome.verdict.divisor, 1);
  EXPECT_THAT(outcome.verdict.why, HasSubstr("scores 5, 10, 13, 34, 17865"));
}

TEST(Krum, BreaksTiesByTheLowerPlace) {
  const Outcome outcome =
      RunRule({.name = "krum", .k = 1}, MembersOf({{9}, {1}, {1}, {1}}));

  EXPECT_THAT(outcome.verdict.used, ElementsAre(1));
}

TEST(Suspicion, TrustsMoreEvenlyWithALargerAlpha) {
  // Median 0; distances 1, 0, 3, 1, 5: their median 1.
  const Members members = MembersOf({{-1}, {0}, {3}, {1}, {-5}});

  const Outcome outcome = RunRule({.name = "suspicion", .alpha = 3}, members);

  EXPECT_THAT(outcome.verdict.scores, ElementsAre(1, 0, 3, 1, 5));
  // Weights 3/4, 1, 1/2, 3/4, 3/8 over 27/8.
  EXPECT_THAT(
      outcome.verdict.factors,
      ElementsAre(FloatEq(6.0f / 27), FloatEq(8.0f / 27), FloatEq(4.0f / 27),
                  FloatEq(6.0f / 27), FloatEq(3.0f / 27)));
}

TEST(Suspicion, TrustsOnlyTheMedianWhereMostSitOnIt) {
  const Outcome outcome =
      RunRule({.name = "suspicion"}, MembersOf({{2}, {7}, {2}, {2}}));

  EXPECT_THAT(outcome.verdict.used, ElementsAre(0, 2, 3));
  EXPECT_EQ(outcome.verdict.scores[1], std::numeric_limits<double>::infinity());
  EXPECT_THAT(outcome.result, ElementsAre(FloatEq(2)));
}

TEST(Suspicion, DropsTheHigherPlaceOfTwoAsSuspect) {
  const Outcome outcome =
      RunRule({.name = "suspicion", .k = 1}, MembersOf({{0}, {2}, {-2}}));

  EXPECT_THAT(outcome.verdict.used, ElementsAre(0, 1));
}

TEST(Rules, GiveBackTheOnlyPart) {
  Members members;
  members.Add({3, -6}, 3);
  for (const std::string name : {"median", "trimmed-mean", "suspicion"}) {
    EXPECT_THAT(RunRule({.name = name}, members).result,
                ElementsAre(FloatEq(1), FloatEq(-2)))
        << name;
  }
  EXPECT_THAT(RunRule({.name = "mean"}, members).result, ElementsAre(3, -6));
}

TEST(Rules, TakePartsWithoutValues) {
  for (const std::string name : kWithoutLoss) {
    EXPECT_TRUE(
        RunRule({.name = name}, MembersOf({{}, {}, {}})).result.empty());
  }
}

TEST(Rules, RefusePartsThatCannotBeAggregated) {
  const Members unlike = MembersOf({{1, 2}, {1, 2}, {1}});
  Members without_samples = MembersOf({{1}, {1}, {1}});
  without_samples.samples[1] = 0;
  for (const std::string name : kWithoutLoss) {
    ExpectUndecided({.name = name}, {}, kInvalid, "no part to aggregate");
    ExpectUndecided({.name = name}, unlike.parts(), kInvalid,
                    "part 2 has 1 values, part 0 has 2");
    ExpectUndecided({.name = name}, without_samples.parts(), kInvalid,
                    "part 1 covers 0 samples");
  }
}

TEST(Rules, RefuseSamplesThatCannotBeAdded) {
  Members members = MembersOf({{1}, {1}, {1}});
  members.samples[2] = std::numeric_limits<int64_t>::max() - 1;
  ExpectUndecided({.name = "mean"}, members.parts(), kInvalid,
                  "part 2 covers 9223372036854775806 samples");

  members.samples[2] -= 1;
  EXPECT_EQ(RunRule({.name = "mean"}, members).verdict.divisor,
            std::numeric_limits<int64_t>::max());
}

TEST(Rules, RefuseARoundWithTooFewParts) {
  const Members members = MembersOf({{1}, {1}, {1}, {1}});
  ExpectUndecided({.name = "trimmed-mean", .k = 2}, members.parts(), kFailed,
                  "cuts k=2 values at each end and leaves none of 4 parts");
  ExpectUndecided({.name = "krum", .k = 2}, members.parts(), kFailed,
                  "krum with k=2 needs at least 5 parts");
  ExpectUndecided({.name = "krum", .k = 1, .selected = 4}, members.parts(),
                  kFailed, "selected=4 of 4 parts of which k=1 may lie");
  ExpectUndecided({.name = "suspicion", .k = 4}, members.parts(), kFailed,
                  "drops k=4 members and leaves none of 4 parts");
}

TEST(Rules, NameThePartThatIsNotFiniteWhereTheyReadIt) {
  Members members = MembersOf({{1, 1}, {1, 1}, {1, 1}, {1, 1}});
  members.sums[2][1] = std::numeric_limits<float>::infinity();
  for (const std::string name : {"krum", "suspicion"}) {
    ExpectUndecided({.name = name}, members.parts(), kInvalid,
                    "part 2 holds inf at value 1");
  }
}

TEST(Rules, SurviveValuesThatAreNotFinite) {
  const float nan = std::nanf("");
  const Members members = MembersOf({{1, nan}, {nan, 1}, {3, 3}});
  for (const std::string name : {"mean", "median", "trimmed-mean"}) {
    EXPECT_EQ(RunRule({.name = name, .k = 1}, members).result.size(), 2u);
  }
}

// f(x) = |x - goal|^2 / 2 at x = 0.
class QuadraticLoss : public TrustedLoss {
 public:
  explicit QuadraticLoss(std::vector<double> goal) : goal_(std::move(goal)) {}

  absl::StatusOr<double> After(absl::Span<const float> direction,
                               double step) override {
    double sum = 0;
    for (size_t i = 0; i < goal_.size(); ++i) {
      const double x = direction.empty() ? 0 : -step * direction[i];
      sum += (x - goal_[i]) * (x - goal_[i]);
    }
    return sum / 2;
  }

 private:
  std::vector<double> goal_;
};

// Answers from a list, then with an error.
class ListedLoss : public TrustedLoss {
 public:
  ListedLoss(double present, std::vector<double> after)
      : present_(present), after_(std::move(after)) {}

  absl::StatusOr<double> After(absl::Span<const float> direction,
                               double) override {
    if (direction.empty()) return present_;
    if (at_ == after_.size()) return absl::UnavailableError("batch is gone");
    return after_[at_++];
  }

 private:
  double present_;
  std::vector<double> after_;
  size_t at_ = 0;
};

RuleSpec ZenoOf(int64_t k) {
  return {.name = "zeno", .k = k, .gamma = 0.5, .rho = 0.25};
}

TEST(Zeno, ScoresByLossAndLengthAndAveragesTheBest) {
  // The loss at 0 is 8; a step along u = -4 goes to 2.
  QuadraticLoss loss({4});
  Members members;
  members.Add({-8}, 2);   // u = -4: 8 - 2 - 0.25 * 16 = 2
  members.Add({40}, 10);  // u = 4: 8 - 18 - 4 = -14
  members.Add({-2}, 1);   // u = -2: 8 - 4.5 - 1 = 2.5

  const auto [verdict, result] = RunRule(ZenoOf(1), members, &loss);

  EXPECT_THAT(verdict.scores,
              ElementsAre(DoubleEq(2), DoubleEq(-14), DoubleEq(2.5)));
  EXPECT_THAT(verdict.used, ElementsAre(0, 2));
  EXPECT_THAT(result, ElementsAre(-3));
  EXPECT_EQ(verdict.divisor, 1);
  EXPECT_EQ(verdict.why, "zeno uses 0, 2 of 3 members; scores 2, -14, 2.5");
}

TEST(Zeno, BreaksTiesByTheLowerPlace) {
  ListedLoss loss(1, {0.5, 0.5, 0.5});

  EXPECT_THAT(
      RunRule(ZenoOf(1), MembersOf({{1}, {1}, {1}}), &loss).verdict.used,
      ElementsAre(0, 1));
}

TEST(Zeno, DropsWhoeverRuinsTheLossEvenBeyondK) {
  const double infinity = std::numeric_limits<double>::infinity();
  ListedLoss loss(1, {std::nan(""), 0.9, infinity, -infinity});

  EXPECT_THAT(
      RunRule(ZenoOf(1), MembersOf({{1}, {1}, {1}, {1}}), &loss).verdict.used,
      ElementsAre(1));
}

TEST(Zeno, SaysWhyItCannotDecide) {
  const double nan = std::nan("");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const struct {
    int64_t k;
    double present;
    std::vector<double> after;
    float last;  // value of the second part
    absl::StatusCode code;
    const char* says;
  } kAll[] = {
      {1, 1, {nan, nan}, 1, kFailed, "after a step of gamma=0.5"},
      {1, kInfinity, {1, 1}, 1, kFailed, "is inf before any step"},
      {1, 1, {0.5}, 1, absl::StatusCode::kUnavailable, "batch is gone"},
      {2, 1, {}, 1, kFailed, "drops k=2 members and leaves none of 2 parts"},
      {1, 1, {0, 0}, std::nanf(""), kInvalid, "part 1 holds nan at value 0"},
  };
  for (const auto& each : kAll) {
    ListedLoss loss(each.present, each.after);
    ExpectUndecided(ZenoOf(each.k), MembersOf({{1}, {each.last}}).parts(),
                    each.code, each.says, &loss);
  }
}

TEST(MakeRule, RefusesWhatCheckRuleRefusesAndZenoWithoutALoss) {
  ExpectError(MakeRule({.name = "best"}, nullptr).status(), kInvalid,
              HasSubstr("unknown aggregation rule \"best\""));
  ExpectError(MakeRule(ZenoOf(1), nullptr).status(), kInvalid,
              HasSubstr("zeno scores parts by a loss and got none"));
}

}  // namespace
}  // namespace paceline

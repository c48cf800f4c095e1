#include "core/round/round_roles.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

RoundResult Held(int64_t step, int64_t counter, uint64_t hash) {
  return {step, {1, counter}, {{0, false, hash, {{Member(0), 1}}, {}, {}}}};
}

TEST(Leveller, WaitsForTheAnswerOfEveryMember) {
  Leveller leveller(SmallView(3));
  EXPECT_FALSE(leveller.OnAnswer(Member(0), {4, 0, {}}));
  EXPECT_FALSE(leveller.OnAnswer(Member(2), {4, 0, {}}));
  EXPECT_EQ(leveller.phase(), Leveller::Phase::kAsking);
  EXPECT_THAT(leveller.Missing(), ElementsAre(Member(1)));
  EXPECT_TRUE(leveller.OnAnswer(Member(1), {4, 0, {}}));
  EXPECT_EQ(leveller.phase(), Leveller::Phase::kDone);
  EXPECT_EQ(leveller.level_at(), 4);
}

TEST(Leveller, AStrangersAnswerDoesNotCount) {
  Leveller leveller(SmallView(2));
  leveller.OnAnswer(Member(0), {0, 0, {}});
  EXPECT_FALSE(leveller.OnAnswer(Member(1, 2), {0, 0, {}}));
  EXPECT_EQ(leveller.phase(), Leveller::Phase::kAsking);
}

TEST(Leveller, TheHeldResultOfTheHighestViewWins) {
  Leveller leveller(SmallView(3, 4));
  leveller.OnAnswer(Member(0), {4, 0, Held(4, 1, 10)});
  leveller.OnAnswer(Member(1), {4, 0, Held(4, 3, 30)});
  leveller.OnAnswer(Member(2), {4, 0, Held(4, 2, 20)});
  ASSERT_TRUE(leveller.target().has_value());
  EXPECT_EQ(leveller.target()->shards[0].hash, 30u);
  EXPECT_EQ(leveller.holder(), Member(1));
  EXPECT_EQ(leveller.phase(), Leveller::Phase::kFetching);
}

TEST(Leveller, WhatSomebodyAppliedIsNoTarget) {
  Leveller leveller(SmallView(2));
  leveller.OnAnswer(Member(0), {4, 0, Held(4, 1, 10)});
  leveller.OnAnswer(Member(1), {5, 0, {}});
  EXPECT_EQ(leveller.applied(), 5);
  EXPECT_FALSE(leveller.target().has_value());
  EXPECT_EQ(leveller.level_at(), 5);
}

TEST(Leveller, AllWhomTheStepCountsMustHoldTheTarget) {
  View view = SmallView(3);
  view.members[2].from_step = 9;
  Leveller leveller(view);
  leveller.OnAnswer(Member(0), {4, 0, {}});
  leveller.OnAnswer(Member(1), {4, 0, Held(4, 1, 10)});
  leveller.OnAnswer(Member(2), {3, 0, {}});
  leveller.OnBytes();
  ASSERT_EQ(leveller.phase(), Leveller::Phase::kSpreading);
  const uint64_t hash = leveller.target()->hash();
  EXPECT_FALSE(leveller.OnHold(Member(0), hash + 1));
  EXPECT_FALSE(leveller.OnHold(Member(0), hash));
  EXPECT_THAT(leveller.Missing(), ElementsAre(Member(1)));
  EXPECT_TRUE(leveller.OnHold(Member(1), hash));
  EXPECT_EQ(leveller.level_at(), 5);
}

TEST(Leveller, ALaterAnswerCountsIfMoreIsApplied) {
  Leveller leveller(SmallView(2));
  leveller.OnAnswer(Member(0), {4, 0, Held(4, 1, 10)});
  leveller.OnAnswer(Member(0), {5, 9, {}});
  leveller.OnAnswer(Member(0), {4, 0, Held(4, 1, 10)});
  leveller.OnAnswer(Member(1), {4, 0, Held(4, 1, 10)});

  EXPECT_EQ(leveller.applied(), 5);
  EXPECT_EQ(leveller.applied_hash(), 9u);
  EXPECT_FALSE(leveller.target().has_value());
}

TEST(Leveller, ATargetThatItAppliedItselfNeedsNoFetching) {
  Leveller leveller(SmallView(2));
  leveller.OnAnswer(Member(0), {4, 0, {}});
  leveller.OnAnswer(Member(1), {4, 0, Held(4, 1, 10)});
  const uint64_t hash = leveller.target()->hash();

  EXPECT_FALSE(leveller.OnApplied(5, hash + 1));
  EXPECT_FALSE(leveller.OnApplied(4, hash));
  EXPECT_EQ(leveller.phase(), Leveller::Phase::kFetching);
  EXPECT_TRUE(leveller.OnApplied(5, hash));
  EXPECT_EQ(leveller.phase(), Leveller::Phase::kDone);
  EXPECT_EQ(leveller.level_at(), 5);
}

}  // namespace
}  // namespace paceline

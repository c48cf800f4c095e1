#include "core/recover/repartition.h"

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

// Saves 0.1 s a step for 1,000 steps; costs 2 + 1 s.
constexpr MoveEstimate kGood{.step_seconds = 0.3,
                             .better_step_seconds = 0.2,
                             .steps_left = 1000,
                             .bytes = 200'000'000,
                             .bytes_per_second = 100e6,
                             .restart_seconds = 1};

TEST(Repartition, MovesWhenItHasPaidForLongEnough) {
  Repartition repartition({});

  EXPECT_FALSE(repartition.Decide(kGood, At(0)).move);
  EXPECT_FALSE(repartition.Decide(kGood, At(29.9)).move);
  const MoveVerdict verdict = repartition.Decide(kGood, At(30));
  EXPECT_TRUE(verdict.move);
  EXPECT_EQ(verdict.why,
            "a move saves 100.0 s over 1000 steps and costs 3.0 s");
}

TEST(Repartition, BeginsAnewWhenTheGainWasGoneOnce) {
  Repartition repartition({});
  MoveEstimate even = kGood;
  even.step_seconds = 0.21;  // less than a tenth better

  repartition.Decide(kGood, At(0));
  EXPECT_FALSE(repartition.Decide(even, At(20)).move);
  EXPECT_FALSE(repartition.Decide(kGood, At(31)).move);
  EXPECT_TRUE(repartition.Decide(kGood, At(61)).move);
}

TEST(Repartition, StaysWhereTheRemainingStepsDoNotPay) {
  Repartition repartition({});
  MoveEstimate late = kGood;
  late.steps_left = 30;

  repartition.Decide(late, At(0));
  EXPECT_FALSE(repartition.Decide(late, At(60)).move);
  late.steps_left = 31;
  EXPECT_TRUE(repartition.Decide(late, At(61)).move);
}

TEST(Repartition, MovesOnceInTenMinutes) {
  Repartition repartition({});
  repartition.Decide(kGood, At(0));
  ASSERT_TRUE(repartition.Decide(kGood, At(30)).move);
  repartition.OnMoved(At(30));

  repartition.Decide(kGood, At(31));
  EXPECT_FALSE(repartition.Decide(kGood, At(629)).move);
  EXPECT_TRUE(repartition.Decide(kGood, At(630)).move);
}

TEST(Repartition, AnotherPlanAfterALossIsLookedAtAfresh) {
  Repartition repartition({});
  repartition.Decide(kGood, At(0));
  repartition.OnReplaced();

  EXPECT_FALSE(repartition.Decide(kGood, At(30)).move);
  EXPECT_TRUE(repartition.Decide(kGood, At(60)).move);
}

TEST(Repartition, AMoveWithoutBytesNeedsNoBandwidth) {
  Repartition repartition({});
  MoveEstimate free = kGood;
  free.bytes = 0;
  free.bytes_per_second = 0;

  repartition.Decide(free, At(0));
  EXPECT_TRUE(repartition.Decide(free, At(30)).move);
}

// 30 steps are left, and save 3 s.
TEST(Repartition, StepsThatAreMadeAgainCountAgainstTheMove) {
  MoveEstimate late = kGood;
  late.bytes = 0;
  late.steps_left = 30;
  for (const auto& [again, moves] : {std::pair(9, true), {11, false}}) {
    Repartition repartition({});
    late.steps_again = again;

    repartition.Decide(late, At(0));
    EXPECT_EQ(repartition.Decide(late, At(60)).move, moves) << again;
  }
}

TEST(Repartition, AJobWithoutStateMovesSoonerAndMovesBack) {
  Repartition repartition(kStatelessPolicy);

  EXPECT_FALSE(repartition.Decide(kGood, At(0)).move);
  EXPECT_TRUE(repartition.Decide(kGood, At(5)).move);
  repartition.OnMoved(At(7));
  repartition.Decide(kGood, At(10));
  EXPECT_FALSE(repartition.Decide(kGood, At(36)).move);
  EXPECT_TRUE(repartition.Decide(kGood, At(37)).move);
}

TEST(Repartition, AJobThatDoesNothingStays) {
  Repartition repartition({});

  EXPECT_FALSE(repartition.Decide({}, At(0)).move);
  EXPECT_FALSE(repartition.Decide({}, At(60)).move);
}

}  // namespace
}  // namespace paceline

#include "tests/bench/ratios.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(Ratios, AreMediansOfTheTurnsAndNotRatiosOfMedians) {
  // A machine that is ten times slower in every other turn.
  const std::vector<Rate> ours = {{90, 3}, {9, 30}, {90, 3}};
  const std::vector<Rate> bare = {{100, 2}, {10, 20}, {1000, 20}};

  const auto ratios = CompareTurns(ours, bare);

  ASSERT_TRUE(ratios.has_value());
  EXPECT_DOUBLE_EQ(ratios->throughput, 0.9);
  EXPECT_DOUBLE_EQ(ratios->cpu, 1.5);
}

TEST(Ratios, AreGoodUpToTheirBoundsAndMissedBeyond) {
  EXPECT_TRUE((Ratios{0.9, 1.5}).good());
  EXPECT_FALSE((Ratios{0.89, 1.0}).good());
  EXPECT_FALSE((Ratios{1.0, 1.51}).good());
}

TEST(Ratios, NeedBothWaysInEveryTurn) {
  EXPECT_FALSE(CompareTurns({}, {}).has_value());
  EXPECT_FALSE(CompareTurns({{1, 1}}, {}).has_value());
  EXPECT_FALSE(CompareTurns({{1, 1}}, {{1, 1}, {1, 1}}).has_value());
}

TEST(MedianRate, TakesEachFigureByItself) {
  const Rate rate = MedianRate({{3, 10}, {1, 30}, {2, 20}, {4, 40}});

  EXPECT_DOUBLE_EQ(rate.bytes_per_second, 2.5);
  EXPECT_DOUBLE_EQ(rate.cpu_seconds_per_gb, 25);
}

}  // namespace
}  // namespace paceline

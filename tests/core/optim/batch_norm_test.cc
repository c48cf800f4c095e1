#include <cmath>
#include <vector>

#include "core/optim/optimizer.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(FoldStatistics, MovesATenthOfTheWay) {
  std::vector<float> running = {0, 1, -2};
  const std::vector<float> seen = {1, 1, 8};

  FoldStatistics(seen, absl::MakeSpan(running));

  EXPECT_FLOAT_EQ(running[0], 0.1f);
  EXPECT_FLOAT_EQ(running[1], 1);
  EXPECT_FLOAT_EQ(running[2], -1);
}

TEST(FoldStatistics, DependsOnTheOrder) {
  const std::vector<float> a = {1}, b = {2};
  std::vector<float> ab = {0}, ba = {0};

  FoldStatistics(a, absl::MakeSpan(ab));
  FoldStatistics(b, absl::MakeSpan(ab));
  FoldStatistics(b, absl::MakeSpan(ba));
  FoldStatistics(a, absl::MakeSpan(ba));

  EXPECT_NE(ab, ba);
}

// Two machines have every other micro-batch.
TEST(FoldSum, FoldsTheSumsOfSeveralMachinesAsOneWouldFoldEach) {
  const std::vector<std::vector<float>> seen = {{1}, {-2}, {5}, {3}, {8}};
  std::vector<float> alone = {4}, together = {4}, sum = {0};
  float weight = 0;

  for (const auto& each : seen) FoldStatistics(each, absl::MakeSpan(alone));
  for (const int i : {0, 2, 4, 1, 3}) {
    AddStatistics(seen[i], StatisticsWeight(i, 5), absl::MakeSpan(sum));
    weight += StatisticsWeight(i, 5);
  }
  FoldSum(sum, weight, 5, absl::MakeSpan(together));

  EXPECT_NEAR(together[0], alone[0], 1e-6);
}

TEST(FoldSum, TakesTheMeanOfThoseThatAreThere) {
  std::vector<float> running = {4}, sum = {0};

  AddStatistics({7}, StatisticsWeight(2, 5), absl::MakeSpan(sum));
  FoldSum(sum, StatisticsWeight(2, 5), 5, absl::MakeSpan(running));
  EXPECT_NEAR(running[0], 7 - 3 * std::pow(0.9, 5), 1e-5);

  FoldSum({0}, 0, 5, absl::MakeSpan(running));
  EXPECT_NEAR(running[0], 7 - 3 * std::pow(0.9, 5), 1e-5);
}

}  // namespace
}  // namespace paceline

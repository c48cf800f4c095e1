#include "core/optim/batch_norm.h"

#include <vector>

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

}  // namespace
}  // namespace paceline

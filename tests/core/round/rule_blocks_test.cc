#include "core/round/rules/rule_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

std::vector<float> Block(float value) {
  return std::vector<float>(kRuleBlock, value);
}

TEST(FindNonFinite, FindsTheFirstWhereverItStands) {
  const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const size_t length : {size_t{1}, kRuleBlock, 3 * kRuleBlock + 5}) {
    std::vector<float> values(length, std::numeric_limits<float>::max());
    EXPECT_EQ(FindNonFinite(values), length);
    for (size_t at = 0; at < length; at += 1 + length / 50) {
      values[at] = bad[at % 3];
      values.back() = bad[0];
      EXPECT_EQ(FindNonFinite(values), at);
      std::fill(values.begin(), values.end(), -0.5f);
    }
  }
  EXPECT_EQ(FindNonFinite({}), 0u);
}

TEST(SquaredDistance, AddsSquaresOfDifferences) {
  std::vector<float> a = Block(3);
  const std::vector<float> b = Block(1);
  a[7] = 11;

  EXPECT_EQ(SquaredDistance(a.data(), b.data()), 4.0 * (kRuleBlock - 1) + 100);
}

TEST(SquaredDistance, NeitherOverflowsNorVanishes) {
  const double block = kRuleBlock;
  const float most = std::numeric_limits<float>::max();
  const double between = 2.0 * most;
  EXPECT_DOUBLE_EQ(SquaredDistance(Block(most).data(), Block(-most).data()),
                   block * between * between);

  const float tiny = 1e-30f;
  const double square = static_cast<double>(tiny) * tiny;
  EXPECT_DOUBLE_EQ(SquaredDistance(Block(tiny).data(), Block(0).data()),
                   block * square);
  EXPECT_EQ(SquaredDistance(Block(tiny).data(), Block(tiny).data()), 0);
}

TEST(SquaredDistance, IsCloseToTheSumInDouble) {
  SplitMix64 random(7);
  std::vector<float> a;
  std::vector<float> b;
  double expected = 0;
  for (size_t i = 0; i < kRuleBlock; ++i) {
    a.push_back(random.Unit());
    b.push_back(random.Unit());
    const double d = static_cast<double>(a.back()) - b.back();
    expected += d * d;
  }

  EXPECT_NEAR(SquaredDistance(a.data(), b.data()), expected, 1e-5 * expected);
}

TEST(WeightedSum, LeavesOutAPartOfFactorZeroWhateverItHolds) {
  const std::vector<float> bad = {std::nanf(""), 1};
  const std::vector<float> good = {2, 4};
  const std::vector<RulePart> parts = {{bad, 1}, {good, 1}, {good, 1}};
  std::vector<float> result(2, -1);

  WeightedSum(parts, {0, 1, 0.5f}, 0, 2, absl::MakeSpan(result));
  EXPECT_THAT(result, ElementsAre(3, 6));

  WeightedSum(parts, {0, 0, 0}, 0, 2, absl::MakeSpan(result));
  EXPECT_THAT(result, ElementsAre(0, 0));
}

// All that the unrolled networks and the loop over rows can be asked for.
class Network : public ::testing::TestWithParam<size_t> {};

TEST_P(Network, SortsEveryColumnAsSortDoes) {
  const size_t members = GetParam();
  SplitMix64 random(members);
  for (int round = 0; round < 20; ++round) {
    BlockRows rows(members);
    std::vector<std::vector<float>> columns(kRuleBlock);
    for (size_t row = 0; row < members; ++row) {
      for (size_t i = 0; i < kRuleBlock; ++i) {
        // Few values: many are equal.
        const auto value = static_cast<float>(random.Below(7)) - 3;
        rows.row(row)[i] = value;
        columns[i].push_back(value);
      }
    }
    BlockRows copy = rows;
    float median[kRuleBlock];

    SortColumns(rows);
    MedianOfColumns(copy, median);

    for (size_t i = 0; i < kRuleBlock; ++i) {
      std::sort(columns[i].begin(), columns[i].end());
      for (size_t row = 0; row < members; ++row) {
        ASSERT_EQ(rows.row(row)[i], columns[i][row]) << row << " " << i;
      }
      const float above = columns[i][members / 2];
      const float below = columns[i][(members - 1) / 2];
      ASSERT_EQ(median[i], (below + above) / 2) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfMembers, Network,
                         ::testing::Range(size_t{1}, size_t{25}));

TEST(MedianOfColumns, MiddleOfTwoHugeValuesDoesNotOverflow) {
  BlockRows rows(2);
  const float most = std::numeric_limits<float>::max();
  std::fill_n(rows.row(0), kRuleBlock, most);
  std::fill_n(rows.row(1), kRuleBlock, most);
  float median[kRuleBlock];

  MedianOfColumns(rows, median);

  EXPECT_EQ(median[0], most);
}

}  // namespace
}  // namespace paceline

#include <cstdint>
#include <set>

#include "core/base/random.h"
#include "core/base/statistics.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(SplitMix64, GivesTheSequenceOfItsPaper) {
  // The reference implementation's first outputs from seed 1234567.
  SplitMix64 random(1234567);

  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(SplitMix64, BelowStaysBelowAndReachesEverything) {
  SplitMix64 random(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(random.Below(7));

  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(SplitMix64, UnitIsHalfOpenAndCentred) {
  SplitMix64 random(2);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const float value = random.Unit();
    ASSERT_GE(value, 0.0f);
    ASSERT_LT(value, 1.0f);
    sum += value;
  }

  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(MixSeed, DependsOnEveryWordAndOnTheirOrder) {
  const std::set<uint64_t> seeds = {MixSeed({1, 2}),    MixSeed({2, 1}),
                                    MixSeed({1, 3}),    MixSeed({2, 2}),
                                    MixSeed({1, 2, 0}), MixSeed({1})};

  EXPECT_EQ(seeds.size(), 6u);
}

TEST(RecentLongest, ForgetsWhatIsMoreThan64Back) {
  RecentLongest longest;
  EXPECT_EQ(longest.Get(), absl::ZeroDuration());

  longest.Add(absl::Seconds(9));
  for (int i = 0; i < 63; ++i) longest.Add(absl::Seconds(1));
  EXPECT_EQ(longest.Get(), absl::Seconds(9));

  longest.Add(absl::Seconds(2));
  EXPECT_EQ(longest.Get(), absl::Seconds(2));
}

}  // namespace
}  // namespace paceline

#include "core/round/deadline.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr absl::Duration kMs = absl::Milliseconds(1);

TEST(Patience, IsTheLongestThereIsUntilSomethingIsKnown) {
  PatiencePolicy policy;
  policy.ceiling = 5000 * kMs;

  EXPECT_EQ(Patience(policy).Get(), 5000 * kMs);
}

TEST(Patience, IsTwiceWhatMostMeetingsTook) {
  Patience patience({});
  for (int i = 1; i <= 20; ++i) patience.Add(100 * i * kMs);

  EXPECT_EQ(patience.Get(), 2 * 1900 * kMs);
}

TEST(Patience, OfTwoKindsOfMeetingsTheLateOnesCount) {
  Patience patience({});
  for (int i = 0; i < 30; ++i) patience.Add((i % 4 == 0 ? 300 : 2) * kMs);

  EXPECT_EQ(patience.Get(), 600 * kMs);
}

TEST(Patience, OneThatIsFarOffOfManyIsNothing) {
  Patience patience({});
  for (int i = 0; i < 30; ++i) patience.Add((i == 3 ? 20'000 : 2) * kMs);

  EXPECT_EQ(patience.Get(), 200 * kMs) << "the floor";
}

TEST(Patience, NeverGoesBeyondItsCeilingAndForgets) {
  PatiencePolicy policy;
  policy.ceiling = 1000 * kMs;
  Patience patience(policy);
  for (int i = 0; i < 64; ++i) patience.Add(900 * kMs);
  EXPECT_EQ(patience.Get(), 1000 * kMs);

  for (int i = 0; i < 64; ++i) patience.Add(150 * kMs);

  EXPECT_EQ(patience.Get(), 300 * kMs);
}

}  // namespace
}  // namespace paceline

#include "core/round/deadline.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<absl::Duration> Milliseconds(const std::vector<int>& values) {
  std::vector<absl::Duration> durations;
  for (const int value : values) durations.push_back(absl::Milliseconds(value));
  return durations;
}

constexpr absl::Duration kAtOnce = absl::ZeroDuration();

DeadlinePolicy Policy() {
  return {absl::Milliseconds(5), /*share=*/0.25, absl::Seconds(10), 4, 6};
}

TEST(Deadline, IsTheCeilingBeforeAnythingIsKnown) {
  Deadline deadline(Policy());
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Seconds(10));
  // The first part is where the count begins.
  deadline.Add(Milliseconds({0}));
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Seconds(10));
}

TEST(Deadline, IsTheMedianAndSomeDeviations) {
  Deadline deadline(Policy());
  deadline.Add(Milliseconds({0, 10, 20, 30}));
  // Median 20, distances 10, 0, 10: 20 + 4 * 10.
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Milliseconds(60));
}

TEST(Deadline, HasAFloorWhereAllComeAtOnce) {
  Deadline deadline(Policy());
  deadline.Add(Milliseconds({0, 1, 1, 1}));
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Milliseconds(5));
}

// Who computes for a second is not lost over 6 ms, nor waited for for ever.
TEST(Deadline, IsAQuarterOfWhatTheFirstPartTookAtLeast) {
  Deadline deadline(Policy());
  deadline.Add(Milliseconds({0, 1, 1, 1}));
  EXPECT_EQ(deadline.Get(absl::Seconds(1)), absl::Milliseconds(250));
  EXPECT_EQ(deadline.Get(absl::Milliseconds(4)), absl::Milliseconds(5));
  EXPECT_EQ(deadline.Get(absl::Minutes(5)), absl::Seconds(10));
}

TEST(Deadline, OneStragglerInThreeMovesItLittle) {
  Deadline deadline(Policy());
  deadline.Add(Milliseconds({0, 10, 12, 9000}));
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Milliseconds(12 + 4 * 2));
}

TEST(Deadline, ForgetsWhatIsOld) {
  Deadline deadline(Policy());
  deadline.Add(Milliseconds({0, 1000, 1000, 1000, 1000, 1000, 1000}));
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Milliseconds(1000));
  deadline.Add(Milliseconds({0, 20, 20, 20, 20, 20, 20}));
  EXPECT_EQ(deadline.Get(kAtOnce), absl::Milliseconds(20));
}

}  // namespace
}  // namespace paceline

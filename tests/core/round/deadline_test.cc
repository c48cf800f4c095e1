#include <functional>
#include <vector>

#include "core/round/gossip_member.h"
#include "core/round/round_roles.h"
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

// A member that computes for a second is not lost over 6 ms, nor waited for for
// ever.
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

struct Waits {
  int count;
  std::function<int(int)> ms;  // of each
  int expected_ms;
};

TEST(PartnerWait, IsTwiceWhatMostMeetingsTookWithinItsBounds) {
  const Waits kAll[] = {
      {0, nullptr, 5000},  // the ceiling until something is known
      {20, [](int i) { return 100 * (i + 1); }, 2 * 1900},
      // The late ones of two kinds count, one that is far off does not.
      {30, [](int i) { return i % 4 == 0 ? 300 : 2; }, 600},
      {30, [](int i) { return i == 3 ? 20'000 : 2; }, 200},  // the floor
      {64, [](int) { return 4900; }, 5000},
      // Sixty-four are remembered.
      {128, [](int i) { return i < 64 ? 4900 : 150; }, 300},
  };
  PartnerWaitPolicy policy;
  policy.ceiling = absl::Milliseconds(5000);
  for (const Waits& waits : kAll) {
    PartnerWait wait(policy);
    for (int i = 0; i < waits.count; ++i) {
      wait.Add(absl::Milliseconds(waits.ms(i)));
    }
    EXPECT_EQ(wait.Get(), absl::Milliseconds(waits.expected_ms))
        << waits.count << " waits";
  }
}

}  // namespace
}  // namespace paceline

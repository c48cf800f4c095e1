#include <vector>

#include "core/simulate/processor.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// Work of `seconds` is asked for at `at` and done at `end`.
struct Work {
  double at;
  double seconds;
  double end;
};

TEST(Quota, GivesTwoOfFiveMilliseconds) {
  const std::vector<std::vector<Work>> cases = {
      // Below the budget of a period work runs at full speed.
      {{0.001, 0.002, 0.003}},
      // 2 ms, a pause of 3 ms, then 1 ms.
      {{0, 0.003, 0.006}},
      {{0, 0.4, 0.997}},
      // 0.5 ms are left of this period.
      {{0, 0.0015, 0.0015}, {0.003, 0.001, 0.0055}},
      // 1 ms is left of the first period; the second gives 2 ms, not more.
      {{0.004, 0.0035, 0.0105}},
      // Asked for while it is busy.
      {{0, 0.001, 0.001}, {0, 0.002, 0.006}}};
  for (const std::vector<Work>& works : cases) {
    Quota quota(0.4, 0.005, 0);
    for (const Work& work : works) {
      EXPECT_NEAR(quota.Take(work.at, work.seconds), work.end, 1e-9);
    }
  }
}

TEST(Quota, PeeksWithoutTaking) {
  Quota quota(0.4, 0.005, 0);
  quota.Take(0, 0.003);

  EXPECT_NEAR(quota.Peek(0.001, 0.0015), 0.0055, 1e-12);
  EXPECT_NEAR(quota.Take(0.001, 0.0005), 0.0065, 1e-12);
}

TEST(Quota, LimitsNothingWithoutAPeriod) {
  Quota quota;

  EXPECT_FALSE(quota.limits());
  EXPECT_DOUBLE_EQ(quota.Take(1, 0.5), 1.5);
}

}  // namespace
}  // namespace paceline

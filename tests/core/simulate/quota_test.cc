#include "core/simulate/processor.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// 2 ms in every 5 ms, periods from 0 on.
Quota TwoInFive() { return Quota(0.4, 0.005, 0); }

TEST(Quota, LetsWorkBelowItsBudgetRunAtFullSpeed) {
  Quota quota = TwoInFive();

  EXPECT_NEAR(quota.Take(0.001, 0.002), 0.003, 1e-12);
}

TEST(Quota, StopsWorkUntilTheNextPeriod) {
  Quota quota = TwoInFive();

  // 2 ms, a pause of 3 ms, then 1 ms.
  EXPECT_NEAR(quota.Take(0, 0.003), 0.006, 1e-12);
}

TEST(Quota, GivesItsShareOfLongWork) {
  Quota quota = TwoInFive();

  EXPECT_NEAR(quota.Take(0, 0.4), 0.997, 1e-9);
}

TEST(Quota, CountsWhatAPeriodHasUsedBefore) {
  Quota quota = TwoInFive();
  quota.Take(0, 0.0015);

  // 0.5 ms are left of this period.
  EXPECT_NEAR(quota.Take(0.003, 0.001), 0.0055, 1e-12);
}

TEST(Quota, SavesNothingForTheNextPeriod) {
  Quota quota = TwoInFive();

  // 1 ms is left of the first period; the second gives 2 ms.
  EXPECT_NEAR(quota.Take(0.004, 0.0035), 0.0105, 1e-12);
}

TEST(Quota, QueuesWhatIsAskedForWhileBusy) {
  Quota quota = TwoInFive();
  quota.Take(0, 0.001);

  EXPECT_NEAR(quota.Take(0, 0.002), 0.006, 1e-12);
}

TEST(Quota, PeeksWithoutTaking) {
  Quota quota = TwoInFive();
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

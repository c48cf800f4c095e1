#include "worker/meters/time_meter.h"

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

absl::Duration Part(const TimeReading& reading, TimePart part) {
  return reading.parts[static_cast<int>(part)];
}

TEST(TimeMeter, LeavesTimeBetweenPartsUnexplained) {
  FakeClock clock;
  TimeMeter meter(clock);

  clock.Advance(absl::Seconds(1));
  meter.Enter(TimePart::kBackward);
  clock.Advance(absl::Seconds(3));
  meter.Leave();
  clock.Advance(absl::Seconds(4));
  meter.Stop();
  clock.Advance(absl::Seconds(9));  // not counted

  EXPECT_EQ(meter.Read().wall, absl::Seconds(8));
  EXPECT_EQ(meter.Read().unexplained(), absl::Seconds(5));
  EXPECT_EQ(Part(meter.Read(), TimePart::kBackward), absl::Seconds(3));
}

TEST(TimeMeter, CountsThePartThatIsRunningUpToNow) {
  FakeClock clock;
  TimeMeter meter(clock);

  meter.Enter(TimePart::kReceiveWait);
  clock.Advance(absl::Seconds(7));

  EXPECT_EQ(Part(meter.Read(), TimePart::kReceiveWait), absl::Seconds(7));
  EXPECT_EQ(meter.Read().unexplained(), absl::ZeroDuration());
}

TEST(TimeMeter, BeginsAgainFromZero) {
  FakeClock clock;
  TimeMeter meter(clock);
  meter.Enter(TimePart::kData);
  clock.Advance(absl::Seconds(5));
  meter.Stop();

  meter.Restart();

  EXPECT_EQ(meter.Read().wall, absl::ZeroDuration());
  EXPECT_EQ(Part(meter.Read(), TimePart::kData), absl::ZeroDuration());
}

TEST(TimeMeter, ComputesInWhatNeedsNobodyElse) {
  FakeClock clock;
  TimeMeter meter(clock);

  for (int part = 0; part < kTimeParts; ++part) {
    const auto each = static_cast<TimePart>(part);
    meter.Enter(each);
    clock.Advance(absl::Seconds(2));
    const bool computes =
        each == TimePart::kForward || each == TimePart::kBackward ||
        each == TimePart::kEvaluation || each == TimePart::kOptimizer;
    EXPECT_EQ(meter.Computing(),
              computes ? std::optional(absl::Seconds(2)) : std::nullopt)
        << TimePartName(each);
    meter.Leave();
    EXPECT_EQ(meter.Computing(), std::nullopt);
  }
}

}  // namespace
}  // namespace paceline

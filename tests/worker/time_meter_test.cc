#include "worker/meters/time_meter.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

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

  EXPECT_EQ(meter.Read().wall(), 8);
  EXPECT_EQ(meter.Read().unexplained(), 5);
  EXPECT_EQ(meter.Read().backward(), 3);
}

TEST(TimeMeter, CountsThePartThatIsRunningUpToNow) {
  FakeClock clock;
  TimeMeter meter(clock);

  meter.Enter(TimePart::kReceiveWait);
  clock.Advance(absl::Seconds(7));

  EXPECT_EQ(meter.Read().receive_wait(), 7);
  EXPECT_EQ(meter.Read().unexplained(), 0);
}

TEST(TimeMeter, BeginsAgainFromZero) {
  FakeClock clock;
  TimeMeter meter(clock);
  meter.Enter(TimePart::kData);
  clock.Advance(absl::Seconds(5));
  meter.Stop();

  meter.Restart();

  EXPECT_EQ(meter.Read().wall(), 0);
  EXPECT_EQ(meter.Read().data(), 0);
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
        << part;
    meter.Leave();
    EXPECT_EQ(meter.Computing(), std::nullopt);
  }
}

// At `seconds` on all clocks; half of the process's CPU is the compute
// thread's.
FlowMoment FlowAt(double seconds) {
  const absl::Duration steady = absl::Seconds(seconds);
  return {steady, absl::ToInt64Microseconds(steady) + 1'000'000'000, steady / 2,
          steady};
}

int64_t UnixAt(double seconds) { return FlowAt(seconds).unix_us; }

FlowWait Wait(double begin, double end) {
  return {absl::Seconds(begin), absl::Seconds(end)};
}

class FlowMeterOfInputs : public ::testing::Test {
 protected:
  FlowMeter meter{FlowMeter::Counts::kInputs};
};

class FlowMeterOfBatches : public ::testing::Test {
 protected:
  FlowMeter meter{FlowMeter::Counts::kBatches};
};

TEST_F(FlowMeterOfInputs, CountsNothingBeforeTheFirstInput) {
  meter.OnBlocked(absl::Seconds(3), absl::Seconds(1));
  meter.OnInput(FlowAt(5), Wait(0, 5), UnixAt(4));

  EXPECT_EQ(meter.times().starved(), 0);
  EXPECT_EQ(meter.times().in_flight(), 0);
  EXPECT_EQ(meter.times().blocked(), 0);
  EXPECT_EQ(meter.times().first_unix_us(), UnixAt(5));
}

TEST_F(FlowMeterOfInputs, TellsAStageThatComputesFromAFrameOnItsWay) {
  meter.OnInput(FlowAt(1), Wait(0, 1), UnixAt(1));
  meter.OnInput(FlowAt(6), Wait(2, 6), UnixAt(5));

  EXPECT_DOUBLE_EQ(meter.times().starved(), 3);
  EXPECT_DOUBLE_EQ(meter.times().in_flight(), 1);
}

TEST_F(FlowMeterOfInputs, BelievesNoClockThatIsFarOff) {
  meter.OnInput(FlowAt(1), Wait(0, 1), UnixAt(1));
  meter.OnInput(FlowAt(6), Wait(4, 6), UnixAt(-50));
  meter.OnInput(FlowAt(9), Wait(8, 9), UnixAt(50));

  EXPECT_DOUBLE_EQ(meter.times().in_flight(), 2) << "no more than the wait";
  EXPECT_DOUBLE_EQ(meter.times().starved(), 1) << "sent after it came";

  meter.OnInput(FlowAt(12), Wait(10, 12), std::numeric_limits<int64_t>::min());
  EXPECT_DOUBLE_EQ(meter.times().in_flight(), 4);
}

TEST_F(FlowMeterOfInputs, CountsTheLoaderApart) {
  meter.OnInput(FlowAt(1), Wait(0, 1), 0);
  meter.OnInput(FlowAt(3), Wait(1, 3), 0);

  EXPECT_DOUBLE_EQ(meter.times().data(), 2);
  EXPECT_DOUBLE_EQ(meter.times().starved(), 0);
}

TEST_F(FlowMeterOfInputs, SplitsAWaitForRoomByWhatTheLinkWasDoing) {
  meter.OnInput(FlowAt(1), Wait(0, 1), 0);
  meter.OnBlocked(absl::Seconds(5), absl::Seconds(2));

  EXPECT_DOUBLE_EQ(meter.times().in_flight(), 2);
  EXPECT_DOUBLE_EQ(meter.times().blocked(), 3);
}

TEST_F(FlowMeterOfInputs, SumsComputeAndWhatOtherThreadsUsed) {
  meter.OnInput(FlowAt(10), Wait(0, 10), 0);
  meter.OnCompute(absl::Seconds(4), absl::Seconds(3));
  meter.OnCompute(absl::Seconds(2), absl::Seconds(1));
  meter.OnDone(FlowAt(18), 4);
  meter.OnDone(FlowAt(20), 3);

  EXPECT_DOUBLE_EQ(meter.times().compute(), 6);
  EXPECT_DOUBLE_EQ(meter.times().compute_cpu(), 4);
  EXPECT_DOUBLE_EQ(meter.times().other_cpu(), 5) << "half of ten seconds";
  EXPECT_EQ(meter.times().micro_batches(), 2);
  EXPECT_EQ(meter.times().samples(), 7);
  EXPECT_EQ(meter.times().last_unix_us(), UnixAt(20));
}

TEST_F(FlowMeterOfBatches, CountsWholeBatches) {
  meter.OnBatchBegin(FlowAt(10));
  meter.OnInput(FlowAt(13), Wait(10, 13), UnixAt(12));
  meter.OnCompute(absl::Seconds(1), absl::Seconds(1));
  meter.OnFilled();
  meter.OnInput(FlowAt(16), Wait(14, 16), UnixAt(15));
  meter.OnGate(absl::Seconds(2));
  meter.OnUpdate(absl::Seconds(1));
  meter.OnBatchEnd(FlowAt(20), 4, 8);

  const v1::FlowTimes& times = meter.times();
  EXPECT_DOUBLE_EQ(times.fill(), 2 + 2) << "before a backward, and at the gate";
  EXPECT_DOUBLE_EQ(times.starved(), 1);
  EXPECT_DOUBLE_EQ(times.in_flight(), 2);
  EXPECT_DOUBLE_EQ(times.update(), 1);
  EXPECT_DOUBLE_EQ(times.seconds(), 10);
  EXPECT_DOUBLE_EQ(times.other_cpu(), 5);
  EXPECT_EQ(times.micro_batches(), 4);
  EXPECT_EQ(times.samples(), 8);
}

TEST_F(FlowMeterOfBatches, LeavesOutABatchThatDoesNotCount) {
  meter.OnBatchBegin(FlowAt(10));
  meter.OnBatchDropped();
  meter.OnInput(FlowAt(13), Wait(10, 13), UnixAt(12));
  meter.OnCompute(absl::Seconds(1), absl::Seconds(1));
  meter.OnGate(absl::Seconds(2));
  meter.OnBatchBegin(FlowAt(20));
  meter.OnBatchEnd(FlowAt(21), 1, 1);

  EXPECT_EQ(meter.times().fill(), 0);
  EXPECT_EQ(meter.times().compute(), 0);
  EXPECT_DOUBLE_EQ(meter.times().seconds(), 1);
}

TEST_F(FlowMeterOfBatches, LeavesOutTheFirstBatch) {
  meter.OnInput(FlowAt(1), Wait(0, 1), UnixAt(1));
  meter.OnCompute(absl::Seconds(3), absl::Seconds(3));
  meter.OnInput(FlowAt(6), Wait(4, 6), UnixAt(5));
  meter.OnBlocked(absl::Seconds(1), absl::ZeroDuration());
  meter.OnBatchBegin(FlowAt(10));
  meter.OnCompute(absl::Seconds(2), absl::Seconds(1));
  meter.OnBatchEnd(FlowAt(14), 2, 4);

  EXPECT_DOUBLE_EQ(meter.times().compute(), 2);
  EXPECT_DOUBLE_EQ(meter.times().compute_cpu(), 1);
  EXPECT_EQ(meter.times().fill(), 0);
  EXPECT_EQ(meter.times().starved(), 0);
  EXPECT_EQ(meter.times().blocked(), 0);
  EXPECT_EQ(meter.times().first_unix_us(), UnixAt(10));
}

TEST_F(FlowMeterOfInputs, KnowsTheQuantilesOfLatency) {
  for (int i = 100; i >= 1; --i) meter.OnResult(absl::Milliseconds(i));
  meter.Finish();

  EXPECT_FLOAT_EQ(meter.times().latency_p50(), 0.050);
  EXPECT_FLOAT_EQ(meter.times().latency_p99(), 0.099);
  EXPECT_FLOAT_EQ(meter.times().latency_max(), 0.100);
}

TEST_F(FlowMeterOfBatches, KnowsLatenciesOfBatchesThatCount) {
  meter.OnResult(absl::Seconds(9));
  meter.OnBatchBegin(FlowAt(10));
  meter.OnResult(absl::Seconds(2));
  meter.OnBatchEnd(FlowAt(20), 1, 8);
  meter.OnBatchBegin(FlowAt(20));
  meter.OnBatchDropped();
  meter.OnResult(absl::Seconds(9));
  meter.Finish();

  EXPECT_EQ(meter.times().latency_p50(), 2);
  EXPECT_EQ(meter.times().latency_max(), 2);
}

TEST_F(FlowMeterOfInputs, ForgetsOldLatencies) {
  meter.OnResult(absl::Seconds(1000));
  for (size_t i = 0; i < FlowMeter::kLatenciesKept; ++i) {
    meter.OnResult(absl::Seconds(1));
  }
  meter.Finish();

  EXPECT_EQ(meter.times().latency_max(), 1);
}

}  // namespace
}  // namespace paceline

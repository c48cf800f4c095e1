// Slow-downs and failures at given times, computed by hand.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"

namespace paceline {
namespace {

using testing::ElementsAre;

TEST(SlowDown, StretchesOnlyWhatFallsIntoIt) {
  struct Case {
    int stages;
    int micro_batches;
    std::vector<SimulatedSlowDown> slow_downs;
    double seconds;
  };
  const Case cases[] = {
      // 1.5 s of work until 1.5, 0.5 s until 2.5, then 2 s more.
      {1, 4, {{1.5, 0, 2, 1}}, 4.5},
      // Without an end it lasts until the end.
      {1, 4, {{.at_seconds = 2, .device = 0, .factor = 3}}, 2 + 2 * 3},
      // Several multiply and end one by one: 1 s of work until 2, 0.25 until
      // 4, 1.5 until 10, then 0.25.
      {1, 3, {{0, 0, 2, 4}, {2, 0, 4, 8}}, 10.25},
      // The second stage: 1-2, 2-5, 5-6; so the third ends at 7.
      {3, 3, {{2, 1, 3, 3}}, 7},
  };
  for (const Case& each : cases) {
    Chain chain = Chain::Equal(each.stages, each.micro_batches, false);
    chain.options.slow_downs = each.slow_downs;

    EXPECT_DOUBLE_EQ(chain.Run().step_seconds, each.seconds);
  }
}

TEST(SlowDown, StretchesFramesOnTheCpuToo) {
  Chain chain = Chain::Equal(2, 1, false);
  for (Device& device : chain.problem.devices) device.frame_seconds = 1;
  chain.options.slow_downs = {{.at_seconds = 1.5, .device = 0, .factor = 2}};

  const SimulationResult result = chain.Run();

  // Sent from 1 to 2.5, received until 3.5.
  EXPECT_DOUBLE_EQ(result.step_seconds, 4.5);
  EXPECT_DOUBLE_EQ(result.devices[0].send_seconds, 1.5);
}

TEST(SlowDown, OfAnUnusedDeviceChangesNothing) {
  Chain chain = Chain::Equal(3, 2, false);
  chain.placement = {{{0, 3}, {1}, {1}}};
  chain.options.slow_downs = {{.at_seconds = 0, .device = 0, .factor = 9}};
  chain.options.failures = {{.at_seconds = 1, .device = 2}};

  EXPECT_DOUBLE_EQ(chain.Run().step_seconds, 6);
}

TEST(Failure, EndsTheSimulationAndSaysWhatWasDone) {
  Chain chain = Chain::Equal(2, 4, false);
  chain.options.failures = {{.at_seconds = 3.5, .device = 1}};

  const SimulationResult result = chain.Run();

  EXPECT_EQ(result.failed_device, 1);
  EXPECT_DOUBLE_EQ(result.seconds, 3.5);
  EXPECT_TRUE(result.all_step_seconds.empty());
  EXPECT_DOUBLE_EQ(result.step_seconds, 0);
  // Micro-batches 0 and 1 were through at 2 and 3.
  EXPECT_EQ(result.unfinished_micro_batches, 2);
  EXPECT_DOUBLE_EQ(result.devices[0].forward_seconds, 3.5);
  EXPECT_DOUBLE_EQ(result.devices[1].forward_seconds, 2.5);
  EXPECT_DOUBLE_EQ(result.devices[1].wait_seconds, 1);
}

TEST(Failure, KeepsTheStepsBeforeIt) {
  Chain chain = Chain::Equal(2, 4, true);  // 15 s a step
  chain.options.steps = 3;
  chain.options.failures = {{.at_seconds = 35, .device = 0}};

  const SimulationResult result = chain.Run();

  EXPECT_THAT(result.all_step_seconds, ElementsAre(15, 15));
  EXPECT_DOUBLE_EQ(result.step_seconds, 15);
  EXPECT_EQ(result.failed_device, 0);
  // Begun at 30, the first backward of stage 0 would end at 36.
  EXPECT_EQ(result.unfinished_micro_batches, 0);
}

TEST(Failure, WithARecoveryRunsTheStepAgain) {
  Chain chain = Chain::Equal(2, 4, true);  // 15 s a step
  chain.options.steps = 3;
  chain.options.failures = {
      {.at_seconds = 25, .device = 0, .recover_after_seconds = 7}};

  const SimulationResult result = chain.Run();

  // The second step begins at 15, and again at 32.
  EXPECT_THAT(result.all_step_seconds, ElementsAre(15, 32, 15));
  EXPECT_DOUBLE_EQ(result.seconds, 62);
  EXPECT_EQ(result.restarts, 1);
  EXPECT_DOUBLE_EQ(result.lost_seconds, 17);
  EXPECT_FALSE(result.failed_device.has_value());
  EXPECT_EQ(result.unfinished_micro_batches, 0);
}

TEST(Failure, CountsWhatWasDoneInVain) {
  Chain chain = Chain::Equal(1, 2, true);  // 6 s a step
  chain.options.failures = {
      {.at_seconds = 4, .device = 0, .recover_after_seconds = 1}};

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(result.seconds, 11);
  // 0-1 and 3-4 forward, 1-3 backward; then all of the step.
  EXPECT_DOUBLE_EQ(result.devices[0].forward_seconds, 2 + 2);
  EXPECT_DOUBLE_EQ(result.devices[0].backward_seconds, 2 + 4);
  EXPECT_DOUBLE_EQ(result.devices[0].wait_seconds, 1);
}

TEST(Failure, OfTwoAtOnceGoesOnWhenBothAreBack) {
  Chain chain = Chain::Equal(2, 4, true);  // 15 s a step
  chain.options.failures = {
      {.at_seconds = 10, .device = 0, .recover_after_seconds = 10},
      {.at_seconds = 12, .device = 1, .recover_after_seconds = 2}};

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(result.seconds, 20 + 15);
  EXPECT_EQ(result.restarts, 1);
  EXPECT_DOUBLE_EQ(result.lost_seconds, 20);
}

TEST(Failure, LosesWhatIsOnItsWayAndEndsAsAFreshStep) {
  for (double at = 0.25; at < 40; at += 1.5) {
    Chain chain = Chain::Equal(3, 4, true);
    chain.Bytes(100, 50, 20);
    chain.Link(200, 0.125);
    for (Device& device : chain.problem.devices) device.frame_seconds = 0.0625;
    const SimulationResult undisturbed = chain.Run();
    chain.options.failures = {
        {.at_seconds = at, .device = 1, .recover_after_seconds = 3}};

    const SimulationResult result = chain.Run();

    if (at >= undisturbed.seconds) {
      EXPECT_DOUBLE_EQ(result.seconds, undisturbed.seconds);
      continue;
    }
    EXPECT_NEAR(result.seconds, at + 3 + undisturbed.seconds, 1e-9);
    // Whatever was sent and lost came on top.
    EXPECT_GE(result.devices[0].bytes_sent, undisturbed.devices[0].bytes_sent);
    EXPECT_EQ(result.devices[1].peak_bytes, undisturbed.devices[1].peak_bytes);
  }
}

}  // namespace
}  // namespace paceline

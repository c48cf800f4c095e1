// Compares what the schedules beside gpipe and 1f1b gain with their papers'
// formulas where transfers are free.
#include <string>

#include "core/plan/stage_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr double kScheduleRounding = 1e-9;

// A forward takes 1, a backward 2, half of it for the input.
Chain With(const std::string& schedule, int stages, int64_t micro_batches) {
  Chain chain = Chain::Equal(stages, micro_batches, /*training=*/true);
  chain.options.schedule = schedule;
  chain.Bytes(/*output=*/0, /*kept=*/0, /*parameters=*/1);
  return chain;
}

double BubbleSeconds(const Chain& chain) {
  // 3 seconds of work for each micro-batch on the busiest device.
  const double stages_a_device =
      static_cast<double>(chain.placement.size()) /
      static_cast<double>(chain.problem.devices.size());
  return chain.Run().step_seconds -
         3.0 * stages_a_device *
             static_cast<double>(chain.problem.micro_batches);
}

TEST(ZeroBubble, HasAThirdOfTheBubbleOf1f1b) {
  for (const int stages : {1, 2, 3, 4, 6, 8}) {
    for (const int micro_batches : {8, 12, 24}) {
      if (micro_batches < stages) continue;
      // Qi et al. 2023, table 1: (p - 1)(F + B - 2W) of ZB-H1's I and W here is
      // (p - 1)(F + I - W).
      EXPECT_NEAR(BubbleSeconds(With("zero-bubble", stages, micro_batches)),
                  stages - 1.0, kScheduleRounding)
          << stages << " x " << micro_batches;
      EXPECT_NEAR(BubbleSeconds(With("1f1b", stages, micro_batches)),
                  3.0 * (stages - 1), kScheduleRounding);
    }
  }
}

// `chunks` stages on each of `devices`, dealt out in turn.
Chain Interleaved(const std::string& schedule, int devices, int chunks,
                  int64_t micro_batches) {
  Chain chain = With(schedule, devices * chunks, micro_batches);
  chain.problem.devices.resize(devices);
  chain.Link(kFree, 0);
  for (int s = 0; s < devices * chunks; ++s) {
    chain.placement[s].devices = {s % devices};
  }
  return chain;
}

TEST(Interleaved, DividesTheBubbleByTheStagesOfADevice) {
  for (const int devices : {2, 3, 4}) {
    for (const int chunks : {2, 3, 4}) {
      for (const int groups : {1, 2, 4}) {
        // Narayanan et al. 2021, section 2.2.2: (p - 1)(tf + tb) / v.
        EXPECT_NEAR(BubbleSeconds(Interleaved("interleaved-1f1b", devices,
                                              chunks, groups * devices)),
                    3.0 * (devices - 1), kScheduleRounding)
            << devices << " devices, " << chunks << " stages each, " << groups;
      }
    }
  }
}

TEST(Pipedream, HasNoBubbleBetweenSteps) {
  for (const int stages : {1, 2, 4}) {
    Chain chain = With("pipedream", stages, 8);
    chain.options.steps = 5;
    chain.options.optimizer_seconds.assign(stages, 0.5);

    const SimulationResult result = chain.Run();

    ASSERT_EQ(result.all_step_seconds.size(), 5u);
    // Forward, backward and an update for each micro-batch; a step has ended
    // when it has on all stages, and the last one runs empty as the first
    // fills, so they are equal in between.
    for (size_t i = 1; i < 5; ++i) {
      EXPECT_NEAR(result.all_step_seconds[i], 8 * 3.5, kScheduleRounding);
    }
    EXPECT_EQ(result.unfinished_micro_batches, 0);
    EXPECT_NEAR(result.devices[0].optimizer_seconds, 5 * 8 * 0.5,
                kScheduleRounding);
  }
}

TEST(Pipedream, VerticalSyncKeepsAsManyVersionsEverywhere) {
  Chain chain = With("pipedream", 4, 16);
  chain.Bytes(/*output=*/0, /*kept=*/0, /*parameters=*/77);
  chain.options.vertical_sync = true;

  const SimulationResult result = chain.Run();

  for (const DeviceUse& use : result.devices) {
    EXPECT_DOUBLE_EQ(
        use.peak_bytes,
        77 * (chain.problem.parameter_copies + 3));  // 4 versions, not 1
  }
}

TEST(Pipedream, AFailureEndsItAndARecoveryIsRefused) {
  Chain chain = With("pipedream", 2, 8);
  chain.options.failures = {{.at_seconds = 10, .device = 1}};
  EXPECT_EQ(chain.Run().failed_device, 1);
  chain.options.failures[0].recover_after_seconds = 1;

  const auto result = chain.Try();

  ExpectError(result.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr("a failure with recovery under pipedream"));
}

}  // namespace
}  // namespace paceline

// Where core/plan/cost.h is exact, events must give the same seconds.
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"

namespace paceline {
namespace {

constexpr double kFormulaRounding = 1e-9;

TEST(Formula, HoldsForForwardsThroughUnlikeStages) {
  for (const int64_t micro_batches : {1, 2, 7}) {
    const Chain chain = Chain::Of({0.5, 2, 1, 1.5}, micro_batches, false);

    EXPECT_NEAR(chain.Run().step_seconds, chain.Formula(), kFormulaRounding);
  }
}

TEST(Formula, HoldsForForwardsOnUnlikeDevices) {
  Chain chain = Chain::Equal(3, 5, false);
  chain.problem.devices[0].speed = 0.3;
  chain.problem.devices[1].layer_seconds = {9, 2.5, 9};
  chain.problem.devices[2].speed = 4;

  const SimulationResult result = chain.Run();

  EXPECT_NEAR(result.step_seconds, chain.Formula(), kFormulaRounding);
  EXPECT_NEAR(result.devices[1].forward_seconds, 5 * 2.5, kFormulaRounding);
  EXPECT_NEAR(result.devices[2].forward_seconds, 5 * 0.25, kFormulaRounding);
}

TEST(Formula, HoldsForTrainingWithEqualStages) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const int stages : {1, 2, 3, 5}) {
      for (const int64_t micro_batches : {1, 2, 4, 9}) {
        Chain chain = Chain::Equal(stages, micro_batches, true);
        chain.options.schedule = schedule;

        const SimulationResult result = chain.Run();

        EXPECT_NEAR(result.step_seconds, chain.Formula(), kFormulaRounding)
            << schedule << " " << stages << " x " << micro_batches;
        EXPECT_NEAR(
            result.bubble_share,
            (stages - 1.0) / (static_cast<double>(micro_batches) + stages - 1),
            kFormulaRounding);
      }
    }
  }
}

TEST(Formula, EveryTrainingStepIsAsLongAsTheFirst) {
  Chain chain = Chain::Equal(3, 4, true);
  chain.options.steps = 3;

  const SimulationResult result = chain.Run();

  ASSERT_EQ(result.all_step_seconds.size(), 3u);
  for (const double seconds : result.all_step_seconds) {
    EXPECT_NEAR(seconds, chain.Formula(), kFormulaRounding);
  }
  EXPECT_NEAR(result.seconds, 3 * chain.Formula(), kFormulaRounding);
}

TEST(Formula, BatchesOfForwardsFollowEachOtherWithoutABubble) {
  Chain chain = Chain::Of({1, 2, 1}, 4, false);
  chain.options.steps = 5;

  const SimulationResult result = chain.Run();

  EXPECT_NEAR(result.all_step_seconds.front(), chain.Formula(),
              kFormulaRounding);
  // The slowest stage never stops.
  EXPECT_NEAR(result.step_seconds, 4 * 2, kFormulaRounding);
  EXPECT_NEAR(result.micro_batches_per_second, 0.5, kFormulaRounding);
}

TEST(Formula, HoldsForTransfersBelowTheBottleneckAndForThoseThatAreIt) {
  for (const double bytes_per_second : {400.0, 100.0}) {
    Chain chain = Chain::Of({1, 2, 1}, 6, false);
    chain.Bytes(300);
    chain.Link(bytes_per_second, /*latency_seconds=*/0.125);

    EXPECT_NEAR(chain.Run().step_seconds, chain.Formula(), kFormulaRounding);
  }
}

TEST(Formula, HoldsForFramesThatTakeTheComputeThreadsCpu) {
  for (const std::vector<double>& seconds :
       std::vector<std::vector<double>>{{1, 2}, {2, 1}, {1, 3, 1}}) {
    Chain chain = Chain::Of(seconds, 5, false);
    chain.Bytes(100);
    for (Device& device : chain.problem.devices) {
      device.frame_seconds = 0.125;
      device.frame_seconds_per_byte = 0.001;
    }

    EXPECT_NEAR(chain.Run().step_seconds, chain.Formula(), kFormulaRounding);
  }
}

}  // namespace
}  // namespace paceline

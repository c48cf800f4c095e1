#include <numeric>
#include <random>

#include "core/plan/plan.h"
#include "core/plan/stage_memory.h"
#include "core/simulate/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two equal layers on `counts[s]` devices each.
Chain Replicated(const std::vector<int>& counts, int64_t micro_batches,
                 bool training) {
  const int devices = std::accumulate(counts.begin(), counts.end(), 0);
  Chain chain = Chain::Equal(devices, micro_batches, training);
  chain.problem.layers.resize(counts.size());
  chain.placement.clear();
  int next = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    PlacedStage stage;
    stage.layers = {static_cast<int>(s), static_cast<int>(s) + 1};
    for (int i = 0; i < counts[s]; ++i) {
      stage.devices.push_back(next++);
      stage.shares.push_back(1.0 / counts[s]);
    }
    chain.placement.push_back(stage);
  }
  return chain;
}

TEST(ReplicaOrder, AlternatesOnceInFlightIsReached) {
  const auto orders =
      OrderReplicas({{.stage = 0, .micro_batches = {0, 1, 2}, .in_flight = 2},
                     {.stage = 1, .micro_batches = {0, 1, 2}, .in_flight = 1}},
                    2, 3, true);

  EXPECT_THAT(orders[0], ElementsAre(Instruction{0, Op::kForward, 0},
                                     Instruction{0, Op::kForward, 1},
                                     Instruction{0, Op::kBackward, 0},
                                     Instruction{0, Op::kForward, 2},
                                     Instruction{0, Op::kBackward, 1},
                                     Instruction{0, Op::kBackward, 2}));
  EXPECT_THAT(orders[1], ElementsAre(Instruction{1, Op::kForward, 0},
                                     Instruction{1, Op::kBackward, 0},
                                     Instruction{1, Op::kForward, 1},
                                     Instruction{1, Op::kBackward, 1},
                                     Instruction{1, Op::kForward, 2},
                                     Instruction{1, Op::kBackward, 2}));
}

TEST(ReplicaOrder, GoesBackwardOutOfTurnRatherThanDeadlock) {
  // The rare replica of stage 1 would wait for micro-batch 9 before it goes
  // backward with 4; stage 0 does not come to 9 without that.
  const auto orders = OrderReplicas(
      {{.stage = 0,
        .micro_batches = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
        .in_flight = 3},
       {.stage = 1, .micro_batches = {0, 1, 2, 3, 5, 6, 7, 8}, .in_flight = 1},
       {.stage = 1, .micro_batches = {4, 9}, .in_flight = 2}},
      2, 10, true);

  EXPECT_THAT(orders[2], ElementsAre(Instruction{1, Op::kForward, 4},
                                     Instruction{1, Op::kBackward, 4},
                                     Instruction{1, Op::kForward, 9},
                                     Instruction{1, Op::kBackward, 9}));
}

TEST(Replicas, RunWhateverTheirSharesAre) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<int> counts(random() % 4 + 1);
    for (int& count : counts) count = static_cast<int>(random() % 3) + 1;
    Chain chain = Replicated(counts, random() % 20 + 1, true);
    chain.Bytes(100, 10, 1000);
    chain.Link(1000, 0.125);
    for (PlacedStage& stage : chain.placement) {
      double total = 0;
      for (double& share : stage.shares) total += share = random() % 20 + 1;
      for (double& share : stage.shares) share /= total;
    }
    chain.options.steps = 2;

    const SimulationResult result = chain.Run();

    double forward = 0;
    for (const DeviceUse& use : result.devices) forward += use.forward_seconds;
    EXPECT_NEAR(forward,
                2.0 * static_cast<double>(chain.problem.micro_batches) *
                    static_cast<double>(counts.size()),
                1e-9)
        << seed;
  }
}

TEST(Replicas, OfTheSlowerStageDoubleTheThroughput) {
  Chain chain = Replicated({1, 2}, 100, false);
  chain.problem.layers[1].forward_seconds = 2;

  EXPECT_NEAR(chain.Run().step_seconds, chain.Formula(), 1.5);
  EXPECT_DOUBLE_EQ(chain.Run().step_seconds, 100 + 2);
}

TEST(Replicas, WithUnevenSharesEndTogether) {
  Chain chain = Replicated({2}, 12, false);
  chain.problem.devices[0].speed = 2;
  chain.placement[0].shares = {2.0 / 3, 1.0 / 3};

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(result.step_seconds, 4);
  EXPECT_DOUBLE_EQ(result.bubble_share, 0);
}

TEST(Replicas, SendPartsOfTheirGradientsAndThenTheSums) {
  Chain chain = Replicated({3}, 3, true);
  chain.problem.layers[0].parameter_bytes = 300;
  chain.Link(/*bytes_per_second=*/100, /*latency_seconds=*/0.25);

  const SimulationResult result = chain.Run();

  // One micro-batch each (3 s); twice two frames of 100 bytes to the others;
  // the gate's round trip.
  EXPECT_DOUBLE_EQ(result.step_seconds, 3 + 2 * (2 + 0.25) + 0.5);
  for (const DeviceUse& use : result.devices) {
    EXPECT_EQ(use.frames_sent, 4);
  }
}

TEST(Replicas, ExchangeTwoPartsOfTheGradientForEachOther) {
  double before = 0;
  for (const int replicas : {2, 3, 4, 6}) {
    Chain chain = Replicated({replicas}, 12, true);
    chain.problem.layers[0].parameter_bytes = 1200;
    chain.Link(1000, 0.1);
    const SimulationResult result = chain.Run();
    chain.Link(100, 0.1);

    const double bytes = 2.0 * (replicas - 1) / replicas * 1200;
    for (const DeviceUse& use : result.devices) {
      EXPECT_DOUBLE_EQ(use.bytes_sent, bytes);
      EXPECT_DOUBLE_EQ(use.bytes_received, bytes);
    }
    EXPECT_GT(bytes, before);
    EXPECT_NEAR(chain.Run().step_seconds - result.step_seconds,
                bytes / 100 - bytes / 1000, 1e-9);
    before = bytes;
  }
}

// Three replicas feed one stage that takes a third of their time.
TEST(Replicas, GoForwardWhileTheStageBehindHasTheirMicroBatch) {
  Chain chain = Replicated({3, 1}, 30, true);
  chain.problem.layers[0].forward_seconds = 3;
  chain.problem.layers[0].backward_seconds = 6;

  // 10 micro-batches of 9 s each; 3 s longer each where a replica waits for its
  // micro-batch to come back.
  EXPECT_LT(chain.Run().step_seconds, 90 + 15);
}

TEST(Replicas, KeepAsManyMicroBatchesAsTheCostModelSays) {
  Chain chain = Replicated({2, 3, 1}, 24, true);
  chain.Bytes(/*output=*/0, /*kept=*/100);

  const SimulationResult result = chain.Run();

  int earlier = 0;
  int later = 6;
  for (int s = 0; s < 3; ++s) {
    const int replicas = static_cast<int>(chain.placement[s].devices.size());
    later -= replicas;
    for (const int device : chain.placement[s].devices) {
      EXPECT_DOUBLE_EQ(
          result.devices[device].peak_bytes,
          StageBytes(chain.problem, {s, s + 1}, {replicas, earlier, later}))
          << "stage " << s;
    }
    earlier += replicas;
  }
}

// KeepsOfReplicas() tells the planner of a job's memory.
TEST(Replicas, KeepAsManyMicroBatchesAsPlansOfJobsCount) {
  constexpr int kMicroBatches = 12;
  JobSpec spec;
  spec.train.micro_batch = 1;
  spec.train.batch = kMicroBatches;
  for (const char* schedule : {"1f1b", "gpipe"}) {
    for (const std::vector<int>& counts :
         {std::vector<int>{3, 1}, {1, 2}, {2, 3, 1}}) {
      std::vector<RouteTable> routes;
      std::vector<LayerRange> stages;
      for (const int count : counts) {
        const int stage = static_cast<int>(routes.size());
        routes.push_back(MakeRouteTable(std::vector<double>(count, 1)));
        stages.insert(stages.end(), count, {stage, stage + 1});
      }
      spec.pipeline.schedule = schedule;
      const std::vector<StageKeeps> keeps = KeepsOfReplicas(spec, stages);
      const auto lists = *ListsOfReplicas(
          ProgramOfReplicas(counts, routes, kMicroBatches, true), schedule);

      ASSERT_EQ(keeps.size(), lists.size());
      for (size_t w = 0; w < lists.size(); ++w) {
        int kept = 0, most = 0;
        for (const Instruction& instruction : lists[w]) {
          if (instruction.op == Op::kForward) most = std::max(most, ++kept);
          if (instruction.op == Op::kBackward) --kept;
        }
        EXPECT_LE(most, keeps[w].micro_batches) << schedule << " worker " << w;
        if (spec.pipeline.schedule == "1f1b") {
          EXPECT_EQ(most, keeps[w].micro_batches) << "worker " << w;
        }
      }
    }
  }
}

TEST(Replicas, KeepAllUnderGPipe) {
  Chain chain = Replicated({2, 1}, 10, true);
  chain.Bytes(0, 100);
  chain.options.schedule = "gpipe";

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(result.devices[0].peak_bytes, 500);
  EXPECT_DOUBLE_EQ(result.devices[2].peak_bytes, 1000);
}

TEST(Replicas, MoreThanMicroBatchesStillEndTheStep) {
  for (const bool training : {true, false}) {
    Chain chain = Replicated({1, 4}, 2, training);
    chain.options.steps = 3;

    const SimulationResult result = chain.Run();

    EXPECT_EQ(result.all_step_seconds.size(), 3u);
    EXPECT_DOUBLE_EQ(result.devices[3].forward_seconds, 0);
    EXPECT_TRUE(result.devices[3].used);
  }
}

TEST(Replicas, HaveCreditByPairOfWorkers) {
  Chain chain = Replicated({2, 2}, 12, true);
  chain.Link(kFree, 0.5);
  chain.options.credit_frames = 1;

  EXPECT_TRUE(chain.Try().ok());
}

TEST(Replicas, RefuseUnknownSchedulesAndTooManyMicroBatches) {
  Chain chain = Replicated({2, 1}, 4, true);
  chain.options.schedule = "zigzag";
  ExpectError(chain.Try().status(), absl::StatusCode::kInvalidArgument,
              HasSubstr("'zigzag'"));
  ExpectError(Replicated({2, 1}, 1 << 20, true).Try().status(),
              absl::StatusCode::kInvalidArgument,
              HasSubstr("too many for one batch"));
}

}  // namespace
}  // namespace paceline

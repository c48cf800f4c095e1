#include "core/simulate/simulation.h"

#include <functional>
#include <random>
#include <string>

#include "core/plan/cost.h"
#include "core/plan/stage_memory.h"
#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kRounding = 1e-9;

// A chain with unlike stages, devices, links and frames, from a seed.
Chain RandomChain(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int most) {
    return static_cast<double>(random() % most + 1);
  };
  std::vector<double> seconds(random() % 4 + 1);
  for (double& value : seconds) value = draw(8) / 4;
  Chain chain = Chain::Of(seconds, static_cast<int64_t>(draw(8)),
                          random() % 2 == 0, draw(3));
  for (LayerCost& layer : chain.problem.layers) {
    layer.output_bytes = 10 * draw(20);
    layer.kept_bytes = 100 * draw(5);
    layer.parameter_bytes = 50 * draw(5);
  }
  for (Device& device : chain.problem.devices) {
    device.speed = draw(4) / 2;
    device.frame_seconds = draw(5) / 64;
  }
  for (auto& row : chain.problem.links) {
    for (LinkCost& link : row) link = {100 * draw(6), draw(4) / 32};
  }
  chain.options.schedule = random() % 2 == 0 ? "gpipe" : "1f1b";
  chain.options.steps = static_cast<int>(draw(3));
  chain.options.load_seconds = 0.125;
  chain.options.gate_seconds = 0.25;
  chain.options.optimizer_seconds.assign(seconds.size(), 0.5);
  return chain;
}

TEST(Simulate, SpendsEveryDevicesTimeOnSomething) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Chain chain = RandomChain(seed);

    const SimulationResult result = chain.Run();

    const auto micro_batches =
        static_cast<double>(chain.problem.micro_batches * chain.options.steps);
    for (size_t d = 0; d < result.devices.size(); ++d) {
      const DeviceUse& use = result.devices[d];
      const LayerCost& layer = chain.problem.layers[d];
      const double speed = chain.problem.devices[d].speed;
      EXPECT_NEAR(use.forward_seconds,
                  micro_batches * layer.forward_seconds / speed, kRounding)
          << seed;
      const double total = BusySeconds(use) + use.wait_seconds +
                           use.send_seconds + use.receive_seconds;
      EXPECT_NEAR(total, result.seconds, kRounding) << seed;
    }
  }
}

TEST(Simulate, SendsEveryFrameOnce) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Chain chain = RandomChain(seed);

    const SimulationResult result = chain.Run();

    const int64_t frames = chain.problem.micro_batches * chain.options.steps;
    const int64_t back = chain.problem.training ? frames : 0;
    const int last = static_cast<int>(result.devices.size()) - 1;
    for (int d = 0; d <= last; ++d) {
      const DeviceUse& use = result.devices[d];
      const int64_t down = d < last ? frames : 0;
      const int64_t up = d > 0 ? back : 0;
      EXPECT_EQ(use.frames_sent, down + up) << seed;
      double bytes = 0;
      if (d < last) {
        bytes +=
            static_cast<double>(down) * chain.problem.layers[d].output_bytes;
      }
      if (d > 0) {
        bytes +=
            static_cast<double>(up) * chain.problem.layers[d - 1].output_bytes;
      }
      EXPECT_DOUBLE_EQ(use.bytes_sent, bytes) << seed;
      EXPECT_NEAR(use.send_seconds,
                  static_cast<double>(use.frames_sent) *
                      chain.problem.devices[d].frame_seconds,
                  kRounding)
          << seed;
    }
  }
}

TEST(Simulate, GivesTheSameAnswerTwiceWithATraceAndWithout) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Chain chain = RandomChain(seed);
    const SimulationResult without = chain.Run();
    chain.options.keep_trace = true;

    const SimulationResult one = chain.Run();
    const SimulationResult two = chain.Run();

    EXPECT_EQ(one.all_step_seconds, two.all_step_seconds);
    EXPECT_EQ(one.all_step_seconds, without.all_step_seconds);
    EXPECT_TRUE(without.trace.slices.empty());
    ASSERT_EQ(one.trace.slices.size(), two.trace.slices.size());
    for (size_t i = 0; i < one.trace.slices.size(); ++i) {
      EXPECT_EQ(one.trace.slices[i].begin_seconds,
                two.trace.slices[i].begin_seconds);
    }
  }
}

TEST(Simulate, ASlowerDeviceNeverMakesItFaster) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Chain chain = RandomChain(seed);
    // Ports that are busy may let another frame pass first.
    for (auto& row : chain.problem.links) {
      for (LinkCost& link : row) link.bytes_per_second = kFree;
    }
    for (Device& device : chain.problem.devices) device.frame_seconds = 0;
    const double before = chain.Run().seconds;
    chain.problem.devices[seed % chain.problem.devices.size()].speed *= 0.75;

    EXPECT_GE(chain.Run().seconds, before - kRounding) << seed;
  }
}

// Stages of two layers, of which only what lies between them has bytes: no
// frames, but gradients that wait between the halves of a backward.
TEST(Simulate, MemoryIsThatOfTheCostModelWithoutFrames) {
  for (const std::string& schedule : ScheduleNames()) {
    for (const bool training : {true, false}) {
      for (const int64_t micro_batches : {4, 8, 16}) {
        Chain chain = Chain::Equal(8, micro_batches, training);
        chain.placement.resize(4);
        chain.Bytes(/*output=*/0, /*kept=*/1000, /*parameters=*/77);
        for (int s = 0; s < 4; ++s) {
          chain.placement[s].layers = {2 * s, 2 * s + 2};
          chain.problem.layers[2 * s].output_bytes = 300;
          chain.problem.layers[2 * s].borrowed_bytes = 50;
        }
        chain.problem.parameter_copies = 4;
        chain.problem.owner_copies = 2;
        chain.problem.reserved_bytes = 5;
        CountMemoryOf(schedule, chain.problem);
        chain.options.schedule = schedule;
        chain.options.steps = 2;

        const SimulationResult result = chain.Run();

        for (int s = 0; s < 4; ++s) {
          EXPECT_DOUBLE_EQ(
              result.devices[s].peak_bytes,
              StageBytes(chain.problem, {2 * s, 2 * s + 2}, {1, s, 3 - s}))
              << schedule << " stage " << s << " of " << micro_batches;
        }
      }
    }
  }
}

TEST(Simulate, AFrameCountsAtBothEndsOnlyWhileItIsThere) {
  Chain chain = Chain::Of({1, 4}, 3, false);
  chain.Bytes(100);
  chain.Link(200, 0);

  const SimulationResult result = chain.Run();

  // Sender: ends at 1, 2, 3; each is on its way for 0.5 s.  A layer's output
  // counts besides.
  EXPECT_DOUBLE_EQ(result.devices[0].peak_bytes, 100 + 100);
  // Receiver: the first is in use until 5.5, all three are there at 3.5.
  EXPECT_DOUBLE_EQ(result.devices[1].peak_bytes, 300 + 100);
}

TEST(Simulate, AStepEndsWithARoundTripTheGateAndTheOptimizer) {
  Chain chain = Chain::Equal(3, 2, true);
  const double compute = chain.Run().step_seconds;
  chain.problem.links[0][1].latency_seconds = 0;
  chain.problem.links[0][2].latency_seconds = 0.25;  // the verdict
  chain.problem.links[2][0].latency_seconds = 0.5;   // the report
  chain.options.gate_seconds = 1;
  chain.options.optimizer_seconds = {0, 0, 4};
  chain.problem.devices[2].speed = 1;

  const SimulationResult result = chain.Run();

  // The first stage ends last, so that only the verdict is waited for.
  EXPECT_NEAR(result.step_seconds, compute + 1 + 0.25 + 4, kRounding);
  EXPECT_DOUBLE_EQ(result.devices[2].optimizer_seconds, 4);
}

TEST(Simulate, TheGateWaitsForTheLatestReport) {
  Chain chain = Chain::Equal(2, 2, true);
  const double compute = chain.Run().step_seconds;
  chain.problem.links[1][0].latency_seconds = 0;
  chain.options.gate_seconds = 0.5;
  // The last stage's report takes far longer than its gradients.
  Chain far = chain;
  far.problem.links[1][0].latency_seconds = 10;

  EXPECT_NEAR(chain.Run().step_seconds, compute + 0.5, kRounding);
  EXPECT_GT(far.Run().step_seconds, compute + 10);
}

TEST(Simulate, TheFirstStageLoads) {
  Chain chain = Chain::Equal(2, 4, false);
  chain.options.load_seconds = 0.5;

  const SimulationResult result = chain.Run();

  EXPECT_NEAR(result.step_seconds, 4 * 1.5 + 1, kRounding);
  EXPECT_DOUBLE_EQ(result.devices[0].load_seconds, 2);
  EXPECT_DOUBLE_EQ(result.devices[1].load_seconds, 0);
}

TEST(Simulate, CountsSamples) {
  Chain chain = Chain::Equal(1, 4, false);
  chain.options.micro_batch_samples = 8;

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(result.micro_batches_per_second, 1);
  EXPECT_DOUBLE_EQ(result.samples_per_second, 8);
}

// --- Credit -----------------------------------------------------------------

TEST(Credit, OfOneFrameMakesEachFrameWaitForARoundTrip) {
  Chain chain = Chain::Equal(2, 4, false);
  chain.Link(kFree, 1);
  const double without = chain.Run().step_seconds;
  chain.options.credit_frames = 1;
  chain.options.keep_trace = true;

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(without, 6);
  // Frames come at 2, 4, 6 and 8.
  EXPECT_DOUBLE_EQ(result.step_seconds, 9);
  // The compute thread of the sender did not wait.
  for (const TraceSlice& slice : result.trace.slices) {
    if (slice.device == 0 && slice.track == TraceTrack::kCompute) {
      EXPECT_DOUBLE_EQ(slice.begin_seconds, slice.micro_batch);
    }
  }
}

TEST(Credit, AboveWhatIsEverOnTheWayChangesNothing) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Chain chain = RandomChain(seed);
    if (!chain.problem.training) continue;
    const SimulationResult without = chain.Run();
    chain.options.credit_frames = 1000;

    EXPECT_EQ(chain.Run().all_step_seconds, without.all_step_seconds) << seed;
  }
}

TEST(Credit, LessIsNeverADeadlock) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Chain chain = RandomChain(seed);
    chain.options.credit_frames = 1;

    EXPECT_TRUE(chain.Try().ok()) << seed;
  }
}

TEST(Credit, HoldsAFastFirstStageBackBetweenBatchesOfForwards) {
  Chain chain = Chain::Of({0.125, 1}, 4, false);
  chain.Bytes(100);
  chain.options.steps = 10;
  const double peak = chain.Run().devices[1].peak_bytes;
  chain.options.steps = 40;

  EXPECT_DOUBLE_EQ(chain.Run().devices[1].peak_bytes, peak);
  // The data plane grants so many, and one more is in use.
  EXPECT_LE(peak, 100 * (4 * 4 + 1 + 1));
}

// --- CPU of frames, overlap -------------------------------------------------

TEST(Frames, DelayCompute) {
  Chain chain = Chain::Equal(2, 4, false);
  for (Device& device : chain.problem.devices) device.frame_seconds = 0.5;

  const SimulationResult result = chain.Run();

  EXPECT_DOUBLE_EQ(result.step_seconds, 1.5 + 4 * 1.5);
  EXPECT_DOUBLE_EQ(result.devices[0].send_seconds, 2);
}

TEST(Frames, WithoutOverlapStopTheSender) {
  Chain chain = Chain::Equal(2, 3, false);
  chain.Bytes(100);
  chain.Link(200, 0.25);
  chain.problem.overlap = false;

  // 0.75 s each: sent from 1, 2.75 and 4.5 on.
  EXPECT_DOUBLE_EQ(chain.Run().step_seconds, 5.25 + 1);
}

// Stages on workers in turn, transfers that stop senders, one frame of credit.
Chain Tight(const std::string& schedule, int workers, int64_t micro_batches) {
  Chain chain = Chain::Equal(4, micro_batches, true);
  chain.Bytes(100);
  chain.Link(100, 0.5);
  for (int s = 0; s < 4; ++s) chain.placement[s].devices = {s % workers};
  chain.options.schedule = schedule;
  chain.options.credit_frames = 1;
  chain.problem.overlap = false;
  return chain;
}

TEST(Frames, WithoutOverlapAndWithLittleCreditStillGetThrough) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const int64_t micro_batches : {2, 6, 12}) {
      Chain chain = Tight(schedule, 4, micro_batches);
      const double tight = chain.Run().step_seconds;
      chain.options.credit_frames = 0;

      EXPECT_GE(tight, chain.Run().step_seconds - kRounding)
          << schedule << " x " << micro_batches;
    }
  }
}

TEST(Frames, OfSendersThatWaitForEachOtherAreRefused) {
  Chain chain = Tight("1f1b", 2, 6);

  const auto stuck = chain.Try();
  chain.problem.overlap = true;

  ExpectError(stuck.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr("a credit of 1 frames is too small"));
  EXPECT_TRUE(chain.Try().ok());
}

// --- Several stages a worker ------------------------------------------------

TEST(SharedWorkers, DoNotSendToThemselves) {
  Chain chain = Chain::Equal(4, 4, true);
  chain.Bytes(100);
  chain.Link(1000, 0.125);
  for (int s = 0; s < 4; ++s) chain.placement[s].devices = {s / 2};

  const SimulationResult result = chain.Run();

  EXPECT_EQ(result.devices[0].frames_sent, 4);
  EXPECT_EQ(result.devices[1].frames_sent, 4);
  EXPECT_THAT(result.devices[0].stages, ElementsAre(0, 1));
  EXPECT_FALSE(result.devices[2].used);
  EXPECT_DOUBLE_EQ(result.devices[0].forward_seconds, 8);
}

TEST(SharedWorkers, OfAllStagesTakeTheSumOfAllWork) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    Chain chain = Chain::Of({1, 2, 0.5}, 5, true);
    for (PlacedStage& stage : chain.placement) stage.devices = {1};
    chain.options.schedule = schedule;
    chain.options.optimizer_seconds = {1, 2, 3};

    const SimulationResult result = chain.Run();

    EXPECT_NEAR(result.step_seconds, 5 * 3 * 3.5 + 6, kRounding);
    EXPECT_NEAR(result.bubble_share, 0, kRounding);
  }
}

TEST(Simulate, NamesWhatIsWrong) {
  const struct {
    std::function<void(Chain&)> spoil;
    std::string says;
  } kRefusals[] = {
      {[](Chain& c) { c.problem.layers[1].forward_seconds = NAN; }, "layer 1"},
      {[](Chain& c) { c.problem.micro_batches = 0; },
       "needs micro-batches, got 0"},
      {[](Chain& c) { c.options.schedule = "zigzag"; },
       "'zigzag', there are 1f1b"},
      {[](Chain& c) { c.options.steps = 0; }, "at least 1 step"},
      {[](Chain& c) { c.options.steps = 2000000; },
       "3 stages x 4 micro-batches x 2000000 steps"},
      {[](Chain& c) { c.problem.micro_batches = 1 << 20; }, "are too many"},
      {[](Chain& c) { c.placement.pop_back(); },
       "hold 2 layers, the model has 3"},
      {[](Chain& c) {
         c.placement[1].layers = {0, 2};
       },
       "expected one that starts at 1"},
      {[](Chain& c) { c.placement[1].devices = {}; }, "0 devices and 1 shares"},
      {[](Chain& c) { c.placement[1].devices = {3}; },
       "no device 3, there are 3"},
      {[](Chain& c) { c.placement[1].shares = {-1}; }, "a share -1"},
      {[](Chain& c) { c.placement[1].shares = {0.5}; }, "sum to 0.5, not 1"},
      {[](Chain& c) {
         c.placement[1] = {{1, 2}, {0, 1}, {0.5, 0.5}};
       },
       "device d0 is used twice"},
      {[](Chain& c) { c.options.optimizer_seconds = {1}; },
       "of 1 stages, there are 3"},
      {[](Chain& c) {
         c.options.optimizer_seconds = {1, -1, 1};
       },
       "optimizer_seconds is -1"},
      {[](Chain& c) { c.options.gate_seconds = NAN; }, "gate_seconds is nan"},
      {[](Chain& c) { c.options.load_seconds = -2; }, "load_seconds is -2"},
      {[](Chain& c) { c.options.credit_frames = -1; }, "credit_frames is -1"},
      {[](Chain& c) { c.options.slow_downs = {{.device = 3, .factor = 2}}; },
       "a slow-down of device 3: there are 3"},
      {[](Chain& c) { c.options.slow_downs = {{.device = 0, .factor = 0.5}}; },
       "factor 0.5, need at least 1"},
      {[](Chain& c) {
         c.options.slow_downs = {{.at_seconds = -1, .device = 0}};
       },
       "time of a slow-down is -1"},
      {[](Chain& c) { c.options.slow_downs = {{.for_seconds = NAN}}; },
       "a slow-down for nan s"},
      {[](Chain& c) { c.options.failures = {{.device = -1}}; },
       "a failure of device -1"},
      {[](Chain& c) { c.options.failures = {{.at_seconds = HUGE_VAL}}; },
       "time of a failure is inf"},
      {[](Chain& c) { c.options.failures = {{.recover_after_seconds = -1}}; },
       "failed device is back is -1"}};
  for (const auto& [spoil, says] : kRefusals) {
    Chain chain = Chain::Equal(3, 4, true);
    spoil(chain);

    ExpectError(chain.Try().status(), absl::StatusCode::kInvalidArgument,
                HasSubstr(says));
  }
}

TEST(Simulate, WithoutDevicesIsNotABadArgument) {
  Chain chain = Chain::Equal(1, 1, true);
  chain.problem.devices.clear();

  EXPECT_EQ(chain.Try().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace paceline

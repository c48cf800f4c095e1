#include "core/simulate/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "gtest/gtest.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

JobSpec Job(int64_t micro_batches) {
  JobSpec spec;
  spec.train.batch = 8 * micro_batches;
  spec.train.micro_batch = 8;
  return spec;
}

using Stages = std::vector<EstimateStage>;
const Stages kAlone = {{{0, 2}, 0}};
const Stages kPair = {{{0, 1}, 0}, {{1, 2}, 1}};

// Estimates a model with as many layers as the stages have, on as many workers.
// Each
// layer takes 1 ms forward and 2 ms backward, CPU as wall; `change` changes a
// worker's profile.
RunEstimate Estimated(
    const JobSpec& spec, const Stages& stages,
    const std::function<void(DeviceProfile&)>& change = [](DeviceProfile&) {}) {
  const ModelDescription model = SmallModel(stages.back().layers.last);
  std::map<std::string, LayerMeasurement> layers;
  std::vector<InputWorker> workers;
  for (const EstimateStage& stage : stages) {
    const std::string name(1, static_cast<char>('a' + stage.worker));
    LayerMeasurement& layer = layers[name];
    layer.forward = {0.001, 0, 0.001};
    layer.backward = {0.002, 0, 0.002};
    if (layers.size() > workers.size()) workers.push_back({name, "m", 0});
  }
  Measurements measurements = MeasuredOn(spec, model, layers);
  for (auto& [key, profile] : measurements.profiles) change(profile);
  return Value(EstimateRun(spec, model, stages, workers, measurements));
}

TEST(EstimateRun, AddsUpOneStage) {
  const RunEstimate estimate = Estimated(Job(4), kAlone);

  EXPECT_NEAR(estimate.step_seconds, 4 * 0.006, 1e-9);
  EXPECT_NEAR(estimate.stage_seconds[0], 0.006, 1e-9);
  EXPECT_NEAR(estimate.samples_per_second, 32 / 0.024, 1e-3);
  EXPECT_TRUE(estimate.measured);
}

TEST(EstimateRun, SaysWhatBoundsTheStep) {
  const RunEstimate estimate =
      Estimated(Job(4), kPair, [](DeviceProfile& profile) {
        if (profile.key.device != "b") return;
        for (LayerMeasurement& layer : profile.layers) layer.forward.wall *= 3;
      });

  EXPECT_EQ(estimate.bound.find("layers 1..1 on b set the pace: "), 0u)
      << estimate.bound;
}

TEST(EstimateRun, FillsAndDrainsAPipeline) {
  const RunEstimate estimate = Estimated(Job(4), kPair);

  EXPECT_NEAR(estimate.step_seconds, 5 * 0.003, 1e-4);
  EXPECT_NEAR(estimate.stage_seconds[1], 0.003, 1e-6);
}

TEST(EstimateRun, SlowsAWorkerUnderAQuota) {
  const RunEstimate estimate =
      Estimated(Job(50), kAlone, [](DeviceProfile& profile) {
        profile.cpu_share = 0.4;
        profile.quota_period_seconds = 0.005;
      });

  EXPECT_NEAR(estimate.step_seconds, 50 * 0.006 / 0.4, 0.006);
}

// Under a quota the clock shows of a stage what its frames take of the budget,
// and what it saves while it waits: what bounds a plan must show neither.
TEST(EstimateRun, LayersAreAsProfiledWhateverFramesCost) {
  const RunEstimate estimate =
      Estimated(Job(50), kPair, [](DeviceProfile& profile) {
        profile.cpu_share = 0.4;
        profile.quota_period_seconds = 0.005;
        profile.frame_seconds = 2e-4;
      });

  ASSERT_EQ(estimate.layer_seconds.size(), 2u);
  EXPECT_NEAR(estimate.layer_seconds[0], 0.003 / 0.4, 1e-9);
  EXPECT_NEAR(estimate.layer_seconds[1], 0.003 / 0.4, 1e-9);
  EXPECT_GT(std::abs(estimate.stage_seconds[0] - estimate.layer_seconds[0]),
            1e-4);
}

TEST(EstimateRun, LayersOfAStreamHaveTheirUpdates) {
  const auto seconds = [](const std::string& schedule) {
    JobSpec spec = Job(4);
    spec.pipeline.schedule = schedule;
    return Estimated(spec, kPair,
                     [](DeviceProfile& profile) {
                       profile.layers[0].update_seconds = 0.001;
                       profile.cpu_share = 0.5;
                       profile.quota_period_seconds = 0.005;
                     })
        .layer_seconds;
  };

  EXPECT_NEAR(seconds("gpipe")[0], 0.006, 1e-9);
  EXPECT_NEAR(seconds("pipedream")[0], 0.006 + 0.002, 1e-9);
  EXPECT_NEAR(seconds("pipedream")[1], 0.006, 1e-9);
}

// A stage's work is just about one period of its quota: with every stop at the
// same time steps would differ by 7 % for periods that hardly differ.
TEST(EstimateRun, DoesNotFallIntoStepWithAQuota) {
  double least = 1e9, most = 0;
  for (int i = 0; i < 20; ++i) {
    const double seconds = Estimated(Job(4), {{{0, 2}, 0}, {{2, 4}, 1}},
                                     [&](DeviceProfile& profile) {
                                       profile.cpu_share = 0.4;
                                       profile.quota_period_seconds =
                                           0.014 + 0.0002 * i;
                                       profile.frame_seconds = 1e-4;
                                     })
                               .step_seconds;
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
  EXPECT_LT(most / least, 1.05) << least << " to " << most;
}

TEST(EstimateRun, CarriesLongStepsOn) {
  EXPECT_NEAR(Estimated(Job(100'000), kPair).step_seconds, 100'001 * 0.003,
              0.3);
}

TEST(EstimateRun, SplitsAWorkersTimeAmongItsStages) {
  const RunEstimate estimate = Estimated(Job(2), {{{0, 1}, 0}, {{1, 3}, 0}});

  EXPECT_NEAR(estimate.stage_seconds[0], 0.003, 1e-9);
  EXPECT_NEAR(estimate.stage_seconds[1], 0.006, 1e-9);
}

// The micro-batches of a step that is too long to simulate are cut to a
// multiple of the workers.
TEST(EstimateRun, KnowsInterleavedStages) {
  for (const int micro_batches : {4, 100'000}) {
    JobSpec spec = Job(micro_batches);
    spec.pipeline.schedule = "interleaved-1f1b";
    const RunEstimate estimate =
        Estimated(spec, {{{0, 1}, 0}, {{1, 2}, 1}, {{2, 3}, 0}, {{3, 4}, 1}});

    // Two stages each, and half of 1f1b's bubble.
    EXPECT_NEAR(estimate.step_seconds, micro_batches * 0.006 + 0.003,
                1e-4 * micro_batches);
    EXPECT_NEAR(estimate.stage_seconds[2], 0.003, 1e-5);
  }
}

TEST(EstimateRun, OfAStreamHasNoBubble) {
  JobSpec spec = Job(50);
  spec.pipeline.schedule = "pipedream";

  EXPECT_NEAR(Estimated(spec, kPair).step_seconds, 50 * 0.003, 1e-4);
}

TEST(EstimateRun, CountsTheForwardsThatBackwardsBeginWith) {
  JobSpec spec = Job(4);
  spec.train.activation_checkpointing = "stage";

  EXPECT_NEAR(Estimated(spec, kAlone).step_seconds, 4 * (0.006 + 0.002), 1e-9);
}

// One worker of the first stage holds two replicas of the second up.
TEST(EstimateRun, SharesAStageAmongReplicas) {
  JobSpec spec = Job(1);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 8;
  spec.infer.samples = 800;
  spec.train = ForInference(spec.infer, 1);

  const RunEstimate alone = Estimated(spec, {{{0, 1}, 0}, {{1, 3}, 1}});
  const RunEstimate shared =
      Estimated(spec, {{{0, 1}, 0}, {{1, 3}, 1}, {{1, 3}, 2}});

  EXPECT_NEAR(alone.step_seconds, 0.201, 1e-3);
  EXPECT_NEAR(shared.step_seconds, 0.102, 1e-3);
  ASSERT_EQ(shared.stage_seconds.size(), 3u);
  EXPECT_NEAR(shared.stage_seconds[0], 0.001, 1e-6);
  EXPECT_NEAR(shared.stage_seconds[1], 0.002, 1e-6) << "of its own ones";
  EXPECT_NEAR(shared.stage_seconds[2], 0.002, 1e-6);
}

}  // namespace
}  // namespace paceline

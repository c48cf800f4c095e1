#include "core/simulate/estimate.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/small_model.h"

namespace paceline {
namespace {

JobSpec Job(int64_t micro_batches) {
  JobSpec spec;
  spec.train.batch = 8 * micro_batches;
  spec.train.micro_batch = 8;
  return spec;
}

// 1 ms forward and 2 ms backward a layer, CPU as wall.
Measurements Measured(const JobSpec& spec, const ModelDescription& model,
                      const std::vector<std::string>& workers) {
  Measurements measurements;
  for (const std::string& worker : workers) {
    DeviceProfile profile;
    profile.key = {ModelKey(spec.model, model.input, model.classes),
                   spec.train.micro_batch, "f32", spec.threads, worker};
    for (const Layer& layer : model.layers) {
      LayerMeasurement measured;
      measured.name = layer.name;
      measured.forward = {0.001, 0, 0.001};
      measured.backward = {0.002, 0, 0.002};
      profile.layers.push_back(measured);
    }
    measurements.profiles[profile.key] = profile;
    for (const std::string& other : workers) {
      measurements.links[{worker, other}] = {worker, other, 1e12, 0, 0};
    }
  }
  return measurements;
}

TEST(EstimateRun, AddsUpOneStage) {
  const JobSpec spec = Job(4);
  const ModelDescription model = SmallModel(2);

  const auto estimate = EstimateRun(spec, model, {{{0, 2}, 0}}, {{"a", "m", 0}},
                                    Measured(spec, model, {"a"}));

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_NEAR(estimate->step_seconds, 4 * 0.006, 1e-9);
  EXPECT_NEAR(estimate->stage_seconds[0], 0.006, 1e-9);
  EXPECT_NEAR(estimate->samples_per_second, 32 / 0.024, 1e-3);
  EXPECT_TRUE(estimate->measured);
}

TEST(EstimateRun, FillsAndDrainsAPipeline) {
  const JobSpec spec = Job(4);
  const ModelDescription model = SmallModel(2);

  const auto estimate = EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 2}, 1}},
                                    {{"a", "m", 0}, {"b", "m", 0}},
                                    Measured(spec, model, {"a", "b"}));

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_NEAR(estimate->step_seconds, 5 * 0.003, 1e-4);
  EXPECT_NEAR(estimate->stage_seconds[1], 0.003, 1e-6);
}

TEST(EstimateRun, SlowsAWorkerUnderAQuota) {
  const JobSpec spec = Job(50);
  const ModelDescription model = SmallModel(2);
  Measurements measurements = Measured(spec, model, {"a"});
  for (auto& [key, profile] : measurements.profiles) {
    profile.cpu_share = 0.4;
    profile.quota_period_seconds = 0.005;
  }

  const auto estimate =
      EstimateRun(spec, model, {{{0, 2}, 0}}, {{"a", "m", 0}}, measurements);

  EXPECT_NEAR(estimate->step_seconds, 50 * 0.006 / 0.4, 0.006);
}

// Under a quota the clock shows of a stage what its frames take of the budget,
// and what it saves while it waits: what bounds a plan must show neither.
TEST(EstimateRun, LayersAreAsProfiledWhateverFramesCost) {
  const JobSpec spec = Job(50);
  const ModelDescription model = SmallModel(2);
  Measurements measurements = Measured(spec, model, {"a", "b"});
  for (auto& [key, profile] : measurements.profiles) {
    profile.cpu_share = 0.4;
    profile.quota_period_seconds = 0.005;
    profile.frame_seconds = 2e-4;
  }

  const auto estimate =
      EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 2}, 1}},
                  {{"a", "m", 0}, {"b", "m", 0}}, measurements);

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  ASSERT_EQ(estimate->layer_seconds.size(), 2u);
  EXPECT_NEAR(estimate->layer_seconds[0], 0.003 / 0.4, 1e-9);
  EXPECT_NEAR(estimate->layer_seconds[1], 0.003 / 0.4, 1e-9);
  EXPECT_GT(std::abs(estimate->stage_seconds[0] - estimate->layer_seconds[0]),
            1e-4);
}

TEST(EstimateRun, LayersOfAStreamHaveTheirUpdates) {
  JobSpec spec = Job(4);
  const ModelDescription model = SmallModel(2);
  Measurements measurements = Measured(spec, model, {"a", "b"});
  for (auto& [key, profile] : measurements.profiles) {
    profile.layers[0].update_seconds = 0.001;
    profile.cpu_share = 0.5;
    profile.quota_period_seconds = 0.005;
  }
  const auto seconds = [&] {
    const auto estimate =
        EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 2}, 1}},
                    {{"a", "m", 0}, {"b", "m", 0}}, measurements);
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return estimate.ok() ? estimate->layer_seconds : std::vector<double>(2);
  };
  spec.pipeline.schedule = "gpipe";
  EXPECT_NEAR(seconds()[0], 0.006, 1e-9);
  spec.pipeline.schedule = "pipedream";
  EXPECT_NEAR(seconds()[0], 0.006 + 0.002, 1e-9);
  EXPECT_NEAR(seconds()[1], 0.006, 1e-9);
}

// A stage's work is just about one period of its quota: with every stop at the
// same time steps would differ by 7 % for periods that hardly differ.
TEST(EstimateRun, DoesNotFallIntoStepWithAQuota) {
  const JobSpec spec = Job(4);
  const ModelDescription model = SmallModel(4);
  Measurements measurements = Measured(spec, model, {"a", "b"});
  double least = 1e9, most = 0;
  for (int i = 0; i < 20; ++i) {
    for (auto& [key, profile] : measurements.profiles) {
      profile.cpu_share = 0.4;
      profile.quota_period_seconds = 0.014 + 0.0002 * i;
      profile.frame_seconds = 1e-4;
    }
    const auto estimate =
        EstimateRun(spec, model, {{{0, 2}, 0}, {{2, 4}, 1}},
                    {{"a", "m", 0}, {"b", "m", 0}}, measurements);
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    least = std::min(least, estimate->step_seconds);
    most = std::max(most, estimate->step_seconds);
  }
  EXPECT_LT(most / least, 1.05) << least << " to " << most;
}

TEST(EstimateRun, CarriesLongStepsOn) {
  const JobSpec spec = Job(100'000);
  const ModelDescription model = SmallModel(2);

  const auto estimate = EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 2}, 1}},
                                    {{"a", "m", 0}, {"b", "m", 0}},
                                    Measured(spec, model, {"a", "b"}));

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_NEAR(estimate->step_seconds, 100'001 * 0.003, 0.3);
}

TEST(EstimateRun, SplitsAWorkersTimeAmongItsStages) {
  const JobSpec spec = Job(2);
  const ModelDescription model = SmallModel(3);

  const auto estimate =
      EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 3}, 0}}, {{"a", "m", 0}},
                  Measured(spec, model, {"a"}));

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_NEAR(estimate->stage_seconds[0], 0.003, 1e-9);
  EXPECT_NEAR(estimate->stage_seconds[1], 0.006, 1e-9);
}

// The micro-batches of a step that is too long to simulate are cut to a
// multiple of the workers.
TEST(EstimateRun, KnowsInterleavedStages) {
  for (const int micro_batches : {4, 100'000}) {
    JobSpec spec = Job(micro_batches);
    spec.pipeline.schedule = "interleaved-1f1b";
    const ModelDescription model = SmallModel(4);

    const auto estimate = EstimateRun(
        spec, model, {{{0, 1}, 0}, {{1, 2}, 1}, {{2, 3}, 0}, {{3, 4}, 1}},
        {{"a", "m", 0}, {"b", "m", 0}}, Measured(spec, model, {"a", "b"}));

    ASSERT_TRUE(estimate.ok()) << estimate.status();
    // Two stages each, and half of 1f1b's bubble.
    EXPECT_NEAR(estimate->step_seconds, micro_batches * 0.006 + 0.003,
                1e-4 * micro_batches);
    EXPECT_NEAR(estimate->stage_seconds[2], 0.003, 1e-5);
  }
}

TEST(EstimateRun, OfAStreamHasNoBubble) {
  JobSpec spec = Job(50);
  spec.pipeline.schedule = "pipedream";
  const ModelDescription model = SmallModel(2);

  const auto estimate = EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 2}, 1}},
                                    {{"a", "m", 0}, {"b", "m", 0}},
                                    Measured(spec, model, {"a", "b"}));

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_NEAR(estimate->step_seconds, 50 * 0.003, 1e-4);
}

TEST(EstimateRun, CountsTheForwardsThatBackwardsBeginWith) {
  JobSpec spec = Job(4);
  const ModelDescription model = SmallModel(2);
  const Measurements measurements = Measured(spec, model, {"a"});
  spec.train.activation_checkpointing = "stage";

  const auto estimate =
      EstimateRun(spec, model, {{{0, 2}, 0}}, {{"a", "m", 0}}, measurements);

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_NEAR(estimate->step_seconds, 4 * (0.006 + 0.002), 1e-9);
}

// One worker of the first stage holds two replicas of the second up.
TEST(EstimateRun, SharesAStageAmongReplicas) {
  JobSpec spec = Job(1);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 8;
  spec.infer.samples = 800;
  spec.train = ForInference(spec.infer, 1);
  const ModelDescription model = SmallModel(3);
  const Measurements measured = Measured(spec, model, {"a", "b", "c"});
  const std::vector<InputWorker> workers = {
      {"a", "m", 0}, {"b", "m", 0}, {"c", "m", 0}};

  const auto alone =
      EstimateRun(spec, model, {{{0, 1}, 0}, {{1, 3}, 1}}, workers, measured);
  const auto shared = EstimateRun(
      spec, model, {{{0, 1}, 0}, {{1, 3}, 1}, {{1, 3}, 2}}, workers, measured);

  ASSERT_TRUE(alone.ok() && shared.ok()) << shared.status();
  EXPECT_NEAR(alone->step_seconds, 0.201, 1e-3);
  EXPECT_NEAR(shared->step_seconds, 0.102, 1e-3);
  ASSERT_EQ(shared->stage_seconds.size(), 3u);
  EXPECT_NEAR(shared->stage_seconds[0], 0.001, 1e-6);
  EXPECT_NEAR(shared->stage_seconds[1], 0.002, 1e-6) << "of its own ones";
  EXPECT_NEAR(shared->stage_seconds[2], 0.002, 1e-6);
}

}  // namespace
}  // namespace paceline

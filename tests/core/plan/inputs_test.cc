#include "core/plan/inputs.h"

#include "core/optim/optimizer.h"
#include "core/plan/stage_memory.h"
#include "core/plan/why.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

JobSpec Job() {
  JobSpec spec;
  spec.model.name = "lenet";
  spec.train.batch = 40;
  spec.train.micro_batch = 16;
  return spec;
}

// Every layer: forward 2 ms, backward 4 ms, half of it CPU.
DeviceProfile Profile(const JobSpec& spec, const ModelDescription& model,
                      const std::string& device) {
  DeviceProfile profile = ProfileOf(spec, model, device,
                                    {.name = "",
                                     .kind = "linear",
                                     .forward = {0.002, 0, 0.001},
                                     .backward = {0.004, 0, 0.002},
                                     .update_seconds = 1e-4,
                                     .flops = 1e6,
                                     .kept_bytes = 1000});
  profile.frame_seconds = 1e-4;
  return profile;
}

Measurements Keep(const std::vector<DeviceProfile>& profiles) {
  Measurements measurements;
  for (const DeviceProfile& profile : profiles) {
    measurements.profiles[profile.key] = profile;
  }
  return measurements;
}

// The inputs of a job on workers a and b, or on `a` alone, of machines m and n.
PlanInputs InputsOf(const JobSpec& spec, const ModelDescription& model,
                    const Measurements& measurements, bool with_b = false) {
  std::vector<InputWorker> workers = {{"a", "m", 0}};
  if (with_b) workers.push_back({"b", "n", 0});
  return MakePlanInputs(spec, model, workers, measurements);
}

TEST(PlanInputs, TakesWhatWasMeasured) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  Measurements measurements = Keep({Profile(spec, model, "a")});
  measurements.links[{"a", "b"}] = {"a", "b", 1e6, 0.01, 0};
  measurements.links[{"b", "a"}] = {"b", "a", 2e6, 0.02, 0};
  measurements.profiles.merge(Keep({Profile(spec, model, "b")}).profiles);

  const auto inputs = InputsOf(spec, model, measurements, /*with_b=*/true);

  EXPECT_TRUE(inputs.measured);
  EXPECT_FALSE(inputs.predicted.has_value());
  EXPECT_EQ(inputs.problem.micro_batches, 3);
  EXPECT_DOUBLE_EQ(inputs.problem.devices[0].layer_seconds[1], 0.006);
  EXPECT_DOUBLE_EQ(inputs.problem.layers[1].kept_bytes, 16 * 10)
      << "as described: the check of a plan counts so";
  EXPECT_DOUBLE_EQ(inputs.problem.links[1][0].bytes_per_second, 2e6);
  EXPECT_NE(inputs.problem.devices[0].machine,
            inputs.problem.devices[1].machine);
  EXPECT_TRUE(CheckProblem(inputs.problem).ok());
}

TEST(PlanInputs, TakesAWorkerThatIsSlowNowAsSlow) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  const Measurements measurements = Keep({Profile(spec, model, "a")});

  const auto inputs = MakePlanInputs(
      spec, model, {{"a", "m", 0, 3}, {"b", "n", 0, 2}}, measurements);
  const auto before =
      MakePlanInputs(spec, model, {{"a", "m", 0}, {"b", "n", 0}}, measurements);

  EXPECT_DOUBLE_EQ(inputs.problem.devices[0].layer_seconds[1], 0.018);
  EXPECT_DOUBLE_EQ(inputs.facts[0].update_seconds[1], 3e-4);
  EXPECT_DOUBLE_EQ(inputs.problem.devices[1].layer_seconds[1],
                   2 * before.problem.devices[1].layer_seconds[1])
      << "also where it is predicted";
}

TEST(PlanInputs, TakesNoiseBetweenLikeLayersForNoise) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  DeviceProfile profile = Profile(spec, model, "a");
  profile.layers[1].forward.wall *= 1.02;

  const auto inputs = InputsOf(spec, model, Keep({profile}));

  const std::vector<double>& seconds = inputs.problem.devices[0].layer_seconds;
  EXPECT_NEAR(seconds[0], seconds[1], 1e-5);
}

TEST(PlanInputs, CountsTheBytesThatTheCodecLeavesOfAllFloats) {
  JobSpec spec = Job();
  ModelDescription model = SmallModel(3);
  model.layers[0].output = {256};
  model.layers[0].output_bytes = 1024;
  model.layers[0].beside = {{DType::kU8, {10}}, {DType::kF32, {64}}};
  const auto bytes_of = [&](const std::string& codec) {
    spec.pipeline.codec = codec;
    return InputsOf(spec, model, {}).problem.layers[0].output_bytes;
  };

  EXPECT_DOUBLE_EQ(bytes_of("fp32"), 16.0 * (1024 + 10 + 256));
  EXPECT_DOUBLE_EQ(bytes_of("bf16"), 16.0 * (512 + 10 + 128));
  EXPECT_LT(bytes_of("int8"), 16.0 * (512 + 10 + 128));
}

TEST(PlanInputs, AByteCostsWhatItDidOverTheRealLinks) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  DeviceProfile a = Profile(spec, model, "a");
  a.frame_seconds_per_byte = 1e-9;
  DeviceProfile b = Profile(spec, model, "b");
  b.frame_seconds_per_byte = 9e-9;
  b.cpu_share = 0.5;
  Measurements measurements = Keep({a, b});
  measurements.links[{"a", "b"}] = {"a", "b", 1e6, 0.01, 0, 4e-9, 5e-9};
  measurements.links[{"b", "a"}] = {"b", "a", 2e6, 0.02, 0, 7e-9, 6e-9};
  measurements.links[{"a", "c"}] = {"a", "c", 2e6, 0.02, 0};  // not known

  const auto inputs = InputsOf(spec, model, measurements, /*with_b=*/true);

  const std::vector<Device>& devices = inputs.problem.devices;
  // The mean of sending to b and receiving from it.
  EXPECT_DOUBLE_EQ(devices[0].frame_seconds_per_byte, 5e-9);
  // Never less than inside the machine; at half a CPU it takes twice as long.
  EXPECT_DOUBLE_EQ(devices[1].frame_seconds_per_byte, 18e-9);
}

TEST(PlanInputs, StretchesCpuTimeByAQuota) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(2);
  DeviceProfile profile = Profile(spec, model, "a");
  profile.cpu_share = 0.25;
  profile.quota_period_seconds = 0.005;

  const auto inputs = InputsOf(spec, model, Keep({profile}));

  // (1 ms + 2 ms) of CPU at a quarter.
  EXPECT_DOUBLE_EQ(inputs.problem.devices[0].layer_seconds[0], 0.012);
  EXPECT_DOUBLE_EQ(inputs.problem.devices[0].frame_seconds, 4e-4);
  EXPECT_DOUBLE_EQ(inputs.facts[0].forward_seconds[0], 0.001);
}

TEST(PlanInputs, PredictsAWorkerThatDidNotMeasure) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);

  const auto inputs =
      InputsOf(spec, model, Keep({Profile(spec, model, "a")}), /*with_b=*/true);

  EXPECT_FALSE(inputs.measured);
  EXPECT_THAT(inputs.source, HasSubstr("measured on a"));
  EXPECT_THAT(inputs.source,
              HasSubstr("predicted from other measurements for b (90 % "
                        "between "));
  ASSERT_TRUE(inputs.predicted.has_value());
  EXPECT_FALSE(inputs.predicted->assumed);
  EXPECT_LT(inputs.predicted->low_factor, 1);
  EXPECT_GT(inputs.predicted->high_factor, 1);
  EXPECT_GT(inputs.problem.devices[1].layer_seconds[0], 0);
}

TEST(FewNames, CountsThoseThatNobodyWouldRead) {
  EXPECT_EQ(FewNames({"a", "b", "c", "d"}), "a, b, c, d");
  EXPECT_EQ(FewNames({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more");
}

TEST(PlanInputs, FallsBackToFlopsAndSaysSo) {
  const JobSpec spec = Job();
  const auto model = Value(DescribeModel(spec.model, {1, 28, 28}, 10));

  const auto inputs = InputsOf(spec, model, {});

  EXPECT_THAT(inputs.source,
              HasSubstr("assumed from FLOPs for a (how far off they are is not "
                        "known)"));
  ASSERT_TRUE(inputs.predicted.has_value());
  EXPECT_TRUE(inputs.predicted->assumed);
  const double flops = model.layers[0].forward_flops * 16;
  EXPECT_DOUBLE_EQ(inputs.problem.devices[0].layer_seconds[0],
                   3 * flops / kAssumedFlopsPerSecond);
}

// The further from what was measured, the less is known.
TEST(PlanInputs, IntervalsAreWiderFarFromWhatWasMeasured) {
  JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  const Measurements measurements = Keep({Profile(spec, model, "a")});
  const auto width = [&](int64_t micro_batch) {
    spec.train.micro_batch = micro_batch;
    const auto inputs = InputsOf(spec, model, measurements);
    return inputs.predicted->high_factor / inputs.predicted->low_factor;
  };

  const double near = width(2 * spec.train.micro_batch);
  const double far = width(1000 * spec.train.micro_batch);

  EXPECT_GT(far, near);
}

TEST(PlanInputs, WhatIsBorrowedHasNoStateOfTheOptimizer) {
  JobSpec spec = Job();
  spec.model.name = "gpt";
  spec.train.optimizer.name = "adamw";
  const auto model = Value(DescribeModel(spec.model, {8}, 16));

  const auto inputs = InputsOf(spec, model, {});

  const PlanProblem& problem = inputs.problem;
  EXPECT_EQ(problem.owner_copies, StateSlots(spec.train.optimizer));
  EXPECT_EQ(problem.parameter_copies, 2 + problem.owner_copies);
  const Layer& user = model.layers[SharedParameters(model)[0].user];
  const LayerCost& cost = problem.layers[SharedParameters(model)[0].user];
  ASSERT_GT(user.borrowed_bytes, 0);
  EXPECT_EQ(cost.borrowed_bytes, static_cast<double>(user.borrowed_bytes));
  EXPECT_EQ(cost.parameter_bytes,
            static_cast<double>(user.parameter_bytes + user.borrowed_bytes));
}

// No gradient, no optimizer, no round, and less to go back through.
TEST(PlanInputs, FrozenLayersCostLess) {
  JobSpec spec = Job();
  spec.model.name = "gpt";
  const auto all = Value(DescribeModel(spec.model, {8}, 16));
  const auto whole = InputsOf(spec, all, {});
  spec.model.lora.rank = 2;
  const auto model = Value(DescribeModel(spec.model, {8}, 16));
  const auto inputs = InputsOf(spec, model, {});

  const LayerCost& cost = inputs.problem.layers[1];  // an attention
  const int64_t weights = all.layers[1].parameter_bytes;
  const int64_t adapters = model.layers[1].parameter_bytes - weights;
  EXPECT_EQ(cost.parameter_bytes, static_cast<double>(adapters));
  EXPECT_EQ(cost.frozen_bytes, static_cast<double>(weights));
  EXPECT_THAT(inputs.problem.ties, testing::IsEmpty());
  EXPECT_EQ(inputs.problem.layers[0].backward_seconds, 0);
  EXPECT_LT(cost.backward_seconds,
            0.7 * whole.problem.layers[1].backward_seconds);
  EXPECT_LT(StageBytes(inputs.problem, {0, 3}, {}),
            StageBytes(whole.problem, {0, 3}, {}));
}

// The backward of a frozen layer says nothing of others' backwards.
TEST(PlanInputs, BackwardsOfFrozenLayersTeachNothing) {
  JobSpec spec = Job();
  ModelDescription model = SmallModel(2);
  const auto backwards = [&] {
    DeviceProfile profile = Profile(spec, model, "a");
    for (size_t i = 0; i < model.layers.size(); ++i) {
      profile.layers[i].kind = ProfileKind(model.layers[i]);
    }
    int count = 0;
    for (const LayerRecord& record : RecordsOf(Keep({profile}))) {
      EXPECT_EQ(record.work.kind, MainOperation(model.layers[0]));
      count += record.work.pass == LayerPass::kBackward ? 1 : 0;
    }
    return count;
  };

  EXPECT_EQ(backwards(), 2);
  model.layers[0].backward_share = 0.5;
  EXPECT_EQ(backwards(), 1);
}

TEST(PlanInputs, IgnoresAProfileOfAnotherNumberOfLayers) {
  const JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  DeviceProfile profile = Profile(spec, model, "a");
  profile.layers.pop_back();

  const auto inputs = InputsOf(spec, model, Keep({profile}));

  EXPECT_FALSE(inputs.measured);
}

TEST(PlanInputs, TakesTimesOfTheJobsOwnPrecision) {
  JobSpec spec = Job();
  const ModelDescription model = SmallModel(3);
  const Measurements fp32 = Keep({Profile(spec, model, "a")});
  DeviceProfile profile = Profile(spec, model, "a");
  profile.key.dtype = "bf16";
  const Measurements bf16 = Keep({profile});
  const auto measured = [&](const Measurements& measurements) {
    return InputsOf(spec, model, measurements).measured;
  };

  EXPECT_TRUE(measured(fp32));
  EXPECT_FALSE(measured(bf16));
  spec.precision = "bf16";
  EXPECT_FALSE(measured(fp32));
  EXPECT_TRUE(measured(bf16));
}

TEST(PlanInputs, ARecomputingBackwardTakesItsForwardToo) {
  JobSpec spec = Job();
  const ModelDescription model = SmallModel(4);
  const Measurements measurements = Keep({Profile(spec, model, "a")});
  spec.pipeline.stages = 1;
  spec.train.activation_checkpointing = "every-2";

  const auto inputs = InputsOf(spec, model, measurements);

  EXPECT_TRUE(inputs.measured);
  EXPECT_DOUBLE_EQ(inputs.facts[0].forward_seconds[1], 0.002);
  EXPECT_DOUBLE_EQ(inputs.facts[0].backward_seconds[1], 0.006);
  EXPECT_DOUBLE_EQ(inputs.problem.devices[0].layer_seconds[1], 0.008);
  EXPECT_DOUBLE_EQ(inputs.problem.layers[1].backward_seconds, 0.006);
}

TEST(PlanInputs, ATeachersForwardComesWithTheForward) {
  JobSpec spec = Job();
  ModelDescription model = SmallModel(4);
  const Measurements measurements = Keep({Profile(spec, model, "a")});
  for (Layer& layer : model.layers) layer.forward_flops = 1e6;
  ModelDescription teacher = model;
  for (Layer& layer : teacher.layers) layer.forward_flops *= 3;
  model.teacher = std::make_shared<const ModelDescription>(teacher);

  const auto inputs = InputsOf(spec, model, measurements);

  EXPECT_DOUBLE_EQ(inputs.facts[0].forward_seconds[1], 0.008);
  EXPECT_DOUBLE_EQ(inputs.facts[0].backward_seconds[1], 0.004);
}

}  // namespace
}  // namespace paceline

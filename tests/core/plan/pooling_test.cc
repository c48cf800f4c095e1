#include "core/plan/pooling.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

// Two layers; CPU times, half of the wall times, where `share` is below 1.
DeviceProfile Profile(const std::string& device, double seconds,
                      double share = 0.5) {
  DeviceProfile profile;
  profile.key.device = device;
  profile.cpu_model = "Cortex-A76";
  profile.cpu_capability = "neon";
  profile.cpu_share = share;
  for (const double part : {0.25, 0.75}) {
    LayerMeasurement layer;
    layer.forward = {2 * part * seconds / 3, 0, part * seconds / 3};
    layer.backward = {4 * part * seconds / 3, 0, 2 * part * seconds / 3};
    profile.layers.push_back(layer);
  }
  return profile;
}

double Sum(const DeviceProfile& profile, double MeasuredSeconds::*time) {
  double sum = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    sum += layer.forward.*time + layer.backward.*time;
  }
  return sum;
}

double CpuSum(const DeviceProfile& profile) {
  return Sum(profile, &MeasuredSeconds::cpu);
}

double WallSum(const DeviceProfile& profile) {
  return Sum(profile, &MeasuredSeconds::wall);
}

TEST(LikeDevices, NoiseBetweenMachinesOfOneKindVanishes) {
  const auto pooled = PoolLikeDevices(
      {Profile("a", 0.98), Profile("b", 1), Profile("c", 1.02)});
  for (const DeviceProfile& profile : pooled) {
    EXPECT_NEAR(CpuSum(profile), 1, 0.002) << profile.key.device;
  }
}

TEST(LikeDevices, TheLuckiestProfileIsNotBelieved) {
  const auto pooled = PoolLikeDevices(
      {Profile("a", 1), Profile("b", 1), Profile("c", 1), Profile("d", 0.9)});
  for (const DeviceProfile& profile : pooled) {
    EXPECT_NEAR(CpuSum(profile), 0.975, 1e-9) << profile.key.device;
  }
}

TEST(LikeDevices, OfTwoSortsStayApartAndSaySo) {
  std::vector<LikeDevices> like;
  const auto pooled =
      PoolLikeDevices({Profile("a", 0.95), Profile("hot", 1.4),
                       Profile("b", 1.05), Profile("warm", 1.36)},
                      &like);

  EXPECT_NEAR(CpuSum(pooled[0]), 1, 1e-9);
  EXPECT_NEAR(CpuSum(pooled[1]), 1.38, 1e-9);
  EXPECT_NEAR(CpuSum(pooled[3]), 1.38, 1e-9)
      << "one of a sort with the hot one";
  ASSERT_EQ(like.size(), 2u);
  EXPECT_EQ(like[0].devices, (std::set<std::string>{"a", "b"}));
  EXPECT_NEAR(like[0].spread, 1.05 / 0.95 - 1, 1e-9);
  EXPECT_EQ(like[0].apart, 0);
  EXPECT_NEAR(like[1].apart, 0.38, 1e-9);
}

// How much longer the second of two machines takes once they were pooled; runs
// of each layer lie `spread` apart.
double Pooled(double slowness, double spread, int layers) {
  std::vector<DeviceProfile> profiles = {Profile("a", 1, 1),
                                         Profile("b", slowness, 1)};
  for (DeviceProfile& profile : profiles) {
    const LayerMeasurement first = profile.layers[0];
    profile.layers.resize(layers, first);
    for (LayerMeasurement& layer : profile.layers) {
      layer.forward.spread = spread * layer.forward.wall;
      layer.backward.spread = spread * layer.backward.wall;
    }
  }
  profiles = PoolLikeDevices(profiles);
  return WallSum(profiles[1]) / WallSum(profiles[0]);
}

// Whose runs lie far apart says less about itself.
TEST(LikeDevices, WhatRunsOfOneMachineDifferByIsNoise) {
  EXPECT_NEAR(Pooled(1.22, 0.01, 2), 1.22, 1e-9);
  EXPECT_NEAR(Pooled(1.22, 0.2, 2), 1, 1e-9);
}

TEST(LikeDevices, RunsOfManyLayersAreNotAllOffTheSameWay) {
  EXPECT_NEAR(Pooled(1.22, 0.2, 24), 1.22, 1e-9);
  EXPECT_NEAR(Pooled(1.18, 0.2, 24), 1, 1e-9);
}

TEST(LikeDevices, WhatTakesAThirdLongerIsSlowerHoweverFarRunsLieApart) {
  EXPECT_NEAR(Pooled(1.35, 2, 1), 1.35, 1e-9);
  EXPECT_NEAR(Pooled(1.29, 2, 1), 1, 1e-9);
}

// Profiles of other models, batches or numbers of layers are not mixed.
TEST(LikeDevices, OnlyProfilesOfOneKeyArePooled) {
  DeviceProfile other_batch = Profile("b", 1.04);
  other_batch.key.micro_batch = 8;
  DeviceProfile shorter = Profile("c", 1.04);
  shorter.layers.pop_back();
  const std::vector<DeviceProfile> profiles = {Profile("a", 1), other_batch,
                                               shorter};

  EXPECT_EQ(PoolLikeDevices(profiles), profiles);
}

TEST(LikeDevices, OnlyMachinesOfOneKindArePooled) {
  DeviceProfile other_model = Profile("b", 1.04);
  other_model.cpu_model = "Cortex-A72";
  DeviceProfile other_capability = Profile("c", 1.04);
  other_capability.cpu_capability = "default";
  DeviceProfile unknown = Profile("d", 1.04);
  unknown.cpu_model.clear();
  DeviceProfile unknown_too = Profile("e", 1.08);
  unknown_too.cpu_model.clear();
  for (const std::vector<DeviceProfile>& profiles :
       {std::vector<DeviceProfile>{Profile("a", 1), other_model,
                                   other_capability, unknown, unknown_too},
        // CPU time under a quota is not mixed with wall time.
        {Profile("quota", 1), Profile("bare", 1.04, 1)},
        // A model without times.
        {Profile("a", 0), Profile("b", 0)},
        {}}) {
    EXPECT_EQ(PoolLikeDevices(profiles), profiles);
  }
}

TEST(LikeDevices, SharesDoNotMatterToCpuTime) {
  const auto pooled =
      PoolLikeDevices({Profile("a", 1.02, 0.2), Profile("b", 0.98, 0.4)});
  EXPECT_NEAR(CpuSum(pooled[0]), CpuSum(pooled[1]), 0.01);
  EXPECT_EQ(pooled[0].cpu_share, 0.2);
  EXPECT_EQ(pooled[1].cpu_share, 0.4);
}

TEST(LikeDevices, WithoutAQuotaWallTimeCounts) {
  const auto pooled =
      PoolLikeDevices({Profile("a", 1, 1), Profile("b", 1.02, 1)});
  EXPECT_NEAR(WallSum(pooled[0]), WallSum(pooled[1]), 0.01);
  EXPECT_NEAR(CpuSum(pooled[0]), 1, 1e-12);
}

TEST(LikeDevices, FramesCostWhatTheyCostTheKind) {
  DeviceProfile a = Profile("a", 1), b = Profile("b", 1);
  a.frame_seconds = 1e-4, b.frame_seconds = 3e-4;
  a.frame_seconds_per_byte = 1e-10, b.frame_seconds_per_byte = 2e-10;
  a.gate_seconds = 1e-4, b.gate_seconds = 2e-4;
  for (const DeviceProfile& profile : PoolLikeDevices({a, b})) {
    EXPECT_DOUBLE_EQ(profile.frame_seconds, 2e-4);
    EXPECT_DOUBLE_EQ(profile.frame_seconds_per_byte, 1.5e-10);
    EXPECT_DOUBLE_EQ(profile.gate_seconds, 1.5e-4);
  }
}

LayerMeasurement Block(const std::string& name, double seconds) {
  LayerMeasurement layer;
  layer.name = name;
  layer.kind = "linear";
  layer.forward = {2 * seconds, 0.01, seconds};
  layer.backward = {4 * seconds, 0.02, 2 * seconds};
  layer.update_seconds = seconds / 10;
  layer.flops = 1e9;
  layer.output_bytes = 1 << 20;
  layer.parameter_bytes = 7 << 20;
  layer.kept_bytes = 5 << 20;
  return layer;
}

DeviceProfile Blocks(const std::vector<double>& seconds) {
  DeviceProfile profile;
  for (const double each : seconds) {
    profile.layers.push_back(
        Block("blocks." + std::to_string(profile.layers.size()), each));
  }
  return profile;
}

// Largest over smallest.
template <typename Value>
double Spread(const DeviceProfile& profile, Value value) {
  std::vector<double> values;
  for (const LayerMeasurement& layer : profile.layers) {
    values.push_back(value(layer));
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *most / *least;
}

TEST(LikeLayers, NoiseBetweenLayersOfOneKindVanishes) {
  DeviceProfile profile = Blocks({0.99, 1.01, 1, 1.02, 0.98});
  PoolLikeLayers(profile);
  double sum = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    EXPECT_NEAR(layer.forward.cpu, 1, 0.005) << layer.name;
    EXPECT_NEAR(layer.forward.wall, 2, 0.01) << layer.name;
    EXPECT_NEAR(layer.backward.cpu, 2, 0.01) << layer.name;
    EXPECT_NEAR(layer.backward.wall, 4, 0.02) << layer.name;
    EXPECT_NEAR(layer.update_seconds, 0.1, 0.0005) << layer.name;
    sum += layer.forward.cpu;
  }
  EXPECT_NEAR(sum, 5, 0.01) << "the whole takes as long as it did";
}

TEST(LikeLayers, ALayerThatReallyTakesLongerStaysSo) {
  DeviceProfile profile = Blocks({1, 1, 1.5, 1, 1});
  PoolLikeLayers(profile);
  EXPECT_NEAR(profile.layers[2].forward.cpu, 1.5, 0.01);
  EXPECT_NEAR(profile.layers[0].forward.cpu, 1, 0.005);
}

// One sort of time that is off does not draw the others with it.
TEST(LikeLayers, SortsOfTimesArePooledApart) {
  DeviceProfile profile = Blocks({1, 1.02, 0.98});
  profile.layers[1].backward.wall = 40;
  PoolLikeLayers(profile);
  EXPECT_NEAR(profile.layers[1].backward.wall, 40, 0.1);
  EXPECT_NEAR(profile.layers[0].backward.wall, 4, 0.05);
  EXPECT_LT(Spread(profile, [](const auto& l) { return l.backward.cpu; }),
            1.01);
}

TEST(LikeLayers, OnlyEqualWorkIsPooled) {
  DeviceProfile profile = Blocks({1, 1.04, 1.01, 1.05, 1.02, 1.03});
  profile.layers[1].kind = "self_attention";
  profile.layers[2].flops *= 2;
  profile.layers[3].output_bytes += 4;
  profile.layers[4].parameter_bytes += 4;
  profile.layers[5].kept_bytes += 4;
  const DeviceProfile before = profile;
  PoolLikeLayers(profile);
  EXPECT_EQ(profile, before);

  DeviceProfile without_flops = Blocks({1, 1.04});
  for (LayerMeasurement& layer : without_flops.layers) layer.flops = 0;
  const DeviceProfile same = without_flops;
  PoolLikeLayers(without_flops);
  EXPECT_EQ(without_flops, same);
}

TEST(LikeLayers, TimesOfZeroStayZero) {
  DeviceProfile profile = Blocks({1, 1.02});
  for (LayerMeasurement& layer : profile.layers) layer.backward = {};
  PoolLikeLayers(profile);
  for (const LayerMeasurement& layer : profile.layers) {
    EXPECT_EQ(layer.backward, MeasuredSeconds());
  }
  DeviceProfile empty;
  PoolLikeLayers(empty);
  EXPECT_TRUE(empty.layers.empty());
}

}  // namespace
}  // namespace paceline

#include "core/plan/like_layers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

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
  for (const LayerMeasurement& layer : profile.layers) {
    EXPECT_NEAR(layer.forward.cpu, 1, 0.005) << layer.name;
    EXPECT_NEAR(layer.forward.wall, 2, 0.01) << layer.name;
    EXPECT_NEAR(layer.backward.cpu, 2, 0.01) << layer.name;
    EXPECT_NEAR(layer.backward.wall, 4, 0.02) << layer.name;
    EXPECT_NEAR(layer.update_seconds, 0.1, 0.0005) << layer.name;
  }
}

TEST(LikeLayers, TheWholeTakesAsLongAsItDid) {
  DeviceProfile profile = Blocks({0.99, 1.01, 1, 1.02, 0.98, 1});
  PoolLikeLayers(profile);
  double sum = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    sum += layer.forward.cpu;
  }
  EXPECT_NEAR(sum, 6, 0.01);
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
}

TEST(LikeLayers, LayersWithoutFlopsAreLeftAlone) {
  DeviceProfile profile = Blocks({1, 1.04});
  for (LayerMeasurement& layer : profile.layers) layer.flops = 0;
  const DeviceProfile before = profile;
  PoolLikeLayers(profile);
  EXPECT_EQ(profile, before);
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

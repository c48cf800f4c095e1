#include <string>

#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelDescription Mlp(std::vector<int32_t> hidden) {
  ModelSpec spec;
  spec.name = "mlp";
  spec.hidden = std::move(hidden);
  return DescribeModel(spec, {2, 3}, 3).value();
}

StateLayout LaidOut(const ModelDescription& model, const std::string& name,
                    double momentum = 0) {
  OptimizerSpec optimizer;
  optimizer.name = name;
  optimizer.momentum = momentum;
  return LayOutState(model, optimizer).value();
}

std::vector<std::string> Names(const StateLayout& layout) {
  std::vector<std::string> names;
  for (const TensorPlace& place : layout.file.tensors) {
    names.push_back(place.name);
  }
  return names;
}

TEST(LayOutState, PutsTheOptimizersSlotsBehindEachParameter) {
  const ModelDescription model = Mlp({4});
  const std::string weight = model.layers[0].parameters[0].name;
  const std::string bias = model.layers[0].parameters[1].name;

  const std::vector<std::string> plain = Names(LaidOut(model, "sgd"));
  const std::vector<std::string> adamw = Names(LaidOut(model, "adamw"));

  ASSERT_EQ(plain.size(), 4u);
  ASSERT_EQ(adamw.size(), 12u);
  EXPECT_THAT(
      std::vector<std::string>(adamw.begin(), adamw.begin() + 6),
      ElementsAre(weight, weight + ".optimizer.0", weight + ".optimizer.1",
                  bias, bias + ".optimizer.0", bias + ".optimizer.1"));
}

TEST(LayOutState, ALayerIsOneRangeAndTheRangesFillTheFile) {
  const StateLayout layout = LaidOut(Mlp({5, 4}), "sgd", 0.9);

  auto next = static_cast<int64_t>(layout.file.header.size());
  for (const StateLayout::Range& range : layout.layers) {
    EXPECT_EQ(range.offset, next);
    next += range.bytes;
  }
  EXPECT_EQ(next, layout.file.file_bytes);
}

// No tensor's shape shows it.
TEST(CheckSameState, RefusesWhatGivesOtherResults) {
  StateLayout has = LaidOut(Mlp({4}), "sgd");
  StateLayout wants = has;
  has.made_with = {{"data.mean", "[0.5]"}, {"model.dropout", "0.1"}};
  wants.made_with = {{"data.mean", "[0.5]"}, {"model.dropout", "0"}};
  EXPECT_EQ(CheckSameState(has, wants), absl::OkStatus());

  wants.made_with["data.mean"] = "[0]";

  EXPECT_THAT(std::string(CheckSameState(has, wants).message()),
              HasSubstr("data.mean [0.5], and the job has [0]"));
}

TEST(CheckSameState, NamesTheFirstDifference) {
  const StateLayout has = LaidOut(Mlp({5, 4}), "adamw");

  EXPECT_TRUE(CheckSameState(has, LaidOut(Mlp({5, 4}), "adamw")).ok());
  EXPECT_THAT(CheckSameState(has, LaidOut(Mlp({5}), "adamw")).message(),
              HasSubstr("it has 3 layers, the job's model has 2"));
  EXPECT_THAT(CheckSameState(has, LaidOut(Mlp({5, 6}), "adamw")).message(),
              HasSubstr("of F32[4,5] where the job's model has"));
  EXPECT_THAT(CheckSameState(has, LaidOut(Mlp({5, 4}), "sgd")).message(),
              HasSubstr(".optimizer.0 of F32[5,6] where the job's model has"));
}

}  // namespace
}  // namespace paceline

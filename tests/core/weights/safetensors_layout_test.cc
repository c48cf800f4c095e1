#include "core/weights/safetensors_layout.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TensorPlace Place(std::string name, DType dtype, Shape shape) {
  TensorPlace place;
  place.name = std::move(name);
  place.dtype = dtype;
  place.shape = std::move(shape);
  return place;
}

// The header's JSON without its padding.
std::string Json(const SafetensorsLayout& layout) {
  std::string json = layout.header.substr(8);
  json.erase(json.find_last_not_of(' ') + 1);
  return json;
}

std::string Refusal(std::vector<TensorPlace> tensors) {
  const auto layout = LayOut(std::move(tensors), {});
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(layout.status().message());
}

TEST(LayOut, WritesTheHeaderThatTheFormatAsksFor) {
  const auto layout =
      LayOut({Place("b", DType::kF32, {2, 3}), Place("a", DType::kI64, {})},
             {{"format", "pt"}, {"by", "us"}})
          .value();

  EXPECT_EQ(Json(layout),
            R"({"__metadata__":{"by":"us","format":"pt"},)"
            R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
            R"("a":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})");
}

TEST(LayOut, BeginsWithTheLengthOfThePaddedJsonInLittleEndian) {
  for (int name = 1; name < 20; ++name) {
    const auto layout =
        LayOut({Place(std::string(name, 'n'), DType::kF32, {1})}, {}).value();

    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) {
      length = length << 8 | static_cast<uint8_t>(layout.header[i]);
    }

    EXPECT_EQ(length + 8, layout.header.size());
    EXPECT_EQ(layout.header.size() % 8, 0u);
  }
}

TEST(LayOut, PlacesTensorsEndToEndBehindTheHeader) {
  const auto layout =
      LayOut({Place("a", DType::kU8, {3}), Place("b", DType::kF32, {0}),
              Place("c", DType::kBF16, {5})},
             {})
          .value();

  const auto header = static_cast<int64_t>(layout.header.size());
  EXPECT_EQ(layout.tensors[0].offset, header);
  EXPECT_EQ(layout.tensors[1].offset, header + 3);
  EXPECT_EQ(layout.tensors[1].bytes, 0);
  EXPECT_EQ(layout.tensors[2].offset, header + 3);
  EXPECT_EQ(layout.tensors[2].bytes, 10);
  EXPECT_EQ(layout.file_bytes, header + 13);
}

TEST(LayOut, EscapesNamesAsJsonDoes) {
  const auto layout =
      LayOut({Place("a\"b\\c\n\x01é", DType::kF32, {1})}, {}).value();

  EXPECT_THAT(Json(layout), StartsWith(R"({"a\"b\\c\u000a\u0001é":)"));
}

TEST(LayOut, TakesNoTensorsAtAll) {
  const auto layout = LayOut(std::vector<TensorPlace>(), {}).value();

  EXPECT_EQ(Json(layout), "{}");
  EXPECT_EQ(layout.file_bytes, 16);
}

TEST(LayOut, RefusesANameTwice) {
  EXPECT_THAT(
      Refusal({Place("a", DType::kF32, {1}), Place("a", DType::kF32, {2})}),
      HasSubstr("\"a\""));
  EXPECT_THAT(Refusal({Place("__metadata__", DType::kF32, {1})}),
              HasSubstr("__metadata__"));
}

TEST(LayOut, RefusesImpossibleSizes) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 4;
  EXPECT_THAT(Refusal({Place("a", DType::kF32, {2, -1})}), HasSubstr("\"a\""));
  EXPECT_THAT(Refusal({Place("a", DType::kF32, {kHuge, 2})}),
              HasSubstr("impossible size"));
  EXPECT_THAT(Refusal({Place("a", DType::kU8, {kHuge, 3}),
                       Place("b", DType::kU8, {kHuge, 3})}),
              HasSubstr("\"b\""));
  EXPECT_THAT(Refusal({Place("a", DType::kU8, {kHuge, 4}),
                       Place("b", DType::kU8, {3})}),
              HasSubstr("do not fit"));
  EXPECT_THAT(Refusal({Place("a", DType::kUnspecified, {1})}),
              HasSubstr("no dtype"));
}

TEST(LayOut, TakesAModelsParametersAndBuffersInLayerOrder) {
  ModelDescription model;
  model.name = "two";
  model.layers.resize(2);
  model.layers[0].parameters = {{"z.weight", {2, 3}, true},
                                {"z.bias", {2}, true}};
  model.layers[1].parameters = {{"a.running_mean", {4}, false}};

  const auto layout = LayOut(model).value();

  ASSERT_EQ(layout.tensors.size(), 3u);
  EXPECT_EQ(layout.tensors[0].name, "z.weight");
  EXPECT_EQ(layout.tensors[1].name, "z.bias");
  EXPECT_EQ(layout.tensors[2].name, "a.running_mean");
  EXPECT_EQ(layout.file_bytes,
            static_cast<int64_t>(layout.header.size()) + 24 + 8 + 16);
  EXPECT_THAT(Json(layout), StartsWith(R"({"__metadata__":)"
                                       R"({"format":"pt","model":"two"})"));
}

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

#include <algorithm>
#include <string>
#include <vector>

#include "core/model/catalog.h"
#include "core/model/initialize.h"
#include "core/model/operation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec Spec(int32_t depth = 3) {
  ModelSpec spec = DefaultModel("gnmt");
  spec.depth = depth;
  spec.width = 8;
  return spec;
}

std::string WhyNotGnmt(const ModelSpec& spec, const Shape& input, int classes) {
  const auto model = DescribeModel(spec, input, classes);
  EXPECT_TRUE(model.ok() || absl::IsInvalidArgument(model.status()));
  return model.ok() ? "nothing" : std::string(model.status().message());
}

TEST(Gnmt, HasALayerForEachLstmAndOneForAttention) {
  const ModelDescription model = DescribeModel(Spec(), {12}, 20).value();

  std::vector<std::string> names;
  for (const Layer& layer : model.layers) names.push_back(layer.name);
  EXPECT_THAT(
      names, ElementsAre("encoder.embed", "encoder.0", "encoder.1", "encoder.2",
                         "decoder.embed", "decoder.0", "decoder.attention",
                         "decoder.1", "decoder.2", "classifier"));
  EXPECT_EQ(model.input_dtype, DType::kI64);
  EXPECT_EQ(model.vocabulary, 20);
  EXPECT_EQ(model.classes, 20);
  EXPECT_EQ(model.label_shape, Shape{6});
  EXPECT_EQ(model.layers.back().output, (Shape{6, 20}));
}

// Eight LSTM layers of 1024, as MLPerf and PipeDream trained it.
TEST(Gnmt, ReachesTheSizeThatIsKnownByItsName) {
  ModelSpec spec = DefaultModel("gnmt");
  spec.depth = 4;
  spec.width = 1024;
  const ModelDescription model = DescribeModel(spec, {100}, 32320).value();

  int64_t values = 0;
  for (const Layer& layer : model.layers) values += layer.parameter_bytes / 4;
  const auto lstm = [](int64_t in) { return 4 * 1024 * (in + 1024 + 2); };
  const int64_t width = 1024;
  EXPECT_EQ(values, 2 * 32320 * width +    // tables
                        2 * lstm(width) +  // both directions
                        lstm(2 * width) +  //
                        2 * lstm(width) +  // rest of the encoder
                        lstm(width) +      // first of the decoder
                        2 * width * width + 2 * width + 1 +  // attention
                        3 * lstm(2 * width) +  // rest of the decoder
                        32320 * (width + 1));  // scores
}

TEST(Gnmt, SeveralTensorsCrossABoundaryAndTheFloatsComeBack) {
  const ModelDescription model = DescribeModel(Spec(), {12}, 20).value();
  const SampleTensor states{DType::kF32, {6, 8}};
  const SampleTensor mask{DType::kU8, {6}};
  const SampleTensor target{DType::kI64, {6}};

  EXPECT_THAT(BoundaryTensors(model.layers[0]),
              ElementsAre(states, mask, target));
  EXPECT_THAT(GradientTensors(model.layers[0]), ElementsAre(states));
  EXPECT_THAT(BoundaryTensors(model.layers[4]),
              ElementsAre(states, mask, states))
      << "the encoder's output goes beside";
  EXPECT_THAT(GradientTensors(model.layers[5]), ElementsAre(states, states));
  EXPECT_THAT(BoundaryTensors(model.layers[6]), ElementsAre(states, states))
      << "the context alone";
  EXPECT_THAT(BoundaryTensors(model.layers[7]), ElementsAre(states, states));
  EXPECT_THAT(BoundaryTensors(model.layers[8]), ElementsAre(states))
      << "nobody needs it any more";
  EXPECT_EQ(model.layers[5].output_bytes, 6 * 8 * 4 + 6 + 6 * 8 * 4);
}

TEST(Gnmt, ImpossibleSizesAreRefusedWithBothNumbers) {
  EXPECT_THAT(WhyNotGnmt(Spec(0), {12}, 20),
              HasSubstr("depth must be from 2 to"));
  EXPECT_THAT(WhyNotGnmt(Spec(1), {12}, 20), HasSubstr("got 1"));
  EXPECT_EQ(WhyNotGnmt(Spec(2), {12}, 20), "nothing");
  ModelSpec spec = Spec();
  spec.width = 0;
  EXPECT_THAT(WhyNotGnmt(spec, {12}, 20), HasSubstr("width must be from 1"));
  spec = Spec();
  spec.vocabulary = 10;
  EXPECT_THAT(WhyNotGnmt(spec, {12}, 20),
              HasSubstr("knows 10 tokens, the data set has 20"));
  EXPECT_THAT(WhyNotGnmt(Spec(), {11}, 20), HasSubstr("samples of shape [11]"));
  EXPECT_THAT(WhyNotGnmt(Spec(), {1, 28, 28}, 20), HasSubstr("[1, 28, 28]"));
  EXPECT_EQ(WhyNotGnmt(Spec(), {2}, 2), "nothing") << "the smallest there is";
}

TEST(Gnmt, OperationsRefuseWhatDoesNotFit) {
  const auto refused = [](const Operation& operation, const Shape& input) {
    return !ExamineOperation(operation, input).ok();
  };

  EXPECT_TRUE(refused({"split_pair", "", {0}}, {5}));
  EXPECT_TRUE(refused({"split_pair", "", {-1}}, {6}));
  EXPECT_TRUE(refused({"lstm", "a", {4, 3}}, {5, 3}));
  EXPECT_TRUE(refused({"lstm", "a", {4}}, {5, 4}));
  EXPECT_TRUE(refused({"bidirectional_lstm", "a", {4, 0}}, {5, 4}));
  EXPECT_TRUE(refused({"take_target", "", {4}}, {5, 3}));
  EXPECT_TRUE(refused({"additive_attention", "a", {4}}, {5}));
  EXPECT_TRUE(refused({"join_context", "", {4}}, {5, 3}));
  EXPECT_TRUE(refused({"score_tokens", "a", {4, 9}}, {4}));
  EXPECT_FALSE(refused({"lstm", "a", {4, 3}}, {5, 4}));
}

TEST(Gnmt, BeginsWithGatesThatCountAsFourMatricesAndNoBias) {
  const ModelDescription model = DescribeModel(Spec(), {12}, 20).value();
  const Layer& layer = model.layers[5];
  std::vector<std::vector<float>> values;
  std::vector<absl::Span<float>> spans;
  for (const Parameter& parameter : layer.parameters) {
    values.emplace_back(NumElements(parameter.shape), 7.0f);
  }
  for (auto& each : values) spans.push_back(absl::MakeSpan(each));

  InitializeLayer(layer, 1, 5, spans);

  // Glorot of [8, 8]: uniform within sqrt(6 / 16).
  const auto [least, most] =
      std::minmax_element(values[0].begin(), values[0].end());
  EXPECT_NEAR(*most, 0.612, 0.02);
  EXPECT_NEAR(*least, -0.612, 0.02);
  EXPECT_EQ(values[2], std::vector<float>(32, 0.0f));
  EXPECT_EQ(values[3], std::vector<float>(32, 0.0f));
}

}  // namespace
}  // namespace paceline

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

ModelSpec Spec(int32_t depth = 3) {
  ModelSpec spec = DefaultModel("gnmt");
  spec.depth = depth;
  spec.width = 8;
  return spec;
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

#include "worker/pipeline/predictions.h"

#include <cstring>
#include <limits>

#include "core/model/predictions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
Tensor Make(DType dtype, Shape shape, const std::vector<T>& values) {
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
  std::memcpy(tensor.data.get(), values.data(), values.size() * sizeof(T));
  return tensor;
}

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Make(DType::kF32, std::move(shape), values);
}

Tensor Labels(Shape shape, const std::vector<int64_t>& values) {
  return Make(DType::kI64, std::move(shape), values);
}

TEST(Predictions, AreTheHighestOutputsFirstOfEquals) {
  Predictions predictions(/*keep_outputs=*/true);
  ASSERT_TRUE(
      predictions
          .Add(4, Floats({2, 3}, {0, 2, 1, 5, 5, 5}), Labels({2}, {1, 2}))
          .ok());
  ASSERT_TRUE(
      predictions.Add(9, Floats({1, 3}, {-3, -2, -1}), Labels({1}, {-100}))
          .ok());

  EXPECT_EQ(predictions.samples(), 3);
  const std::vector<TensorPart> all = predictions.Take();
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].name, "classes");
  EXPECT_THAT(all[0].tensor.As<int64_t>(), ElementsAre(1, 0));
  EXPECT_EQ(all[0].offset_bytes, 4 * 8);
  EXPECT_THAT(all[1].tensor.As<int64_t>(), ElementsAre(1, 2));
  EXPECT_THAT(all[2].tensor.shape, ElementsAre(2, 3));
  EXPECT_EQ(all[2].offset_bytes, 4 * 3 * 4);
  EXPECT_THAT(all[3].tensor.As<int64_t>(), ElementsAre(2));
  EXPECT_EQ(all[3].offset_bytes, 9 * 8);
  EXPECT_THAT(all[5].tensor.As<float>(), ElementsAre(-3, -2, -1));
}

TEST(Predictions, OfNaNAreNoClassAndCounted) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Predictions predictions(/*keep_outputs=*/true);
  ASSERT_TRUE(predictions
                  .Add(0, Floats({3, 2}, {1, 2, kNaN, 5, kNaN, kNaN}),
                       Labels({3}, {1, -100, -100}))
                  .ok());

  EXPECT_EQ(predictions.without_class(), 2);
  EXPECT_THAT(predictions.Take()[0].tensor.As<int64_t>(),
              ElementsAre(1, kNoClass, kNoClass));
}

TEST(Predictions, OfTokensHaveAClassEach) {
  Predictions predictions(/*keep_outputs=*/false);
  ASSERT_TRUE(
      predictions
          .Add(0, Floats({1, 2, 2}, {0, 1, 1, 0}), Labels({1, 2}, {1, 1}))
          .ok());

  const std::vector<TensorPart> all = predictions.Take();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0].tensor.shape, ElementsAre(1, 2));
  EXPECT_THAT(all[0].tensor.As<int64_t>(), ElementsAre(1, 0));
}

TEST(Predictions, RefuseWhatDoesNotFit) {
  Predictions predictions(true);
  const absl::Status labels =
      predictions.Add(0, Floats({2, 2}, {0, 1, 1, 0}), Labels({1}, {1}));
  EXPECT_TRUE(absl::IsInvalidArgument(labels));
  EXPECT_THAT(std::string(labels.message()), HasSubstr("[2, 2]"));

  ASSERT_TRUE(
      predictions.Add(0, Floats({1, 2}, {0, 1}), Labels({1}, {1})).ok());
  const absl::Status width =
      predictions.Add(0, Floats({1, 3}, {0, 1, 2}), Labels({1}, {1}));
  EXPECT_TRUE(absl::IsInvalidArgument(width));
  EXPECT_THAT(std::string(width.message()), HasSubstr("after samples of [2]"));
  EXPECT_EQ(predictions.samples(), 1);
}

// A class, a label and three outputs: 28 bytes a sample.
TEST(Predictions, RefuseTheFirstWhereNotAllHaveRoom) {
  const auto add = [](bool outputs, int64_t expected, int64_t most_bytes) {
    Predictions predictions(outputs, most_bytes);
    predictions.Expect(expected);
    return predictions.Add(0, Floats({1, 3}, {0, 2, 1}), Labels({1}, {1}));
  };
  EXPECT_TRUE(add(true, 10, 280).ok());
  EXPECT_TRUE(add(false, 10, 160).ok());
  EXPECT_TRUE(add(true, 10, 0).ok()) << "nobody knows how much there is";

  const absl::Status outputs = add(true, 10, 279);
  EXPECT_TRUE(absl::IsResourceExhausted(outputs)) << outputs;
  EXPECT_THAT(
      std::string(outputs.message()),
      AllOf(HasSubstr("10 samples"), HasSubstr("28 bytes"), HasSubstr("279"),
            HasSubstr("infer.samples"), HasSubstr("infer.outputs: false")));
  const absl::Status classes = add(false, 10, 159);
  EXPECT_TRUE(absl::IsResourceExhausted(classes)) << classes;
  EXPECT_THAT(std::string(classes.message()), Not(HasSubstr("infer.outputs")));
  EXPECT_TRUE(absl::IsResourceExhausted(
      add(true, std::numeric_limits<int64_t>::max(), 280)));
}

// The worker hands over what the coordinator has made room for.
TEST(Predictions, AreLaidOutAsTheyAre) {
  ModelSpec spec;
  spec.name = "mlp";
  spec.hidden = {4};
  const ModelDescription model = DescribeModel(spec, {1, 2, 2}, 3).value();
  for (const bool outputs : {true, false}) {
    Predictions predictions(outputs);
    ASSERT_TRUE(
        predictions
            .Add(0, Floats({2, 3}, {0, 2, 1, 5, 5, 5}), Labels({2}, {1, 2}))
            .ok());
    const SafetensorsLayout layout =
        LayOutPredictions(model, {.outputs = outputs}, 2).value();

    const std::vector<TensorPart> all = predictions.Take();
    ASSERT_EQ(layout.tensors.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(layout.tensors[i].name, all[i].name);
      EXPECT_EQ(layout.tensors[i].dtype, all[i].tensor.dtype);
      EXPECT_EQ(layout.tensors[i].shape, all[i].tensor.shape);
    }
  }
}

}  // namespace
}  // namespace paceline

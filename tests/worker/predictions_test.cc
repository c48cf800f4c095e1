#include "worker/pipeline/predictions.h"

#include <cstring>
#include <limits>
#include <optional>

#include "core/data/data_sets.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// Keeps all that it is given.
class Sink final : public PredictionSink {
 public:
  absl::Status Add(std::vector<TensorPart> parts,
                   const std::optional<v1::PredictedMark>& mark) override {
    for (TensorPart& part : parts) all.push_back(std::move(part));
    if (mark.has_value()) marks.push_back(*mark);
    return answer;
  }

  std::vector<TensorPart> all;
  std::vector<v1::PredictedMark> marks;
  absl::Status answer;
};

class PredictionsTest : public ::testing::Test {
 protected:
  absl::Status Add(int64_t first, const Tensor& outputs, const Tensor& labels,
                   bool keep_outputs = true) {
    if (!predictions_.has_value()) {
      predictions_.emplace(keep_outputs, Turns(), sink_);
    }
    return predictions_->Add(BatchInfo(), first, outputs, labels, LossSums());
  }

  Sink sink_;
  std::optional<Predictions> predictions_;
};

TEST_F(PredictionsTest, AreTheHighestOutputsFirstOfEquals) {
  ASSERT_TRUE(
      Add(4, Floats({2, 3}, {0, 2, 1, 5, 5, 5}), Labels({2}, {1, 2})).ok());
  ASSERT_TRUE(Add(9, Floats({1, 3}, {-3, -2, -1}), Labels({1}, {-100})).ok());

  EXPECT_EQ(predictions_->samples(), 3);
  const std::vector<TensorPart>& all = sink_.all;
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

TEST_F(PredictionsTest, OfNaNAreNoClassAndCounted) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(Add(0, Floats({3, 2}, {1, 2, kNaN, 5, kNaN, kNaN}),
                  Labels({3}, {1, -100, -100}))
                  .ok());

  EXPECT_EQ(predictions_->without_class(), 2);
  EXPECT_THAT(sink_.all[0].tensor.As<int64_t>(),
              ElementsAre(1, kNoClass, kNoClass));
}

TEST_F(PredictionsTest, OfTokensHaveAClassEachAndNoLabels) {
  ASSERT_TRUE(Add(0, Floats({1, 2, 2}, {0, 1, 1, 0}), Labels({1, 2}, {1, 1}),
                  /*keep_outputs=*/false)
                  .ok());

  ASSERT_EQ(sink_.all.size(), 2u);
  EXPECT_THAT(sink_.all[0].tensor.shape, ElementsAre(1, 2));
  EXPECT_THAT(sink_.all[0].tensor.As<int64_t>(), ElementsAre(1, 0));
  // These are the text that a job asks about.
  EXPECT_EQ(sink_.all[1].name, kPredictedLabels);
  EXPECT_THAT(sink_.all[1].tensor.As<int64_t>(),
              ElementsAre(kNoLabel, kNoLabel));
}

TEST_F(PredictionsTest, RefuseWhatDoesNotFit) {
  ExpectError(Add(0, Floats({2, 2}, {0, 1, 1, 0}), Labels({1}, {1})),
              absl::StatusCode::kInvalidArgument, HasSubstr("[2, 2]"));
  ASSERT_TRUE(Add(0, Floats({1, 2}, {0, 1}), Labels({1}, {1})).ok());
  ExpectError(Add(0, Floats({1, 3}, {0, 1, 2}), Labels({1}, {1})),
              absl::StatusCode::kInvalidArgument,
              HasSubstr("after samples of [2]"));
  EXPECT_EQ(predictions_->samples(), 1);
}

TEST_F(PredictionsTest, EndWithTheErrorOfWhoTakesThem) {
  sink_.answer = absl::ResourceExhaustedError("the disk is full");

  EXPECT_EQ(Add(0, Floats({1, 2}, {0, 1}), Labels({1}, {1})), sink_.answer);
}

ModelDescription ThreeClasses() {
  ModelSpec spec;
  spec.name = "mlp";
  spec.hidden = {4};
  return DescribeModel(spec, {1, 2, 2}, 3).value();
}

// The worker hands over what the coordinator has made room for.
TEST(Predictions, AreLaidOutAsTheyAre) {
  for (const bool outputs : {true, false}) {
    Sink sink;
    Predictions predictions(outputs, Turns(), sink);
    ASSERT_TRUE(predictions
                    .Add(BatchInfo(), 0, Floats({2, 3}, {0, 2, 1, 5, 5, 5}),
                         Labels({2}, {1, 2}), LossSums())
                    .ok());
    const SafetensorsLayout layout =
        LayOutPredictions(ThreeClasses(), {.outputs = outputs}, 2).value();

    const std::vector<TensorPart>& all = sink.all;
    ASSERT_EQ(layout.tensors.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(layout.tensors[i].name, all[i].name);
      EXPECT_EQ(layout.tensors[i].dtype, all[i].tensor.dtype);
      EXPECT_EQ(layout.tensors[i].shape, all[i].tensor.shape);
    }
  }
}

TEST(Predictions, SayOfEachRowWithoutWhichBlocksItWasMade) {
  JobSpec job;
  job.model = DefaultModel("vit");
  job.model.depth = 2;
  job.infer.tolerate = "skip";
  ModelDescription model = DescribeModel(job).value();
  EXPECT_EQ(SkippedRow(model, job.infer), (std::vector<uint8_t>{0, 0}));
  EXPECT_TRUE(SkippedRow(model, {}).empty());
  SkipBlock(model, 1);
  const std::vector<uint8_t> row = SkippedRow(model, {});
  Sink sink;

  Predictions predictions(false, Turns(), sink, row);
  ASSERT_TRUE(predictions
                  .Add(BatchInfo(), 4, Floats({2, 3}, {0, 2, 1, 5, 5, 5}),
                       Labels({2}, {1, 2}), LossSums())
                  .ok());

  const TensorPart& part = sink.all.back();
  EXPECT_EQ(part.name, kPredictedSkipped);
  EXPECT_EQ(part.offset_bytes, 8);
  const uint8_t* const rows = part.tensor.data.get();
  EXPECT_EQ(std::vector<uint8_t>(rows, rows + 4),
            (std::vector<uint8_t>{0, 1, 0, 1}));
  const SafetensorsLayout layout =
      LayOutPredictions(model, {.outputs = false}, 6).value();
  EXPECT_EQ(layout.tensors.back().name, kPredictedSkipped);
  EXPECT_EQ(layout.tensors.back().shape, (Shape{6, 2}));
}

TEST(Predictions, HaveRoomForNamesBehindThem) {
  const auto last = [](const PredictedNameBytes& names) {
    const SafetensorsLayout layout =
        LayOutPredictions(ThreeClasses(), {}, 2, names).value();
    const TensorPlace& place = layout.tensors.back();
    return absl::StrCat(layout.tensors.size(), " ", place.name, " ",
                        place.bytes);
  };

  EXPECT_EQ(last({}), "3 outputs 24");
  EXPECT_EQ(last({.files = 9}), "4 files 9");
  EXPECT_EQ(last({.files = 9, .class_names = 5}), "5 class_names 5");
}

// The marks of a replica that walks over its turns of `total` micro-batches,
// each with one label.
std::vector<std::pair<int64_t, int64_t>> MarksOf(const Turns& turns,
                                                 int64_t first, int64_t total) {
  Sink sink;
  Predictions predictions(false, turns, sink);
  for (int64_t at = turns.Next(first); at < total; at = turns.Next(at + 1)) {
    BatchInfo batch;
    batch.ordinal = at;
    batch.total_micro_batches = total;
    EXPECT_TRUE(predictions
                    .Add(batch, at, Floats({1, 2}, {0, 1}), Labels({1}, {1}),
                         {.loss = 1, .correct = 1, .samples = 1})
                    .ok());
  }
  std::vector<std::pair<int64_t, int64_t>> marks;
  for (const v1::PredictedMark& mark : sink.marks) {
    EXPECT_EQ(mark.correct(), mark.labels());
    EXPECT_EQ(mark.loss(), static_cast<double>(mark.labels()));
    marks.emplace_back(mark.through(), mark.labels());
  }
  return marks;
}

using Marks = std::vector<std::pair<int64_t, int64_t>>;  // (through, labels)

TEST(Predictions, HaveAMarkAfterEveryMicroBatchOfOneWorker) {
  EXPECT_EQ(MarksOf(Turns(), 0, 3), (Marks{{1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(MarksOf(Turns(), 2, 4), (Marks{{3, 1}, {4, 2}}));
}

TEST(Predictions, HaveMarksOfReplicasAtTheSamePlaces) {
  const RouteTable route({1, 0, 1});  // marks at multiples of 9
  EXPECT_EQ(MarksOf({route, 0}, 0, 22), (Marks{{9, 3}, {18, 6}, {22, 7}}));
  EXPECT_EQ(MarksOf({route, 1}, 0, 22), (Marks{{9, 6}, {18, 12}, {22, 15}}));
  EXPECT_EQ(MarksOf({route, 1}, 17, 22), (Marks{{18, 1}, {22, 4}}));
}

TEST_F(PredictionsTest, CountSamplesWhoseOutputsAreNoNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  BatchInfo batch;
  batch.total_micro_batches = 2;
  Predictions predictions(false, Turns(), sink_);
  // Two rows a sample.
  ASSERT_TRUE(predictions
                  .Add(batch, 0,
                       Floats({3, 2, 2}, {1, 2, 3, 4,             //
                                          1, kNan, kNan, 4,       //
                                          -kInfinity, 2, 3, 4}),  // no class
                       Labels({3, 2}, {0, 0, 0, 0, 0, 0}), LossSums())
                  .ok());
  ++batch.ordinal;
  ASSERT_TRUE(predictions
                  .Add(batch, 3, Floats({1, 2, 2}, {1, kInfinity, 3, 4}),
                       Labels({1, 2}, {0, 0}), LossSums())
                  .ok());

  EXPECT_EQ(sink_.marks.front().not_finite(), 1);
  EXPECT_EQ(sink_.marks.back().not_finite(), 2);
}

}  // namespace
}  // namespace paceline

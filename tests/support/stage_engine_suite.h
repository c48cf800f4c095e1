// What every StageEngine promises, for any implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Fake, StageEngineSuite, Values(MakeFake));
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/stage_engine.h"

namespace paceline {

using EngineMaker =
    absl::StatusOr<std::unique_ptr<StageEngine>> (*)(const EngineOptions&);

class StageEngineSuite : public ::testing::TestWithParam<EngineMaker> {
 protected:
  static constexpr int64_t kSamples = 4;

  // Layers [first, last) of an mlp of three layers over [2, 3] samples.
  EngineOptions Options(int stage, int stages, LayerRange layers) {
    ModelSpec model;
    model.name = "mlp";
    model.hidden = {5, 4};
    EngineOptions options;
    options.model = DescribeModel(model, {2, 3}, 3).value();
    options.layers = layers;
    options.train.seed = 7;
    options.train.batch = 2 * kSamples;
    options.train.micro_batch = kSamples;
    options.train.optimizer.name = "adamw";
    options.stage = stage;
    options.stages = stages;
    return options;
  }
  int Layers() {
    return static_cast<int>(Options(0, 1, {0, 1}).model.layers.size());
  }

  std::unique_ptr<StageEngine> Make(const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<StageEngine>> engine = GetParam()(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  std::unique_ptr<StageEngine> Whole() {
    return Make(Options(0, 1, {0, Layers()}));
  }

  static BatchInfo Batch(BatchPhase phase = BatchPhase::kTrain,
                         int micro_batches = 1) {
    BatchInfo batch;
    batch.phase = phase;
    batch.micro_batches = micro_batches;
    batch.samples = micro_batches * kSamples;
    return batch;
  }

  // Forward and backward of one micro-batch, and what the gate hears.
  StepReport ReportOfOne(StageEngine& engine) {
    EXPECT_TRUE(engine.Forward(Batch(), 0, Input()).ok());
    EXPECT_TRUE(engine.Backward(Batch(), 0, {}).ok());
    const auto report = engine.Report(Batch());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(StepReport());
  }

  static TensorList Input() {
    Tensor samples = Tensor::Allocate(DType::kF32, {kSamples, 2, 3});
    Tensor labels = Tensor::Allocate(DType::kI64, {kSamples});
    for (int64_t i = 0; i < kSamples * 6; ++i) {
      samples.As<float>()[i] = 0.25f * static_cast<float>(i % 5) - 0.5f;
    }
    for (int64_t i = 0; i < kSamples; ++i) labels.As<int64_t>()[i] = i % 3;
    return {samples, labels};
  }

  static std::vector<std::vector<uint8_t>> Bytes(StageEngine& engine) {
    std::vector<std::vector<uint8_t>> bytes;
    const auto weights = engine.Weights();
    EXPECT_TRUE(weights.ok()) << weights.status();
    for (const NamedTensor& weight : *weights) {
      const uint8_t* data = weight.tensor.data.get();
      bytes.emplace_back(data, data + weight.tensor.bytes());
    }
    return bytes;
  }

  static StepVerdict Go() {
    StepVerdict verdict;
    verdict.gradient_scale = 0.25f;
    verdict.learning_rate = 0.1f;
    verdict.bias_correction1 = 0.1f;
    verdict.bias_correction2_sqrt = 0.03f;
    return verdict;
  }
};

TEST_P(StageEngineSuite, PassesLabelsOnUntouched) {
  const auto engine = Make(Options(0, 2, {0, 1}));
  const TensorList input = Input();

  const auto result = engine->Forward(Batch(), 0, input);

  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->loss.has_value());
  ASSERT_EQ(result->output.size(), 2u);
  EXPECT_EQ(result->output[1].data, input[1].data);
  EXPECT_EQ(result->output[0].shape.front(), kSamples);
}

TEST_P(StageEngineSuite, SumsTheLossOnTheLastStage) {
  const auto result = Whole()->Forward(Batch(), 0, Input());

  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->loss.has_value());
  EXPECT_EQ(result->loss->samples, kSamples);
  EXPECT_GT(result->loss->loss, 0);
  EXPECT_TRUE(result->output.empty());
}

TEST_P(StageEngineSuite, RefusesBackwardWithoutForward) {
  EXPECT_EQ(Whole()->Backward(Batch(), 0, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(StageEngineSuite, KeepsNothingOfAnEvaluation) {
  const auto engine = Whole();
  const BatchInfo batch = Batch(BatchPhase::kEvaluate);
  ASSERT_TRUE(engine->Forward(batch, 0, Input()).ok());

  EXPECT_EQ(engine->Backward(batch, 0, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(StageEngineSuite, RefusesAWrongNumberOfTensors) {
  TensorList input = Input();
  input.pop_back();

  EXPECT_EQ(Whole()->Forward(Batch(), 0, input).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(StageEngineSuite, RefusesAWrongShape) {
  TensorList input = Input();
  input[0].shape = {kSamples, 3, 2};

  EXPECT_EQ(Whole()->Forward(Batch(), 0, input).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(StageEngineSuite, RefusesAWrongDtype) {
  TensorList input = Input();
  input[0].dtype = DType::kI32;

  EXPECT_EQ(Whole()->Forward(Batch(), 0, input).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(StageEngineSuite, RefusesAnOutputGradientOfAnotherShape) {
  const auto engine = Make(Options(0, 2, {0, 1}));
  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());

  EXPECT_EQ(
      engine
          ->Backward(Batch(), 0, {Tensor::Allocate(DType::kF32, {kSamples, 2})})
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_P(StageEngineSuite, ReportsWhatTheSumCovers) {
  const auto engine = Whole();
  const BatchInfo batch = Batch(BatchPhase::kTrain, 2);
  for (const int micro_batch : {0, 1}) {
    ASSERT_TRUE(engine->Forward(batch, micro_batch, Input()).ok());
    const auto gradient = engine->Backward(batch, micro_batch, {});
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    EXPECT_TRUE(gradient->empty()) << "the first stage has nobody to send to";
  }

  const auto report = engine->Report(batch);

  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2 * kSamples);
  EXPECT_TRUE(report->finite);
  EXPECT_FALSE(report->squared_norms.empty());
  EXPECT_GT(report->squared_norms.back(), 0);
}

TEST_P(StageEngineSuite, StartsTheNextSumFromZero) {
  const auto engine = Whole();
  StepVerdict skip = Go();
  skip.skip = true;
  const StepReport first = ReportOfOne(*engine);
  ASSERT_TRUE(engine->Apply(skip).ok());

  EXPECT_EQ(ReportOfOne(*engine), first);
}

TEST_P(StageEngineSuite, ChangesWeightsWhenAppliedAndKeepsThemWhenSkipped) {
  const auto engine = Whole();
  const auto before = Bytes(*engine);
  StepVerdict skip = Go();
  skip.skip = true;

  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());
  ASSERT_TRUE(engine->Backward(Batch(), 0, {}).ok());
  ASSERT_TRUE(engine->Apply(skip).ok());
  EXPECT_EQ(Bytes(*engine), before);

  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());
  ASSERT_TRUE(engine->Backward(Batch(), 0, {}).ok());
  ASSERT_TRUE(engine->Apply(Go()).ok());
  EXPECT_NE(Bytes(*engine), before);
}

TEST_P(StageEngineSuite, TakesWeightsByNameAndComputesWithThem) {
  const auto donor = Whole();
  EngineOptions options = Options(0, 1, {0, Layers()});
  options.train.seed = 8;
  const auto engine = Make(options);
  ASSERT_NE(Bytes(*engine), Bytes(*donor));

  std::vector<NamedTensor> weights = donor->Weights().value();
  std::reverse(weights.begin(), weights.end());
  const absl::Status set = engine->SetWeights(weights);

  ASSERT_TRUE(set.ok()) << set;
  EXPECT_EQ(Bytes(*engine), Bytes(*donor));
  EXPECT_EQ(ReportOfOne(*engine), ReportOfOne(*donor));
}

TEST_P(StageEngineSuite, WritesNothingWhenOneTensorDoesNotFit) {
  const auto engine = Whole();
  const auto before = Bytes(*engine);
  std::vector<NamedTensor> weights = {engine->Weights().value().front()};
  weights[0].tensor = Tensor::Allocate(DType::kF32, weights[0].tensor.shape);
  for (float& value : weights[0].tensor.As<float>()) value = 7;

  for (const NamedTensor& bad :
       {NamedTensor{"nobody.weight", weights[0].tensor},
        NamedTensor{weights[0].name, Tensor::Allocate(DType::kF32, {1})},
        NamedTensor{weights[0].name,
                    Tensor::Allocate(DType::kI32, weights[0].tensor.shape)}}) {
    const absl::Status set = engine->SetWeights({weights[0], bad});
    EXPECT_TRUE(absl::IsInvalidArgument(set)) << set;
  }
  EXPECT_EQ(Bytes(*engine), before);
}

TEST_P(StageEngineSuite, TakesNoWeightsInTheMiddleOfAStep) {
  const auto engine = Whole();
  const std::vector<NamedTensor> weights = engine->Weights().value();
  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());

  EXPECT_TRUE(absl::IsFailedPrecondition(engine->SetWeights(weights)));
}

TEST_P(StageEngineSuite, BeginsWithTheSameWeightsAtAnyCut) {
  const auto whole = Whole();
  const auto front = Make(Options(0, 2, {0, 1}));
  const auto back = Make(Options(1, 2, {1, Layers()}));

  std::vector<std::vector<uint8_t>> joined = Bytes(*front);
  for (const auto& bytes : Bytes(*back)) joined.push_back(bytes);

  EXPECT_EQ(joined, Bytes(*whole));
}

}  // namespace paceline

// Tests what every StageEngine promises, for any implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Fake, StageEngineSuite, Values(MakeFake));
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/data/data_sets.h"
#include "core/transfer/checksum.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/whole_state.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

using EngineMaker =
    absl::StatusOr<std::unique_ptr<StageEngine>> (*)(const EngineOptions&);

// An engine after some steps, and the gate's reports of these.
struct TrainedSteps {
  std::vector<std::vector<uint8_t>> weights;
  std::vector<StepReport> reports;
};

class StageEngineSuite : public ::testing::TestWithParam<EngineMaker> {
 protected:
  static constexpr int64_t kSamples = 4;

  // One stage of all layers.
  EngineOptions Options() { return Options(0, 1, {0, Layers()}); }
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
    return GetParam()(options).value();
  }
  std::unique_ptr<StageEngine> Whole() { return Make(Options()); }

  static BatchInfo Batch(BatchPhase phase = BatchPhase::kTrain,
                         int micro_batches = 1) {
    BatchInfo batch;
    batch.phase = phase;
    batch.micro_batches = micro_batches;
    batch.samples = micro_batches * kSamples;
    return batch;
  }

  // Forward and backward of the first micro-batch.
  static void Pass(StageEngine& engine, const BatchInfo& batch,
                   TensorList input, TensorList gradient = {}) {
    EXPECT_TRUE(engine.Forward(batch, 0, std::move(input)).ok());
    EXPECT_TRUE(engine.Backward(batch, 0, std::move(gradient)).ok());
  }

  // The same, and what the gate hears.
  StepReport ReportOfOne(StageEngine& engine) {
    Pass(engine, Batch(), Input());
    return engine.Report(Batch()).value();
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

  // A batch of one micro-batch.
  static BatchInfo Ordinal(int64_t ordinal) {
    BatchInfo batch = Batch();
    batch.ordinal = ordinal;
    return batch;
  }

  // A stage takes this, other values for another micro-batch.
  TensorList InputOf(const EngineOptions& options, int micro_batch) {
    const ModelDescription& model = options.model;
    const int first = options.layers.first;
    TensorList input = Input();
    if (first > 0) input[0] = Values(model.layers[first - 1].output, 0.3f);
    for (float& value : input[0].As<float>()) {
      value += 0.07f * static_cast<float>(micro_batch);
    }
    return input;
  }

  // d(losses)/d(output); none where the stage is the last.
  TensorList GradientOf(const EngineOptions& options) {
    if (options.stage + 1 == options.stages) return {};
    const int last = options.layers.last;
    return {Values(options.model.layers[last - 1].output, -0.2f)};
  }

  static Tensor Values(const Shape& sample, float first) {
    Tensor tensor = Tensor::Allocate(DType::kF32, Batched(kSamples, sample));
    for (float& value : tensor.As<float>()) {
      value = first;
      first = first > 0.5f ? first - 1.0f : first + 0.11f;
    }
    return tensor;
  }

  static std::vector<uint8_t> BytesOf(const Tensor& tensor) {
    return {tensor.data.get(), tensor.data.get() + tensor.bytes()};
  }

  struct GradientAtOnce {
    std::vector<uint8_t> input;
    uint64_t result_hash = 0;
    std::vector<double> squared_norms;

    bool operator==(const GradientAtOnce&) const = default;
  };

  // The gradient of micro-batch 9, whose forward was made.
  GradientAtOnce BackwardOf(StageEngine& engine, const EngineOptions& options) {
    const auto gradient =
        engine.Backward(Ordinal(9), 0, GradientOf(options)).value();
    const auto report = engine.Report(Ordinal(9)).value();
    return {
        gradient.empty() ? std::vector<uint8_t>() : BytesOf(gradient.front()),
        report.result_hash, report.squared_norms};
  }
  GradientAtOnce Outcome(StageEngine& engine, const EngineOptions& options) {
    EXPECT_TRUE(engine.Forward(Ordinal(9), 0, InputOf(options, 9)).ok());
    return BackwardOf(engine, options);
  }

  static std::vector<std::vector<uint8_t>> Bytes(StageEngine& engine) {
    std::vector<std::vector<uint8_t>> bytes;
    const auto weights = engine.Weights().value();
    for (const NamedTensor& weight : weights) {
      const uint8_t* data = weight.tensor.data.get();
      bytes.emplace_back(data, data + weight.tensor.bytes());
    }
    return bytes;
  }

  // All micro-batches of `batch` forward and backward.
  void Compute(StageEngine& engine, const EngineOptions& options,
               const BatchInfo& batch) {
    for (int i = 0; i < batch.micro_batches; ++i) {
      const int seed = i + static_cast<int>(batch.ordinal);
      ASSERT_TRUE(engine.Forward(batch, i, InputOf(options, seed)).ok());
      ASSERT_TRUE(engine.Backward(batch, i, {}).ok());
    }
  }

  TrainedSteps Train(StageEngine& engine, const EngineOptions& options,
                     int64_t first, int64_t last) {
    TrainedSteps steps;
    for (int64_t step = first; step < last; ++step) {
      BatchInfo batch = Batch(BatchPhase::kTrain, 2);
      batch.ordinal = step;
      batch.step = step;
      Compute(engine, options, batch);
      const auto report = engine.Report(batch);
      EXPECT_TRUE(report.ok()) << report.status();
      steps.reports.push_back(report.value_or(StepReport()));
      EXPECT_TRUE(engine.Apply(Go()).ok());
    }
    steps.weights = Bytes(engine);
    return steps;
  }

  static std::vector<uint8_t> StateOf(StageEngine& engine) {
    return WholeStateOf(engine);
  }

  // Engines of one stage for a group, with a stash, and all kinds.
  EngineOptions Parallel() {
    EngineOptions options = Options();
    options.flat_gradient = true;
    return options;
  }
  EngineOptions WithStash() {
    EngineOptions options = Options();
    options.stashes = true;
    return options;
  }
  std::vector<EngineOptions> AllKinds() {
    return {Options(), Parallel(), WithStash()};
  }

  static StepVerdict Go() {
    StepVerdict verdict;
    verdict.gradient_scale = 0.25f;
    verdict.learning_rate = 0.1f;
    verdict.bias_correction1 = 0.1f;
    verdict.bias_correction2_sqrt = 0.03f;
    return verdict;
  }
  static StepVerdict Skip() {
    StepVerdict verdict = Go();
    verdict.skip = true;
    return verdict;
  }
};

TEST_P(StageEngineSuite, PassesLabelsOnUntouched) {
  const auto engine = Make(Options(0, 2, {0, 1}));
  const TensorList input = Input();

  const auto result = engine->Forward(Batch(), 0, input).value();

  EXPECT_FALSE(result.loss.has_value());
  ASSERT_EQ(result.output.size(), 2u);
  EXPECT_EQ(result.output[1].data, input[1].data);
  EXPECT_EQ(result.output[0].shape.front(), kSamples);
}

TEST_P(StageEngineSuite, SumsTheLossOnTheLastStage) {
  const auto result = Whole()->Forward(Batch(), 0, Input()).value();

  ASSERT_TRUE(result.loss.has_value());
  EXPECT_EQ(result.loss->samples, kSamples);
  EXPECT_GT(result.loss->loss, 0);
  EXPECT_TRUE(result.output.empty());
}

TEST_P(StageEngineSuite, LeavesOutSamplesWithoutALabel) {
  const BatchInfo batch = Batch(BatchPhase::kEvaluate);
  const auto engine = Whole();
  const auto all = engine->Forward(batch, 0, Input());
  TensorList input = Input();
  input[1].As<int64_t>()[1] = kNoLabel;

  const auto less = engine->Forward(batch, 0, input);

  ASSERT_TRUE(all.ok() && less.ok()) << less.status();
  EXPECT_EQ(less->loss->samples, kSamples - 1);
  EXPECT_LT(less->loss->loss, all->loss->loss);
  EXPECT_LE(less->loss->correct, kSamples - 1);
}

TEST_P(StageEngineSuite, RefusesBackwardWithoutForward) {
  const auto engine = Whole();
  const auto backward = [&engine](const BatchInfo& batch) {
    return engine->Backward(batch, 0, {}).status().code();
  };
  EXPECT_EQ(backward(Batch()), absl::StatusCode::kFailedPrecondition);

  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());
  EXPECT_EQ(backward(Ordinal(1)), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(backward(Batch()), absl::StatusCode::kOk);
  EXPECT_EQ(backward(Batch()), absl::StatusCode::kFailedPrecondition);
}

TEST_P(StageEngineSuite, RefusesInputThatIsNotTheStages) {
  const auto engine = Whole();
  const TensorList good = Input();
  Tensor no_memory = good[0];
  no_memory.data = nullptr;
  const auto f32 = [](const Shape& shape) {
    return Tensor::Allocate(DType::kF32, shape);
  };
  const auto i32 = [](const Shape& shape) {
    return Tensor::Allocate(DType::kI32, shape);
  };
  const std::pair<TensorList, const char*> kBad[] = {
      {{}, "got 0 tensors, need 2"},
      {{f32({kSamples, 3, 2}), good[1]}, "got F32[4, 3, 2], need F32[4, 2, 3]"},
      {{i32({kSamples, 2, 3}), good[1]}, "I32[4, 2, 3]"},
      {{good[0], i32({kSamples})}, "labels: got I32[4], need I64[4]"},
      {{no_memory, good[1]}, "without memory"}};
  for (const auto& [input, why] : kBad) {
    const auto result = engine->Forward(Batch(), 0, input);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
    EXPECT_THAT(result.status().message(), ::testing::HasSubstr(why));
  }
  EXPECT_TRUE(engine->Forward(Batch(), 0, good).ok());
}

TEST_P(StageEngineSuite, RefusesGradientsThatAreNotTheOutputs) {
  const EngineOptions options = Options(0, 2, {0, 1});
  const auto engine = Make(options);
  const auto backward = [&engine](const TensorList& gradient) {
    return engine->Backward(Batch(), 0, gradient).status().code();
  };
  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());

  EXPECT_EQ(backward({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backward({Tensor::Allocate(DType::kF32, {kSamples, 2})}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backward(GradientOf(options)), absl::StatusCode::kOk);
}

TEST_P(StageEngineSuite, KeepsNothingOfAnEvaluation) {
  const auto engine = Whole();
  const BatchInfo batch = Batch(BatchPhase::kEvaluate);
  ASSERT_TRUE(engine->Forward(batch, 0, Input()).ok());

  EXPECT_EQ(engine->Backward(batch, 0, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(StageEngineSuite, ReportsWhatTheSumCovers) {
  const auto engine = Whole();
  const BatchInfo batch = Batch(BatchPhase::kTrain, 2);
  for (const int micro_batch : {0, 1}) {
    ASSERT_TRUE(engine->Forward(batch, micro_batch, Input()).ok());
    const auto gradient = engine->Backward(batch, micro_batch, {}).value();
    EXPECT_TRUE(gradient.empty()) << "the first stage has nobody to send to";
  }

  const auto report = engine->Report(batch).value();

  EXPECT_EQ(report.samples, 2 * kSamples);
  EXPECT_TRUE(report.finite);
  EXPECT_FALSE(report.squared_norms.empty());
  EXPECT_GT(report.squared_norms.back(), 0);
}

TEST_P(StageEngineSuite, StartsTheNextSumFromZero) {
  const auto engine = Whole();
  const StepReport first = ReportOfOne(*engine);
  ASSERT_TRUE(engine->Apply(Skip()).ok());

  EXPECT_EQ(ReportOfOne(*engine), first);
}

TEST_P(StageEngineSuite, ChangesWeightsWhenAppliedAndKeepsThemWhenSkipped) {
  const auto engine = Whole();
  const auto before = Bytes(*engine);

  Pass(*engine, Batch(), Input());
  ASSERT_TRUE(engine->Apply(Skip()).ok());
  EXPECT_EQ(Bytes(*engine), before);

  Pass(*engine, Batch(), Input());
  ASSERT_TRUE(engine->Apply(Go()).ok());
  EXPECT_NE(Bytes(*engine), before);
}

TEST_P(StageEngineSuite, TakesWeightsByNameAndComputesWithThem) {
  const auto donor = Whole();
  EngineOptions options = Options();
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

// The same micro-batch forward and backward, whole or in halves; what the
// stage before gets, and what the gate hears.
struct BackwardOutcome {
  std::vector<std::vector<uint8_t>> gradients;
  StepReport report;
};

TEST_P(StageEngineSuite, TheHalvesOfABackwardGiveTheSameBytes) {
  const auto run = [&](const EngineOptions& options, bool halves) {
    const auto engine = Make(options);
    const BatchInfo batch = Batch(BatchPhase::kTrain, 2);
    BackwardOutcome outcome;
    for (const int i : {0, 1}) {
      EXPECT_TRUE(engine->Forward(batch, i, InputOf(options, i)).ok());
    }
    const auto take = [&](const absl::StatusOr<TensorList>& gradient) {
      EXPECT_TRUE(gradient.ok()) << gradient.status();
      for (const Tensor& tensor : *gradient) {
        outcome.gradients.push_back(BytesOf(tensor));
      }
    };
    for (const int i : {0, 1}) {
      take(halves ? engine->BackwardInput(batch, i, GradientOf(options))
                  : engine->Backward(batch, i, GradientOf(options)));
    }
    // Both second halves after both first ones, as zero-bubble has it.
    for (const int i : {0, 1}) {
      if (!halves) break;
      EXPECT_TRUE(engine->BackwardWeight(batch, i).ok());
    }
    outcome.report = engine->Report(batch).value();
    return outcome;
  };

  for (const EngineOptions& options :
       {Options(), Options(0, 2, {0, 1}), Options(1, 2, {1, Layers()})}) {
    const BackwardOutcome whole = run(options, false);
    const BackwardOutcome halves = run(options, true);

    EXPECT_EQ(halves.gradients, whole.gradients) << options.stage;
    EXPECT_EQ(halves.report, whole.report) << options.stage;
    EXPECT_EQ(whole.gradients.empty(), options.stage == 0);
  }
}

TEST_P(StageEngineSuite, RefusesTheSecondHalfOfABackwardBeforeTheFirst) {
  const auto engine = Whole();
  ASSERT_TRUE(engine->Forward(Batch(), 0, Input()).ok());
  EXPECT_EQ(engine->BackwardWeight(Batch(), 0).code(),
            absl::StatusCode::kFailedPrecondition);

  ASSERT_TRUE(engine->BackwardInput(Batch(), 0, {}).ok());
  EXPECT_EQ(engine->BackwardInput(Batch(), 0, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(engine->BackwardWeight(Batch(), 0).ok());
  EXPECT_EQ(engine->BackwardWeight(Batch(), 0).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(StageEngineSuite, WithoutAStashThereIsOneVersion) {
  const auto engine = Whole();

  EXPECT_EQ(engine->UseVersion(0).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine->Stash().versions, 1);
  EXPECT_GT(engine->Stash().bytes, 0);
}

// An engine that may stash, and the updates that it makes.
class Stashing {
 public:
  Stashing(std::unique_ptr<StageEngine> engine, EngineOptions options)
      : engine_(std::move(engine)), options_(std::move(options)) {}

  StageEngine& operator*() { return *engine_; }
  StageEngine* operator->() { return engine_.get(); }

  // One micro-batch forward, backward and an update with its gradient alone.
  void Update(const BatchInfo& batch, TensorList input, TensorList gradient,
              const StepVerdict& verdict) {
    if (options_.stashes) {
      EXPECT_TRUE(engine_->UseVersion(updates_).ok());
    }
    EXPECT_TRUE(engine_->Forward(batch, 0, std::move(input)).ok());
    EXPECT_TRUE(engine_->Backward(batch, 0, std::move(gradient)).ok());
    EXPECT_TRUE(engine_->Report(batch).ok());
    ++updates_;
    // The next forward is at what this update makes.
    if (options_.stashes) {
      EXPECT_TRUE(engine_->UseVersion(updates_).ok());
    }
    EXPECT_TRUE(engine_->Apply(verdict).ok());
  }

 private:
  std::unique_ptr<StageEngine> engine_;
  EngineOptions options_;
  int64_t updates_ = 0;
};

// Forward and backward of a micro-batch use the same version, so its
// gradient is that of one process at this version, to the last bit.
TEST_P(StageEngineSuite, TheGradientIsThatOfTheVersionThatWentForward) {
  constexpr int kUpdates = 3;
  for (EngineOptions options :
       {Options(), Options(1, 3, {1, 2}), Options(1, 2, {1, Layers()})}) {
    // Micro-batch 9 at version 0 and after all updates, in plain engines.
    std::vector<GradientAtOnce> plain;
    std::vector<std::vector<uint8_t>> plain_weights;
    for (const int updates : {0, kUpdates}) {
      Stashing one(Make(options), options);
      for (int i = 0; i < updates; ++i) {
        one.Update(Ordinal(i), InputOf(options, i), GradientOf(options), Go());
      }
      plain_weights = Bytes(*one);
      plain.push_back(Outcome(*one, options));
    }
    ASSERT_FALSE(plain[0] == plain[1]) << "the versions make a difference";

    options.stashes = true;
    Stashing engine(Make(options), options);
    ASSERT_TRUE(engine->Forward(Ordinal(9), 0, InputOf(options, 9)).ok());
    for (int i = 0; i < kUpdates; ++i) {
      engine.Update(Ordinal(i), InputOf(options, i), GradientOf(options), Go());
      EXPECT_EQ(engine->Stash().versions, 2) << "the first and the newest";
    }
    EXPECT_EQ(Bytes(*engine), plain_weights);
    EXPECT_EQ(BackwardOf(*engine, options), plain[0]);
    EXPECT_EQ(engine->Stash().versions, 1) << "freed when unused";
    ASSERT_TRUE(engine->Apply(Go()).ok());
    EXPECT_EQ(engine->Stash().staleness, kUpdates);
  }
}

// Vertical sync: an old version is asked for by a forward that comes later.
TEST_P(StageEngineSuite, AVersionThatWillBeAskedForIsKept) {
  EngineOptions options = Options(1, 2, {1, Layers()});
  Stashing plain(Make(options), options);
  const GradientAtOnce at_first = Outcome(*plain, options);
  options.stashes = true;
  const auto engine = Make(options);
  const int64_t one = engine->Stash().bytes;

  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(engine->UseVersion(0).ok());
    Pass(*engine, Ordinal(i), InputOf(options, i), GradientOf(options));
    ASSERT_TRUE(engine->Apply(Go()).ok());
    EXPECT_EQ(engine->Stash().versions, i + 2);
    EXPECT_EQ(engine->Stash().bytes, (i + 2) * one);
    EXPECT_EQ(engine->Stash().staleness, i);
  }
  EXPECT_EQ(Outcome(*engine, options), at_first);
  ASSERT_TRUE(engine->Apply(Go()).ok());

  ASSERT_TRUE(engine->UseVersion(3).ok());
  EXPECT_EQ(engine->Stash().versions, 2) << "versions 3 and 4";
  const absl::Status gone = engine->UseVersion(2);
  EXPECT_EQ(gone.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(gone.message()),
      ::testing::HasSubstr("version 2 of the weights: here are 3 to 4"));
  EXPECT_EQ(engine->UseVersion(6).code(), absl::StatusCode::kFailedPrecondition)
      << "nobody can ask for what is two updates ahead";
  ASSERT_TRUE(engine->UseVersion(5).ok());
  EXPECT_EQ(engine->Stash().versions, 1);
  EXPECT_EQ(engine->Forward(Ordinal(9), 0, InputOf(options, 0)).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "version 5 is not made yet";
}

TEST_P(StageEngineSuite, AnUpdateThatNobodyWaitsForWritesInPlace) {
  const auto engine = Make(WithStash());
  const uint8_t* const before = engine->Weights()->front().tensor.data.get();

  Pass(*engine, Ordinal(0), Input());
  ASSERT_TRUE(engine->UseVersion(1).ok());
  ASSERT_TRUE(engine->Apply(Go()).ok());

  EXPECT_EQ(engine->Weights()->front().tensor.data.get(), before);
  EXPECT_EQ(engine->Stash().versions, 1);
}

TEST_P(StageEngineSuite, ASkippedUpdateIsAVersionOfItsOwn) {
  const auto engine = Make(WithStash());
  const auto before = Bytes(*engine);
  ASSERT_TRUE(engine->Forward(Ordinal(0), 0, Input()).ok());
  ASSERT_TRUE(engine->Forward(Ordinal(1), 0, Input()).ok());
  ASSERT_TRUE(engine->Backward(Ordinal(0), 0, {}).ok());
  ASSERT_TRUE(engine->Apply(Skip()).ok());

  EXPECT_EQ(Bytes(*engine), before);
  ASSERT_TRUE(engine->UseVersion(1).ok());
  ASSERT_TRUE(engine->Backward(Ordinal(1), 0, {}).ok());
  ASSERT_TRUE(engine->Apply(Go()).ok());
  EXPECT_NE(Bytes(*engine), before);
  EXPECT_EQ(engine->Stash().staleness, 1);
}

TEST_P(StageEngineSuite, AnEvaluationUsesTheNewestVersion) {
  Stashing plain(Make(Options()), Options());
  plain.Update(Ordinal(0), Input(), {}, Go());
  const auto engine = Make(WithStash());
  // Two forwards at version 0, one of which still waits after the update.
  ASSERT_TRUE(engine->Forward(Ordinal(0), 0, Input()).ok());
  ASSERT_TRUE(engine->Forward(Ordinal(1), 0, Input()).ok());
  ASSERT_TRUE(engine->Backward(Ordinal(0), 0, {}).ok());
  ASSERT_TRUE(engine->Apply(Go()).ok());
  BatchInfo batch = Batch(BatchPhase::kEvaluate);

  const auto loss = engine->Forward(batch, 0, Input()).value();

  EXPECT_EQ(loss.loss->loss, plain->Forward(batch, 0, Input())->loss->loss);
}

// --- The state ---

TEST_P(StageEngineSuite, AnotherEngineGoesOnFromACopyOfTheState) {
  for (EngineOptions options : AllKinds()) {
    const auto donor = Make(options);
    Train(*donor, options, 0, 2);
    options.train.seed = 8;
    const auto joiner = Make(options);
    Train(*joiner, options, 0, 1);
    const std::vector<uint8_t> state = StateOf(*donor);
    ASSERT_NE(StateOf(*joiner), state);

    const absl::Status restored = RestoreWhole(*joiner, state);

    ASSERT_TRUE(restored.ok()) << restored;
    EXPECT_EQ(StateOf(*joiner), state);
    EXPECT_EQ(joiner->StateHash(), donor->StateHash());
    // An engine that stashes computes at version 0, from here on the newest.
    donor->AbandonStep();
    Train(*donor, options, 2, 4);
    Train(*joiner, options, 2, 4);
    EXPECT_EQ(StateOf(*joiner), StateOf(*donor));
  }
}

TEST_P(StageEngineSuite, TheStateOfAStageIsThatOfItsLayers) {
  const auto whole = Whole();
  Train(*whole, Options(), 0, 1);
  std::vector<absl::Span<const uint8_t>> layers;
  std::vector<uint8_t> bytes = StateOf(*whole);
  size_t next = 0;
  for (const ScatteredBytes& layer : whole->State()) {
    layers.push_back(absl::MakeSpan(bytes).subspan(next, layer.size()));
    next += layer.size();
  }
  ASSERT_EQ(layers.size(), static_cast<size_t>(Layers()));
  const auto front = Make(Options(0, 2, {0, 1}));
  const auto back = Make(Options(1, 2, {1, Layers()}));

  ASSERT_TRUE(front->RestoreState({layers.begin(), layers.begin() + 1}).ok());
  ASSERT_TRUE(back->RestoreState({layers.begin() + 1, layers.end()}).ok());

  std::vector<uint8_t> joined = StateOf(*front);
  for (const uint8_t byte : StateOf(*back)) joined.push_back(byte);
  EXPECT_EQ(joined, bytes);
}

// A checkpoint names the tensors of a state that it got as bytes.
TEST_P(StageEngineSuite, TheStateLiesAsItIsLaidOutForACheckpoint) {
  const auto engine = Whole();
  Train(*engine, Options(), 0, 1);
  const StateLayout layout =
      LayOutState(Options().model, Options().train.optimizer).value();
  const std::vector<ScatteredBytes> state = engine->State();
  ASSERT_EQ(layout.layers.size(), state.size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(layout.layers[i].bytes, static_cast<int64_t>(state[i].size()));
  }

  const std::vector<uint8_t> bytes = StateOf(*engine);
  const auto weights = engine->Weights().value();
  for (const NamedTensor& weight : weights) {
    const auto place = std::find_if(
        layout.file.tensors.begin(), layout.file.tensors.end(),
        [&](const TensorPlace& each) { return each.name == weight.name; });
    ASSERT_NE(place, layout.file.tensors.end()) << weight.name;
    const auto offset = place->offset - layout.layers[0].offset;
    const uint8_t* const value = weight.tensor.data.get();
    EXPECT_TRUE(std::equal(value, value + weight.tensor.bytes(),
                           bytes.begin() + offset))
        << weight.name;
  }
}

TEST_P(StageEngineSuite, TheHashOfTheStateIsThatOfItsCopy) {
  const auto engine = Whole();
  Train(*engine, Options(), 0, 1);
  const uint64_t before = engine->StateHash();

  Checksum checksum;
  checksum.Update(StateOf(*engine));
  EXPECT_EQ(before, checksum.Digest());

  Train(*engine, Options(), 1, 2);
  EXPECT_NE(engine->StateHash(), before);
}

TEST_P(StageEngineSuite, AnAbandonedStepLeavesNoTrace) {
  for (const EngineOptions& options : AllKinds()) {
    const auto engine = Make(options);
    const auto plain = Make(options);
    const std::vector<uint8_t> state = StateOf(*engine);
    for (const bool restores : {false, true}) {
      BatchInfo batch = Batch(BatchPhase::kTrain, 3);
      batch.ordinal = 9;
      Pass(*engine, batch, InputOf(options, 6));
      ASSERT_TRUE(engine->Forward(batch, 1, InputOf(options, 7)).ok());
      ASSERT_TRUE(engine->Forward(batch, 2, InputOf(options, 8)).ok());
      ASSERT_TRUE(engine->BackwardInput(batch, 2, {}).ok());

      if (restores) {
        ASSERT_TRUE(RestoreWhole(*engine, state).ok());
      } else {
        engine->AbandonStep();
      }

      EXPECT_EQ(engine->Backward(batch, 1, {}).status().code(),
                absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(engine->BackwardWeight(batch, 2).code(),
                absl::StatusCode::kFailedPrecondition);
    }
    EXPECT_EQ(Train(*engine, options, 0, 2).reports,
              Train(*plain, options, 0, 2).reports);
    EXPECT_EQ(StateOf(*engine), StateOf(*plain));
  }
}

TEST_P(StageEngineSuite, RefusesAStateOfAnotherSizeAndWritesNothing) {
  const auto engine = Whole();
  const std::vector<uint8_t> before = StateOf(*engine);
  ASSERT_FALSE(before.empty());
  for (const int change : {-1, 1}) {
    std::vector<std::vector<uint8_t>> states;
    for (const ScatteredBytes& layer : engine->State()) {
      states.emplace_back(layer.size(), 7);
    }
    states.front().resize(states.front().size() + change);

    EXPECT_TRUE(absl::IsInvalidArgument(
        engine->RestoreState({states.begin(), states.end()})));
  }
  // As many bytes as all layers have, but in other layers.
  const std::vector<uint8_t> bytes(before.size(), 7);
  std::vector<absl::Span<const uint8_t>> layers(Layers());
  layers.front() = bytes;
  for (const auto& wrong :
       {layers, std::vector<absl::Span<const uint8_t>>{bytes}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(engine->RestoreState(wrong)));
  }
  EXPECT_EQ(StateOf(*engine), before);
}

}  // namespace paceline

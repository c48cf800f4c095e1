// The engine through its interface alone: no LibTorch in this file.
#include "worker/torch/engine.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "core/job/spec/job_spec.h"
#include "core/transfer/checksum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/parallel_engine_suite.h"
#include "tests/support/pipeline/stage_engine_suite.h"
#include "tests/torch/in_process_pipeline.h"

namespace paceline {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class SameBytes : public ::testing::TestWithParam<const char*> {};

// With dropout, AdamW and clipping.
TEST_P(SameBytes, OnEveryCutAndSchedule) {
  ExpectSameBytesOnEveryCut(RichExperiment(GetParam()), {1, 2, 3, 4});
}

// AdamW's state and that of a momentum, running statistics and what layers
// share among it.
TEST_P(SameBytes, GoingOnFromCopiedStates) {
  ExpectToGoOnFromCopiedStates(RichExperiment(GetParam()), 2);
  ExpectToGoOnFromCopiedStates(SmallExperiment(GetParam()), 4);
}

// Buffers, and what layers share.
TEST_P(SameBytes, StatesHaveTheSizesOfACheckpoint) {
  const Experiment experiment = RichExperiment(GetParam());
  const auto engine = MakeStage(experiment);
  const StateLayout layout =
      LayOutState(Describe(experiment), experiment.job.train.optimizer).value();

  std::vector<int64_t> laid_out, held;
  for (const auto& range : layout.layers) laid_out.push_back(range.bytes);
  for (const ScatteredBytes& state : engine->State()) {
    held.push_back(static_cast<int64_t>(state.size()));
  }
  EXPECT_EQ(laid_out, held);
}

INSTANTIATE_TEST_SUITE_P(Models, SameBytes, ::testing::ValuesIn(kSmallModels),
                         kNameOfModel);

TEST(TorchEngine, SgdAndTokensWithoutALabelEndWithTheSameBytesToo) {
  ExpectSameBytesOnEveryCut(SmallExperiment("lenet"), {1, 2, 3, 4});
  Experiment experiment = SmallExperiment("gpt");
  experiment.set.unlabelled_every = 3;

  ExpectSameBytesOnEveryCut(experiment, {1, 2, 3, 4});
}

TEST(TorchEngine, SeedsAndDropoutChangeTheOutcome) {
  const Outcome base = InProcessPipeline(SmallExperiment("mlp")).Run();
  Experiment other = SmallExperiment("mlp");
  other.job.train.seed = 2;
  Experiment dropout = SmallExperiment("mlp");
  dropout.job.model.dropout = 0.2;

  EXPECT_NE(InProcessPipeline(other).Run().losses, base.losses);
  EXPECT_NE(InProcessPipeline(dropout).Run().losses, base.losses);
}

TEST(TorchEngine, EveryModelLearns) {
  for (const std::string name : kSmallModels) {
    Experiment experiment = SmallExperiment(name);
    experiment.job.train.optimizer.name = "adamw";
    experiment.job.train.learning_rate.base = 0.003;
    experiment.job.model.dropout = 0;
    experiment.job.train.epochs = 12;
    double least = 0.6;
    if (experiment.set.vocabulary > 0) {
      experiment.job.train.epochs = 40;
      experiment.job.train.learning_rate.base = 0.01;
    }
    if (experiment.set.shape.size() == 3 &&
        experiment.set.shape != TinySet().shape) {
      // Deep convolutions learn slowly, and normalise over a micro-batch.
      experiment.job.train.epochs = 50;
      experiment.job.train.micro_batch = 8;
      least = 0.8;
    }

    const Outcome outcome = InProcessPipeline(experiment).Run();

    // A single loss depends on how this CPU rounds: take the last quarter's
    // mean.
    const auto& losses = outcome.losses;
    const auto begin = losses.end() - losses.size() / 4;
    const double mean =
        std::accumulate(begin, losses.end(), 0.0) / (losses.end() - begin);
    EXPECT_LT(mean, least * losses.front()) << name;
    RecordProperty(name, std::to_string(mean / losses.front()));
  }
}

// One engine and its input, to be handled wrongly.
class OneEngine {
 public:
  explicit OneEngine(const Experiment& experiment, int stage = 0,
                     int stages = 1)
      : model_(Describe(experiment)),
        engine_(MakeStage(experiment, stage, stages)) {
    layers_ =
        CutEqually(static_cast<int>(model_.layers.size()), stages)->at(stage);
  }

  StageEngine& operator*() { return *engine_; }
  StageEngine* operator->() { return engine_.get(); }

  // One micro-batch of three samples.
  static BatchInfo Batch() {
    BatchInfo batch;
    batch.samples = 3;
    return batch;
  }

  // Any activation of this stage, and labels.
  TensorList Input() const {
    TinySet set;
    if (layers_.first > 0) set.shape = model_.layers[layers_.first - 1].output;
    return set.Take({0, 1, 2}, 0, 3);
  }

  // A gradient of this stage's output.
  TensorList OutputGradient() const {
    TinySet set;
    set.shape = model_.layers[layers_.last - 1].output;
    return {set.Take({0, 1, 2}, 0, 3)[0]};
  }

 private:
  const ModelDescription model_;
  LayerRange layers_;
  std::unique_ptr<StageEngine> engine_;
};

std::string WhyNotForward(OneEngine& engine, TensorList input,
                          int micro_batch = 0) {
  const auto result =
      engine->Forward(OneEngine::Batch(), micro_batch, std::move(input));
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
  return std::string(result.status().message());
}

TEST(TorchEngine, RefusesLabelsOutsideOfTheClasses) {
  OneEngine engine(SmallExperiment("mlp"));

  for (const int64_t label : {int64_t{-101}, int64_t{-1}, int64_t{10}}) {
    TensorList input = engine.Input();
    input[1].As<int64_t>()[2] = label;
    EXPECT_THAT(WhyNotForward(engine, input), HasSubstr("the model's 10"));
  }
}

TEST(TorchEngine, RefusesASampleTooFewAndAGradientOfTheLastStage) {
  OneEngine engine(SmallExperiment("lenet"));
  EXPECT_THAT(
      WhyNotForward(engine, {Tensor::Allocate(DType::kF32, {2, 1, 28, 28}),
                             engine.Input()[1]}),
      HasSubstr("need F32[3, 1, 28, 28]"));

  const BatchInfo batch = OneEngine::Batch();
  ASSERT_TRUE(engine->Forward(batch, 0, engine.Input()).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      engine->Backward(batch, 0, engine.OutputGradient()).status()));
}

TEST(TorchEngine, RefusesTheSameForwardTwice) {
  OneEngine engine(SmallExperiment("mlp"));
  ASSERT_TRUE(engine->Forward(OneEngine::Batch(), 0, engine.Input()).ok());

  EXPECT_THAT(WhyNotForward(engine, engine.Input()),
              HasSubstr("still waits for the backward of 1"));
  EXPECT_THAT(WhyNotForward(engine, engine.Input(), 1),
              HasSubstr("micro-batch 1 of a batch of 1"));
}

// Between a translator's encoder and decoder two floats cross.
TEST(TorchEngine, WantsAndGivesAGradientForEachFloatThatCrosses) {
  const Experiment experiment = SmallExperiment("gnmt");
  const ModelDescription model = Describe(experiment);
  const int layers = static_cast<int>(model.layers.size());
  constexpr int kCut = 6;  // behind the decoder's first LSTM
  const TrainSpec& train = experiment.job.train;
  SetComputeThreads(1);
  auto first = MakeTorchEngine({model, {0, kCut}, train, 0, 2});
  auto last = MakeTorchEngine({model, {kCut, layers}, train, 1, 2});
  ASSERT_TRUE(first.ok() && last.ok()) << first.status() << last.status();
  const BatchInfo batch = OneEngine::Batch();

  const auto forward =
      (*first)->Forward(batch, 0, experiment.set.Take({0, 1, 2}, 0, 3));
  ASSERT_TRUE(forward.ok()) << forward.status();
  TensorList short_input = forward->output;
  short_input.erase(short_input.begin() + 2);
  EXPECT_TRUE(absl::IsInvalidArgument(
      (*last)->Forward(batch, 0, short_input).status()));
  ASSERT_TRUE((*last)->Forward(batch, 0, forward->output).ok());
  auto gradients = (*last)->Backward(batch, 0, {});

  ASSERT_TRUE(gradients.ok()) << gradients.status();
  ASSERT_EQ(gradients->size(), 2u);
  for (const Tensor& gradient : *gradients) {
    EXPECT_EQ(gradient.shape, (Shape{3, 6, 16}));
    const auto values = gradient.As<float>();
    EXPECT_TRUE(absl::c_any_of(values, [](float value) { return value != 0; }));
  }
  Tensor memory = gradients->back();
  EXPECT_TRUE(absl::IsInvalidArgument(
      (*first)->Backward(batch, 0, {gradients->front()}).status()));
  memory.shape = {3, 16, 6};
  EXPECT_TRUE(absl::IsInvalidArgument(
      (*first)->Backward(batch, 0, {gradients->front(), memory}).status()));
  EXPECT_TRUE((*first)->Backward(batch, 0, *gradients).ok());
}

TEST(TorchEngine, RefusesReportAndUpdateOfAHalfSummedStep) {
  OneEngine engine(SmallExperiment("mlp"));
  BatchInfo batch = OneEngine::Batch();
  ASSERT_TRUE(engine->Forward(batch, 0, engine.Input()).ok());

  EXPECT_TRUE(absl::IsFailedPrecondition(engine->Report(batch).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(engine->Apply({})));

  ASSERT_TRUE(engine->Backward(batch, 0, {}).ok());
  batch.samples = 4;
  EXPECT_THAT(engine->Report(batch).status().message(),
              HasSubstr("sums 3 samples, need 4"));
}

TEST(TorchEngine, RefusesRangesOutsideOfTheModel) {
  const Experiment experiment = SmallExperiment("mlp");
  const ModelDescription model = Describe(experiment);
  const int layers = static_cast<int>(model.layers.size());

  for (const LayerRange range :
       {LayerRange{-1, 1}, LayerRange{1, 1}, LayerRange{0, layers + 1}}) {
    const auto engine =
        MakeTorchEngine({model, range, experiment.job.train, 0, 1});
    EXPECT_TRUE(absl::IsInvalidArgument(engine.status())) << range.first;
  }
}

TEST(TorchEngine, ReportsAGradientThatIsNotFinite) {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity()}) {
    OneEngine engine(SmallExperiment("mlp"));
    const BatchInfo batch = OneEngine::Batch();
    TensorList input = engine.Input();
    input[0].As<float>()[5] = poison;

    ASSERT_TRUE(engine->Forward(batch, 0, input).ok());
    ASSERT_TRUE(engine->Backward(batch, 0, {}).ok());
    const auto report = engine->Report(batch);

    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_FALSE(report->finite);
  }
}

TEST(TorchEngine, ReportsOneNormAParameterAndTheGradientsHash) {
  Experiment experiment = SmallExperiment("vit");
  OneEngine engine(experiment);
  const BatchInfo batch = OneEngine::Batch();
  size_t parameters = 0;
  for (const Layer& layer : Describe(experiment).layers) {
    parameters += layer.parameters.size();
  }

  ASSERT_TRUE(engine->Forward(batch, 0, engine.Input()).ok());
  ASSERT_TRUE(engine->Backward(batch, 0, {}).ok());
  const auto one = engine->Report(batch);
  ASSERT_TRUE(engine->Apply({}).ok());
  TensorList other = engine.Input();
  other[0].As<float>()[0] += 1;
  ASSERT_TRUE(engine->Forward(batch, 0, other).ok());
  ASSERT_TRUE(engine->Backward(batch, 0, {}).ok());
  const auto two = engine->Report(batch);

  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->squared_norms.size(), parameters);
  EXPECT_EQ(one->samples, 3);
  EXPECT_NE(one->result_hash, two->result_hash);
}

TEST(TorchEngine, EvaluationDropsNothing) {
  Experiment experiment = SmallExperiment("lenet");
  OneEngine without(experiment);
  experiment.job.model.dropout = 0.5;
  OneEngine with(experiment);
  BatchInfo batch = OneEngine::Batch();
  batch.phase = BatchPhase::kEvaluate;

  const auto one = with->Forward(batch, 0, with.Input());
  const auto again = with->Forward(batch, 0, with.Input());
  const auto plain = without->Forward(batch, 0, with.Input());

  ASSERT_TRUE(one.ok() && again.ok() && plain.ok());
  EXPECT_EQ(one->loss->loss, again->loss->loss);
  EXPECT_EQ(one->loss->loss, plain->loss->loss);
  EXPECT_EQ(one->loss->samples, 3);
}

// A teacher of equal weights is a minimum of the distance.
TEST(TorchEngine, FollowsItsTeacherAndReportsTheLossOfTheLabels) {
  Experiment experiment = SmallExperiment("lenet");
  experiment.job.train.distill.share = 1;
  OneEngine plain(experiment);
  const auto step = [&](int64_t seed) {
    Experiment other = experiment;
    other.job.train.seed = seed;
    EngineOptions options{.model = Describe(experiment),
                          .layers = {},
                          .train = experiment.job.train};
    options.layers = {0, static_cast<int>(options.model.layers.size())};
    EngineOptions teacher = options;
    teacher.train = other.job.train;
    teacher.inference = true;
    options.teacher = MakeTorchEngine(teacher).value();
    const auto engine = MakeTorchEngine(options).value();
    const auto result =
        engine->Forward(OneEngine::Batch(), 0, plain.Input()).value();
    EXPECT_TRUE(engine->Backward(OneEngine::Batch(), 0, {}).ok());
    const StepReport report = engine->Report(OneEngine::Batch()).value();
    const double norm = absl::c_accumulate(report.squared_norms, 0.0);
    return std::pair(result.loss->loss, norm);
  };

  const auto [same_loss, same_norm] = step(experiment.job.train.seed);
  const auto [loss, norm] = step(experiment.job.train.seed + 1);

  EXPECT_LT(same_norm, 1e-6 * norm);
  EXPECT_EQ(loss, same_loss);
  EXPECT_EQ(loss,
            plain->Forward(OneEngine::Batch(), 0, plain.Input())->loss->loss);
}

// The casts of the weights to bf16 stay from one forward to the next.
TEST(TorchEngine, SeesWeightsThatSomebodyElseWroteOnceItIsTold) {
  for (const char* precision : {"fp32", "bf16"}) {
    Experiment experiment = SmallExperiment("lenet");
    experiment.job.precision = precision;
    OneEngine engine(experiment);
    BatchInfo batch = OneEngine::Batch();
    batch.phase = BatchPhase::kEvaluate;
    const auto loss = [&] {
      return engine->Forward(batch, 0, engine.Input())->loss->loss;
    };
    const auto scale = [&](float by) {
      auto weights = engine->Weights();
      for (NamedTensor& each : *weights) {
        for (float& value : each.tensor.As<float>()) value *= by;
      }
      engine->OnWeightsWritten();
    };
    const double before = loss();

    scale(0.5f);
    const double halved = loss();
    scale(2);

    EXPECT_GT(std::abs(halved - before), 1e-3 * before) << precision;
    EXPECT_EQ(loss(), before) << precision;
  }
}

TEST(TorchEngine, AnOutputThatWasHandedOnIsNeverWritten) {
  OneEngine engine(SmallExperiment("vit"), 1, 3);
  const BatchInfo batch = OneEngine::Batch();
  TensorList input = engine.Input();
  const TensorList before = engine.Input();

  const auto result = engine->Forward(batch, 0, input);
  ASSERT_TRUE(result.ok()) << result.status();
  const Tensor& output = result->output[0];
  const std::vector<float> sent(output.As<float>().begin(),
                                output.As<float>().end());
  const auto gradient = engine->Backward(batch, 0, engine.OutputGradient());
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  StepVerdict verdict;
  verdict.gradient_scale = 1;
  verdict.learning_rate = 1;
  ASSERT_TRUE(engine->Apply(verdict).ok());

  EXPECT_EQ(
      std::vector<float>(output.As<float>().begin(), output.As<float>().end()),
      sent);
  EXPECT_EQ(input[0].As<float>(), before[0].As<float>());
}

// Central differences through everything behind the embedding, where all is
// smooth.  Float32 leaves about three digits.
TEST(TorchEngine, GradientOfTheInputMatchesDifferences) {
  constexpr float kStep = 1e-2f;
  OneEngine engine(SmallExperiment("vit"), 1, 2);
  const BatchInfo batch = OneEngine::Batch();
  BatchInfo probe = batch;
  probe.phase = BatchPhase::kEvaluate;
  const auto loss_at = [&](int64_t element, float shift) {
    TensorList input = engine.Input();
    input[0].As<float>()[element] += shift;
    return engine->Forward(probe, 0, input)->loss->loss;
  };

  ASSERT_TRUE(engine->Forward(batch, 0, engine.Input()).ok());
  const auto gradient = engine->Backward(batch, 0, {});

  ASSERT_TRUE(gradient.ok()) << gradient.status();
  const auto values = (*gradient)[0].As<float>();
  for (size_t i = 0; i < values.size(); i += 101) {
    const double difference =
        (loss_at(i, kStep) - loss_at(i, -kStep)) / (2 * kStep);
    EXPECT_NEAR(values[i], difference, 2e-3) << "element " << i;
  }
}

// How many of the calls of StreamSum() lie inside the gradient of the layer
// before the last one.  All that any call says must be true.
int CallsInside(const Experiment& experiment) {
  EngineOptions options;
  options.model = Describe(experiment);
  options.layers = {0, static_cast<int>(options.model.layers.size())};
  options.train = experiment.job.train;
  options.flat_gradient = true;
  const auto engine = MakeTorchEngine(options).value();
  const absl::Span<float> flat = engine->FlatGradient().value();
  engine->AbandonStep();  // as between two steps
  const BatchInfo batch = OneEngine::Batch();
  const TensorList input = experiment.set.Take({0, 1, 2}, 0, 3);
  EXPECT_TRUE(engine->Forward(batch, 0, input).ok());
  std::vector<std::pair<size_t, uint64_t>> told;
  const auto hash_from = [&](size_t begin) {
    const absl::Span<const float> tail = flat.subspan(begin);
    return HashBytes({reinterpret_cast<const uint8_t*>(tail.data()),
                      tail.size() * sizeof(float)});
  };
  engine->StreamSum(
      [&](size_t begin) { told.emplace_back(begin, hash_from(begin)); });
  EXPECT_TRUE(engine->Backward(batch, 0, {}).ok());

  const std::vector<size_t>& layers = engine->GradientOffsets();
  int inside = 0;
  for (const auto& [begin, hash] : told) {
    EXPECT_EQ(hash, hash_from(begin)) << experiment.job.model.name;
    inside +=
        begin > layers[layers.size() - 3] && begin < layers[layers.size() - 2];
  }
  EXPECT_EQ(told.back().first, 0);
  return inside;
}

TEST(TorchEngine, WhatIsSaidToBeFinalIsFinal) {
  for (const char* const model : kSmallModels) {
    CallsInside(SmallExperiment(model));
  }
}

// In a group it has a network to cross.
TEST(TorchEngine, ALargeWeightsGradientIsFinalPieceByPiece) {
  Experiment experiment = SmallExperiment("mlp");
  experiment.job.model.hidden = {1024, 2048};

  EXPECT_GT(CallsInside(experiment), 3);
}

TEST(Threads, CapabilityIsOneOfTheKnownOnes) {
  SetComputeThreads(1);
  SetComputeThreads(2);  // may be called again
  SetComputeThreads(1);

  EXPECT_THAT(ActiveCpuCapability(),
              AnyOf("default", "avx2", "avx512", "avx512_bf16"));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(TorchEngine, StageEngineSuite,
                         ::testing::Values(MakeTorchEngine));
INSTANTIATE_TEST_SUITE_P(TorchEngine, ParallelEngineSuite,
                         ::testing::Values(MakeTorchEngine));

}  // namespace paceline

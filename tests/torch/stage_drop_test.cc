// Blocks that are left out, of a whole job or of single micro-batches.
#include "core/model/description.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"
#include "tests/torch/plain_models.h"
#include "worker/torch/engine.h"

namespace paceline {
namespace {

constexpr char kSkips[] = "faults[0].kind=skip-stage; faults[0].block=1";

Experiment With(Experiment experiment, const std::string& changes) {
  ChangeJob(experiment.job, changes);
  return experiment;
}

class SkipStage : public ::testing::TestWithParam<const char*> {};

TEST_P(SkipStage, EndsWithTheSameBytesOnEveryCutAndMovesNothingOfItsBlock) {
  const Experiment experiment = With(RichExperiment(GetParam()), kSkips);
  const auto before = WeightsOf(*MakeStage(experiment));

  const Outcome outcome = InProcessPipeline(experiment).Run();

  ExpectOnEveryCut(experiment, outcome, {2});
  for (const Layer& layer : Describe(experiment).layers) {
    for (const Parameter& each : layer.parameters) {
      if (layer.block == 1) {
        EXPECT_EQ(outcome.weights.at(each.name), before.at(each.name));
      } else if (each.trainable) {
        EXPECT_NE(outcome.weights.at(each.name), before.at(each.name));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SkipStage,
                         ::testing::Values("vit", "bert", "gpt", "resnet18"),
                         kNameOfModel);

// The two layers of a block of a vit, as a stage.
struct BlockStage {
  explicit BlockStage(const Experiment& experiment) {
    EngineOptions options{
        Describe(experiment), {3, 5}, experiment.job.train, 1, 3};
    const Shape shape = Batched(3, options.model.layers[2].output);
    input = Tensor::Zeros(DType::kF32, shape);
    gradient = Tensor::Zeros(DType::kF32, shape);
    float next = 0;
    for (float& value : input.As<float>()) value = next += 0.25f;
    for (float& value : gradient.As<float>()) value = next -= 0.5f;
    engine = MakeTorchEngine(options).value();
    batch.samples = 12;
    batch.micro_batches = 4;
  }

  Tensor Forward(int micro_batch) {
    return engine
        ->Forward(batch, micro_batch, {input, Tensor::Zeros(DType::kI64, {3})})
        .value()
        .output[0];
  }

  std::unique_ptr<StageEngine> engine;
  BatchInfo batch;
  Tensor input, gradient;
};

bool Equal(const Tensor& a, const Tensor& b) {
  return a.As<float>() == b.As<float>();
}

TEST(SkipStage, IsTheIdentityForwardAndBackward) {
  BlockStage stage(With(SmallExperiment("vit"), kSkips));

  EXPECT_TRUE(Equal(stage.Forward(0), stage.input));
  const TensorList back =
      stage.engine->Backward(stage.batch, 0, {stage.gradient}).value();
  EXPECT_TRUE(Equal(back[0], stage.gradient));
}

struct Dropping {
  const char* model;
  const char* changes;
};

class LayerDrop : public ::testing::TestWithParam<Dropping> {
 protected:
  LayerDrop()
      : experiment_(
            With(With(RichExperiment(GetParam().model), "train.layer_drop=0.5"),
                 GetParam().changes)) {}

  const Experiment experiment_;
};

TEST_P(LayerDrop, EndsWithTheSameBytesOnEveryCut) {
  ExpectSameBytesOnEveryCut(experiment_, {1, 2, 4});
  ExpectToGoOnFromCopiedStates(experiment_, 2);
}

constexpr Dropping kDroppings[] = {
    {"vit", ""},
    {"bert", "train.activation_checkpointing=every-2"},
    {"gpt", "model.lora.rank=2"},  // nothing trains in its head
    {"gnmt", "model.depth=3"},
    {"vit", "train.only=last-3; train.activation_checkpointing=stage"},
    {"vit", "faults[0].kind=skip-stage; faults[0].block=0"},
};

INSTANTIATE_TEST_SUITE_P(Models, LayerDrop, ::testing::ValuesIn(kDroppings),
                         [](const auto& info) {
                           return std::string(info.param.model) +
                                  std::to_string(info.index);
                         });

// By the drawing alone, in any order, and in training alone.
TEST(LayerDrop, PassesOnWhatIsDrawn) {
  const Experiment experiment =
      With(SmallExperiment("vit"), "train.layer_drop=0.5");
  BlockStage stage(experiment);
  int dropped = 0;

  for (int micro_batch = 3; micro_batch >= 0; --micro_batch) {
    const bool drops = IsDropped(experiment.job.train, 0, micro_batch, 1);
    dropped += drops ? 1 : 0;
    EXPECT_EQ(Equal(stage.Forward(micro_batch), stage.input), drops);
    const TensorList back =
        stage.engine->Backward(stage.batch, micro_batch, {stage.gradient})
            .value();
    EXPECT_EQ(Equal(back[0], stage.gradient), drops) << micro_batch;
  }
  stage.batch.phase = BatchPhase::kEvaluate;

  EXPECT_TRUE(dropped > 0 && dropped < 4) << dropped;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(Equal(stage.Forward(i), stage.input));
  }
}

// A group's part leaves while the last backward runs: what it says is final is
// zero where a layer was dropped, and stays so, down to the first layer that
// trains.
TEST(LayerDrop, SaysZerosFinalWhereNothingWasWritten) {
  for (const char* only : {"all", "last-3"}) {
    Experiment experiment =
        With(SmallExperiment("vit"), "train.layer_drop=0.9");
    experiment.job.model.only = only;
    const auto engine = MakeStage(experiment, 0, 1, false, /*flat=*/true);
    BatchInfo batch;
    batch.samples = 3;
    batch.micro_batches = 1;
    while (!IsDropped(experiment.job.train, batch.step, 0, 1)) ++batch.step;
    const absl::Span<float> sum = engine->FlatGradient().value();
    std::fill(sum.begin(), sum.end(), 7.0f);  // of the step before
    StepVerdict skip;
    skip.skip = true;
    ASSERT_TRUE(engine->Apply(skip).ok());
    ASSERT_TRUE(
        engine->Forward(batch, 0, experiment.set.Take({0, 1, 2}, 0, 3)).ok());
    size_t final_from = sum.size();
    std::vector<float> said(sum.begin(), sum.end());
    engine->StreamSum([&](size_t begin) {
      std::copy(sum.begin() + begin, sum.begin() + final_from,
                said.begin() + begin);
      final_from = begin;
    });

    ASSERT_TRUE(engine->Backward(batch, 0, {}).ok());

    EXPECT_EQ(final_from, 0u) << only;
    const absl::Span<float> whole = engine->FlatGradient().value();
    const auto& offsets = engine->GradientOffsets();
    EXPECT_TRUE(
        std::equal(said.begin(), said.begin() + offsets.back(), whole.begin()));
    for (size_t i = offsets[3]; i < offsets[5]; ++i) EXPECT_EQ(whole[i], 0);
  }
}

}  // namespace
}  // namespace paceline

// Blocks that are left out, of a whole job or of single micro-batches.
#include "core/model/stage_drop.h"

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

}  // namespace
}  // namespace paceline

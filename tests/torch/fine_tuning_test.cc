// Training of a part of a model.
#include "core/model/fine_tuning.h"

#include "core/optim/state_layout.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"
#include "tests/torch/plain_models.h"
#include "tests/torch/script_experiment.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

Experiment Changed(Experiment experiment, const std::string& changes) {
  ChangeJob(experiment.job, changes);
  return experiment;
}

std::map<std::string, bool> Trained(const ModelDescription& model) {
  std::map<std::string, bool> trained;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (parameter.trainable || parameter.frozen) {
        trained[parameter.name] = parameter.trainable;
      }
    }
  }
  return trained;
}

struct Part {
  const char* model;
  const char* changes;
};

class FineTuning : public ::testing::TestWithParam<Part> {
 protected:
  FineTuning()
      : experiment_(
            Changed(RichExperiment(GetParam().model), GetParam().changes)) {}

  const Experiment experiment_;
};

// With dropout, AdamW and clipping.
TEST_P(FineTuning, EndsWithTheSameBytesOnEveryCut) {
  ExpectSameBytesOnEveryCut(experiment_, {1, 2, 4});
  ExpectToGoOnFromCopiedStates(experiment_, 2);
}

TEST_P(FineTuning, MovesWhatTrainsAndNothingElse) {
  const auto before = WeightsOf(*MakeStage(experiment_));

  const auto after = InProcessPipeline(experiment_).Run().weights;

  for (const auto& [name, trains] : Trained(Describe(experiment_))) {
    EXPECT_EQ(after.at(name) != before.at(name), trains) << name;
  }
}

// A frozen parameter has no slots, and is in no round.
TEST_P(FineTuning, HasStateAndGradientsOfWhatTrainsAlone) {
  const ModelDescription model = Describe(experiment_);
  const auto engine = MakeStage(experiment_);
  const auto flat = MakeStage(experiment_, 0, 1, false, /*flat=*/true);
  const StateLayout layout =
      LayOutState(model, experiment_.job.train.optimizer).value();
  std::vector<int64_t> laid_out, held;
  for (const auto& range : layout.layers) laid_out.push_back(range.bytes);
  for (const ScatteredBytes& state : engine->State()) {
    held.push_back(static_cast<int64_t>(state.size()));
  }
  size_t values = 0;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (!parameter.frozen) values += NumElements(parameter.shape);
    }
  }

  EXPECT_EQ(laid_out, held);
  EXPECT_EQ(flat->FlatGradient()->size(), values);
}

constexpr Part kParts[] = {
    {"gpt", "train.only=last-3"},    {"gpt", "train.only=head"},
    {"bert", "train.only=norm"},     {"lenet", "train.only=last-2"},
    {"resnet18", "train.only=norm"}, {"gnmt", "train.only=last-4"},
};

INSTANTIATE_TEST_SUITE_P(Parts, FineTuning, ::testing::ValuesIn(kParts),
                         [](const auto& info) {
                           return std::string(info.param.model) +
                                  std::to_string(info.index);
                         });

// A stage below it computes nothing either, and gets zeros.
TEST(TrainOnly, GoesBackNoFurtherThanTheLowestLayerThatTrains) {
  const Experiment experiment =
      Changed(SmallExperiment("vit"), "train.only=last-2");
  EngineOptions options{
      Describe(experiment), {2, 6}, experiment.job.train, 1, 2};
  std::vector<int> back;
  options.on_layer = [&](const LayerDone& done) {
    if (done.backward) back.push_back(done.layer);
  };
  const auto engine = MakeTorchEngine(options).value();
  BatchInfo batch;
  batch.micro_batches = 1;
  batch.samples = 2;
  const Shape input = Batched(2, options.model.layers[1].output);

  ASSERT_TRUE(engine
                  ->Forward(batch, 0,
                            {Tensor::Zeros(DType::kF32, input),
                             Tensor::Zeros(DType::kI64, {2})})
                  .ok());
  const auto gradient = engine->Backward(batch, 0, {});

  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_EQ(back, std::vector<int>({5, 4}));
  EXPECT_EQ((*gradient)[0].shape, input);
  EXPECT_EQ(ToTorch((*gradient)[0]).abs().max().item<float>(), 0);
}

// Frozen tensors of a script stay where they are beside buffers that move.
TEST(TrainOnly, ScriptsToo) {
  const Experiment experiment =
      Changed(ScriptExperiment("scripted.pt"), "train.only=last-2");
  const auto before = WeightsOf(*MakeStage(experiment));
  const Outcome one = InProcessPipeline(experiment).Run();

  ExpectOnEveryCut(experiment, one, {2, 3});
  ExpectToGoOnFromCopiedStates(experiment, 2);
  for (const auto& [name, trains] : Trained(Describe(experiment))) {
    EXPECT_EQ(one.weights.at(name) != before.at(name), trains) << name;
  }
}

}  // namespace
}  // namespace paceline

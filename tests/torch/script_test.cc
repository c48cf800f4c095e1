// Somebody's own module, as a TorchScript file.  tests/data/script/make.py
// wrote the files.
#include "torch/script.h"

#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "core/data/data_sets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/says.h"
#include "tests/torch/in_process_pipeline.h"
#include "tests/torch/script_experiment.h"
#include "torch/torch.h"
#include "worker/torch/engine.h"
#include "worker/torch/guard.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WhyNot(const std::string& file) {
  JobSpec spec;
  spec.model.file = file;
  spec.data.shape = {2, 4, 4};
  const auto script = ReadScript(spec);
  if (script.ok()) return "nothing";
  return std::string(script.status().message());
}

TEST(Script, ChildrenOfTheRootAreTheLayers) {
  const Experiment experiment = ScriptExperiment("scripted.pt");

  const ModelDescription model = Describe(experiment);

  ASSERT_EQ(model.layers.size(), 8u);
  EXPECT_EQ(model.layers[0].output, (Shape{4, 4, 4}));
  EXPECT_EQ(model.layers[3].output, Shape{64});
  EXPECT_EQ(model.layers[7].output, Shape{3});
  // A convolution of 2 x 3 x 3 values for each of 4 x 4 x 4.
  EXPECT_EQ(model.layers[0].forward_flops, 2.0 * 18 * 64);
  std::vector<std::string> names;
  for (const Parameter& parameter : model.layers[1].parameters) {
    names.push_back(
        absl::StrCat(parameter.name, parameter.trainable ? "" : " (buffer)"));
  }
  EXPECT_THAT(
      names,
      ElementsAre("1.weight", "1.bias", "1.running_mean (buffer)",
                  "1.running_var (buffer)", "1.num_batches_tracked (buffer)"));
  EXPECT_TRUE(experiment.job.model.script.layers[2].writes_input);
  EXPECT_FALSE(experiment.job.model.script.layers[0].writes_input);
  for (const Layer& layer : model.layers) {
    EXPECT_GT(layer.activation_bytes, 0) << layer.name;
  }
}

// Halves of a backward would add up in another order, or go through a graph
// twice, where a child of twice.pt comes to a parameter from two places.
TEST(Script, EndsWithTheSameBytesOnEveryCutAndSchedule) {
  for (const char* file : {"scripted.pt", "twice.pt"}) {
    ExpectSameBytesOnEveryCut(ScriptExperiment(file), {2, 3, 4});
  }
}

// Its buffers move in every forward.
TEST(Script, GoesOnFromCopiedStates) {
  ExpectToGoOnFromCopiedStates(ScriptExperiment("scripted.pt"), 2);
}

TEST(Script, OfTokensTrainsOnEveryCut) {
  Experiment experiment = ScriptOfTokens("tokens.pt");
  const ModelDescription model = Describe(experiment);
  EXPECT_EQ(model.vocabulary, 24);
  EXPECT_EQ(model.label_shape, Shape{8});
  experiment.job.train.epochs = 6;
  const Outcome one = InProcessPipeline(experiment).Run();
  EXPECT_LT(one.losses.back(), 0.9 * one.losses.front());

  ExpectOnEveryCut(experiment, one, {3});
}

TEST(Script, IsTriedWithTheHighestToken) {
  JobSpec spec;
  spec.model.file = ScriptPath("tokens.pt");
  spec.data = DefaultDataSpec("synthetic-tokens");
  spec.data.block = 8;
  spec.data.classes = 25;

  const auto script = ReadScript(spec);

  EXPECT_THAT(script.status().message(),
              Says("layer 0 cannot take samples of shape [8] of "
                   "tokens",
                   "index out of range"));
}

TEST(Script, TrainsToTheLossesOfOneProcess) {
  Experiment experiment = ScriptExperiment("plain.pt");
  TrainSpec& train = experiment.job.train;
  train.steps = 21;
  train.optimizer.momentum = 0.9;
  train.learning_rate.base = 0.05;
  experiment.stages = 3;
  const std::vector<double> ours = InProcessPipeline(experiment).Run().losses;

  torch::jit::Module module = torch::jit::load(ScriptPath("plain.pt"));
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& p : module.parameters()) parameters.push_back(p);
  torch::optim::SGD optimizer(parameters,
                              torch::optim::SGDOptions(0.05).momentum(0.9));
  BatchWalk walk(train, experiment.set.samples, 0);
  std::vector<double> theirs;
  while (const auto batch = walk.Next()) {
    const TensorList whole = experiment.set.Take(
        SampleOrder(train.seed, batch->epoch, experiment.set.samples),
        batch->first, batch->info.samples);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(
        module.forward({ToTorch(whole[0])}).toTensor(), ToTorch(whole[1]));
    loss.backward();
    optimizer.step();
    theirs.push_back(loss.item<float>());
  }

  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t step = 0; step < ours.size(); ++step) {
    EXPECT_NEAR(ours[step], theirs[step], 1e-5) << "step " << step;
  }
  EXPECT_LT(ours.back(), 0.8 * ours.front());
}

// All layers, and what they lose over its first three samples.
class WholeScript {
 public:
  explicit WholeScript(const std::string& file)
      : experiment_(ScriptExperiment(file)), engine_(MakeStage(experiment_)) {}

  // The sum over the samples; NaN where it failed.
  double Loss(BatchPhase phase) {
    BatchInfo batch;
    batch.samples = 3;
    batch.phase = phase;
    const auto result =
        engine_->Forward(batch, 0, experiment_.set.Take({0, 1, 2}, 0, 3));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->loss->loss : std::nan("");
  }

 private:
  const Experiment experiment_;
  std::unique_ptr<StageEngine> engine_;
};

TEST(Script, DropoutAndNormalisationKnowTrainingFromEvaluation) {
  WholeScript script("scripted.pt");

  const double before = script.Loss(BatchPhase::kEvaluate);
  EXPECT_EQ(script.Loss(BatchPhase::kEvaluate), before);
  const double trained = script.Loss(BatchPhase::kTrain);

  EXPECT_NE(trained, before);
  // Its running statistics have moved, as the module was written.
  EXPECT_NE(script.Loss(BatchPhase::kEvaluate), before);
}

// The module itself says whether it is recorded.
TEST(Script, IsNotRecordedWhereNobodyAsksForGradients) {
  WholeScript script("witness.pt");

  EXPECT_NEAR(script.Loss(BatchPhase::kEvaluate) / 3, std::log(3), 1e-6);
  EXPECT_GT(std::abs(script.Loss(BatchPhase::kTrain) / 3 - std::log(3)), 1e-3);
}

TEST(Script, RefusesFilesThatItCannotTrain) {
  const std::pair<const char*, std::vector<const char*>> kBad[] = {
      {"traced.pt", {"traced.pt: it was traced", "torch.jit.script(model)"}},
      {"mixed.pt", {"it was traced"}},
      {"module.pt", {"its root is a Root", "need a torch.nn.Sequential"}},
      {"shared.pt", {"2.weight and 3.weight are one tensor"}},
      {"double.pt", {"layer 1 has weight of dtype Double"}}};
  for (const auto& [file, parts] : kBad) {
    for (const char* part : parts) {
      EXPECT_THAT(WhyNot(ScriptPath(file)), HasSubstr(part));
    }
  }
}

TEST(Script, NamesTheLayerThatTheSamplesDoNotFit) {
  JobSpec spec;
  spec.model.file = ScriptPath("plain.pt");
  spec.data.shape = {2, 5, 5};

  const auto script = ReadScript(spec);

  EXPECT_TRUE(absl::IsInvalidArgument(script.status())) << script.status();
  EXPECT_THAT(script.status().message(),
              HasSubstr("layer 3 cannot take samples of shape [100]"));
}

TEST(Script, AFailureOfItsOwnCodeIsNotCalledOurs) {
  torch::jit::Module module("picky");
  module.define(R"(
    def forward(self, x):
        assert x.size(0) < 4, "only small batches"
        return x
  )");

  const absl::Status status = Guard("forward", [&module]() -> absl::Status {
    module.forward({torch::zeros({4, 2})});
    return absl::OkStatus();
  });

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              Says("forward: the script of model.file", "only small batches",
                   "correct the script"));
}

TEST(Script, RefusesAnEndThatIsNotOneScoreAClass) {
  const Experiment experiment = ScriptExperiment("wrong_end.pt");

  const auto model = DescribeModel(experiment.job.model, {2, 4, 4}, 3);

  EXPECT_THAT(model.status().message(),
              HasSubstr("ends with shape [4] of a sample, need [3]"));
}

TEST(Script, RefusesHostileFiles) {
  std::string folder = "/tmp/script_XXXXXX";
  const std::filesystem::path path = mkdtemp(folder.data());
  const std::string file = path / "net.pt";
  EXPECT_THAT(WhyNot(file), HasSubstr("No such file"));
  EXPECT_THAT(WhyNot(path), HasSubstr("not a regular file"));
  EXPECT_THAT(WhyNot("/dev/zero"), HasSubstr("not a regular file"));

  // Nobody writes to it: whoever waits for that waits for good.
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(WhyNot(file), HasSubstr("not a regular file"));
  std::filesystem::remove(file);

  std::ofstream(file).flush();
  EXPECT_THAT(WhyNot(file), HasSubstr("it is empty"));
  // Nothing but a hole.
  std::filesystem::resize_file(file, uintmax_t{1} << 40);
  EXPECT_THAT(WhyNot(file), HasSubstr("this worker reads at most"));

  std::ofstream(file) << "no archive";
  EXPECT_THAT(WhyNot(file), HasSubstr("not a TorchScript file"));

  for (const double part : {0.2, 0.5, 0.99}) {
    std::filesystem::copy_file(
        ScriptPath("scripted.pt"), file,
        std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(
        file, static_cast<uintmax_t>(part * std::filesystem::file_size(file)));
    EXPECT_THAT(WhyNot(file), HasSubstr("not a TorchScript file")) << part;
  }
  std::filesystem::remove_all(path);
}

TEST(Script, AWorkerWithAnotherFileRefusesTheJob) {
  Experiment experiment = ScriptExperiment("scripted.pt");
  ModelDescription model = Describe(experiment);
  model.file = ScriptPath("plain.pt");

  const auto engine =
      MakeTorchEngine({model, {0, 1}, experiment.job.train, 0, 1});

  EXPECT_TRUE(absl::IsFailedPrecondition(engine.status())) << engine.status();
  EXPECT_THAT(engine.status().message(),
              HasSubstr("put the same file on every worker"));
}

TEST(Script, ALyingDescriptionIsRefused) {
  Experiment experiment = ScriptExperiment("plain.pt");
  experiment.job.model.script.layers[0].parameters[0].shape = {4, 2, 3, 4};
  const ModelDescription model = Describe(experiment);

  const auto engine =
      MakeTorchEngine({model, {0, 1}, experiment.job.train, 0, 8});

  EXPECT_THAT(engine.status().message(),
              HasSubstr("0.weight is not what the file holds"));
}

}  // namespace
}  // namespace paceline

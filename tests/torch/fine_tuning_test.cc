// Training of a part of a model: frozen weights, and adapters beside them.
#include "absl/strings/match.h"
#include "core/model/description.h"
#include "core/model/operation.h"
#include "core/weights/derived.h"
#include "core/weights/safetensors_layout.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"
#include "tests/support/pipeline/whole_state.h"
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
  size_t values = 0, trained = 0;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (!parameter.frozen) values += NumElements(parameter.shape);
      if (parameter.trainable) trained += NumElements(parameter.shape);
    }
  }

  EXPECT_EQ(laid_out, held);
  EXPECT_EQ(flat->FlatGradient()->size(), values);
  int64_t weights = 0;  // with what a tied head borrows
  for (const Layer& layer : model.layers) weights += layer.borrowed_bytes;
  const std::vector<NamedTensor> tensors = engine->Weights().value();
  for (const NamedTensor& each : tensors) {
    weights += static_cast<int64_t>(each.tensor.bytes());
  }
  EngineOptions options;
  options.model = model;
  options.layers = {0, static_cast<int>(model.layers.size())};
  options.train = experiment_.job.train;
  EXPECT_EQ(UpdateBytes(options),
            static_cast<int64_t>(WholeStateOf(*engine).size()) - weights +
                static_cast<int64_t>(trained * sizeof(float)));
}

constexpr Part kParts[] = {
    {"bert", "model.lora.rank=3"},
    {"roberta", "model.lora.rank=2; model.lora.targets=query,value,dense"},
    {"gpt", "model.lora.rank=3; model.lora.targets=c_attn,c_proj,c_fc"},
    {"vit", "model.lora.rank=3; train.activation_checkpointing=every-2"},
    {"vit_b_16", "model.lora.rank=3; model.lora.targets=in_proj,out_proj,0,3"},
    {"gpt", "model.lora.rank=3; precision=bf16"},
    {"gpt", "train.only=last-3"},
    {"gpt", "train.only=head"},
    {"bert", "train.only=norm"},
    {"lenet", "train.only=last-2"},
    {"resnet18", "train.only=norm"},
    {"gnmt", "train.only=last-4"},
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

at::Tensor TensorOf(const std::vector<NamedTensor>& all,
                    const std::string& name) {
  for (const NamedTensor& each : all) {
    if (each.name == name) return ToTorch(each.tensor);
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

// The engine's gradients by name, of one micro-batch; and its loss.
std::map<std::string, at::Tensor> EngineGradients(const Experiment& experiment,
                                                  StageEngine& flat,
                                                  const TensorList& input,
                                                  double* loss) {
  BatchInfo batch;
  batch.micro_batches = 1;
  batch.samples = input[0].shape[0];
  *loss = flat.Forward(batch, 0, input)->loss->loss;
  EXPECT_TRUE(flat.Backward(batch, 0, {}).ok());
  float* next = flat.FlatGradient()->data();
  std::map<std::string, at::Tensor> gradients;
  for (const Layer& layer : Describe(experiment).layers) {
    for (const Parameter& parameter : layer.parameters) {
      if (!parameter.trainable) continue;
      gradients[parameter.name] = at::from_blob(next, parameter.shape).clone();
      next += NumElements(parameter.shape);
    }
  }
  return gradients;
}

void ExpectClose(const at::Tensor& ours, const at::Tensor& theirs,
                 const std::string& name) {
  const double error = (ours - theirs).abs().max().item<double>();
  EXPECT_GT(theirs.abs().max().item<double>(), 0) << name;
  EXPECT_LT(error, 1e-5 + 1e-4 * theirs.abs().max().item<double>()) << name;
}

// A plain loop trains the model without adapters, of which each W is what
// MergeAdapters() made of it: dB is scale dW A^T, dA is scale B^T dW.
TEST(Lora, GradientsAreThoseOfAPlainLoopOverMergedWeights) {
  for (const auto& [name, targets] : {std::pair{"bert", "query,value,dense"},
                                      {"gpt", "c_attn,c_proj,c_fc"},
                                      {"vit", "qkv,proj,fc1,fc2"},
                                      {"vit_b_16", "in_proj,out_proj,0,3"}}) {
    const Experiment experiment =
        Changed(SmallExperiment(name),
                absl::StrCat("model.lora.rank=3; model.lora.alpha=6; "
                             "model.lora.targets=",
                             targets));
    const ModelDescription model = Describe(experiment);
    const auto engine = MakeStage(experiment, 0, 1, false, /*flat=*/true);
    std::vector<NamedTensor> weights = engine->Weights().value();
    for (NamedTensor& each : weights) {
      if (!absl::EndsWith(each.name, kAdapterOut)) continue;
      torch::manual_seed(static_cast<uint64_t>(each.name.size()));
      ToTorch(each.tensor).copy_(0.1 * torch::randn(each.tensor.shape));
    }
    engine->OnWeightsWritten();
    const TensorList input =
        experiment.set.Take(SampleOrder(1, 0, experiment.set.samples), 0, 3);

    double loss = 0;
    const auto ours = EngineGradients(experiment, *engine, input, &loss);
    const auto merged = MergeAdapters(model, weights).value();
    PlainChain plain(SmallExperiment(name));
    for (auto& [parameter, value] : plain.Parameters()) {
      const at::NoGradGuard no_gradient;
      at::Tensor(value).copy_(TensorOf(merged, parameter));
      value.mutable_grad() = at::Tensor();
    }
    const torch::Tensor plain_loss = torch::nn::functional::cross_entropy(
        plain.Forward(ToTorch(input[0]), [](int) {}).flatten(0, -2),
        ToTorch(input[1]).flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().reduction(
            torch::kSum));
    plain_loss.backward();

    EXPECT_NEAR(loss, plain_loss.item<double>(), 1e-4 * loss) << name;
    const auto theirs = plain.Parameters();
    size_t compared = 0;
    for (const AdaptedMap& map : AdaptedMapsOf(model)) {
      at::Tensor of_weight = theirs.at(map.weight).grad();
      if (map.in_first) of_weight = of_weight.t();
      ExpectClose(ours.at(map.out),
                  map.scale * of_weight.mm(TensorOf(weights, map.in).t()),
                  map.out);
      ExpectClose(ours.at(map.in),
                  map.scale * TensorOf(weights, map.out).t().mm(of_weight),
                  map.in);
      compared += 2;
    }
    for (const auto& [parameter, gradient] : ours) {
      if (IsOfAdapter({parameter, {}})) continue;
      ExpectClose(gradient, theirs.at(parameter).grad(), parameter);
      ++compared;
    }
    EXPECT_EQ(compared, ours.size()) << name;
    EXPECT_GE(compared, 16u) << name;
  }
}

// pipedream: each version has adapters and a head of its own, and all have the
// same frozen weights.
TEST(Lora, VersionsShareFrozenWeights) {
  const Experiment experiment =
      Changed(SmallExperiment("bert"), "model.lora.rank=2");
  const auto engine = MakeStage(experiment, 0, 1, /*stashes=*/true);
  const auto before = WeightsOf(*engine);
  const auto order = SampleOrder(1, 0, experiment.set.samples);
  const auto batch = [](int64_t ordinal) {
    BatchInfo info;
    info.ordinal = info.step = ordinal;
    info.micro_batches = 1;
    info.samples = 3;
    return info;
  };
  const int64_t one = engine->Stash().bytes;

  for (const int64_t i : {0, 1}) {
    ASSERT_TRUE(engine->UseVersion(0).ok());
    ASSERT_TRUE(
        engine->Forward(batch(i), 0, experiment.set.Take(order, 3 * i, 3))
            .ok());
  }
  ASSERT_TRUE(engine->Backward(batch(0), 0, {}).ok());
  const auto report = engine->Report(batch(0));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_TRUE(
      engine->Apply(DecideStep(experiment.job.train, 10, {*report})).ok());

  int64_t trained_bytes = 0;
  const auto after = WeightsOf(*engine);
  for (const auto& [name, trains] : Trained(Describe(experiment))) {
    if (trains) trained_bytes += 4 * std::ssize(after.at(name));
    // The gradient of A is 0 while B is.
    if (absl::EndsWith(name, kAdapterIn)) continue;
    EXPECT_EQ(after.at(name) != before.at(name), trains) << name;
  }
  EXPECT_EQ(engine->Stash().versions, 2);
  EXPECT_EQ(engine->Stash().bytes, one + trained_bytes);
  EXPECT_TRUE(engine->Backward(batch(1), 0, {}).ok());
}

}  // namespace
}  // namespace paceline

// The engine against training as anyone would write it: LibTorch's modules and
// autograd over the whole graph, in one loop.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/autocast_mode.h"
#include "core/data/data_sets.h"
#include "core/model/initialize.h"
#include "core/optim/optimizer.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"
#include "tests/torch/plain_convolutions.h"
#include "tests/torch/plain_gnmt.h"
#include "tests/torch/plain_models.h"
#include "torch/torch.h"
#include "worker/torch/allocation_meter.h"
#include "worker/torch/guard.h"
#include "worker/torch/operations/precision.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

namespace F = torch::nn::functional;

std::unique_ptr<PlainModel> MakePlainModel(const Experiment& experiment) {
  const std::string& name = experiment.job.model.name;
  if (name == "mlp") return std::make_unique<PlainMlp>(experiment);
  if (name == "lenet") return std::make_unique<PlainLenet>(experiment);
  if (name == "gnmt") return std::make_unique<PlainGnmt>(experiment);
  if (name == "resnet18" || name == "resnet50") {
    return std::make_unique<PlainResnet>(experiment);
  }
  return std::make_unique<PlainChain>(experiment);
}

absl::Span<float> Values(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// One process, one loop.
class PlainLoop {
 public:
  explicit PlainLoop(const Experiment& experiment)
      : experiment_(experiment),
        train_(experiment.job.train),
        walk_(train_, experiment.set.samples, 0),
        model_(MakePlainModel(experiment)) {
    SetComputeThreads(1);
    Initialize();
  }

  // With our optimizer and our gate; sums of losses, as the engine has them.
  Outcome RunWithOurs() {
    Outcome outcome;
    std::vector<std::vector<std::vector<float>>> states;
    for (const torch::Tensor& parameter : parameters_) {
      states.emplace_back(StateSlots(train_.optimizer),
                          std::vector<float>(parameter.numel()));
    }
    while (const std::optional<WalkBatch> batch = walk_.Next()) {
      const double sum = Accumulate(*batch);
      outcome.losses.push_back(sum / labels_);
      const StepVerdict verdict =
          DecideStep(train_, walk_.total_steps(), {Report(batch->info)});
      for (size_t i = 0; i < parameters_.size(); ++i) {
        std::vector<absl::Span<float>> state;
        for (auto& slot : states[i]) state.push_back(absl::MakeSpan(slot));
        ApplyUpdate(train_.optimizer, verdict, Values(parameters_[i].data()),
                    Values(parameters_[i].grad()), state);
        parameters_[i].grad().zero_();
      }
    }
    for (const auto& [name, parameter] : model_->Parameters()) {
      const auto values = Values(parameter.data());
      outcome.weights[name].assign(values.begin(), values.end());
    }
    for (const auto& named : model_->named_buffers()) {
      const torch::Tensor floats = named.value().to(torch::kFloat);
      const auto values = Values(floats);
      outcome.weights[named.key()].assign(values.begin(), values.end());
    }
    return outcome;
  }

  // With LibTorch's optimizer; the mean loss of every step.
  std::vector<double> RunWith(torch::optim::Optimizer& optimizer) {
    std::vector<double> losses;
    while (const std::optional<WalkBatch> batch = walk_.Next()) {
      optimizer.zero_grad();
      const double sum = Accumulate(*batch);
      losses.push_back(sum / labels_);
      for (const torch::Tensor& parameter : parameters_) {
        parameter.grad().div_(labels_);
      }
      optimizer.step();
    }
    return losses;
  }

  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

 private:
  // The engine's first values, found by name; parameters_ in layer order.
  void Initialize() {
    const auto named = model_->Parameters();
    const ModelDescription model = Describe(experiment_);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      std::vector<absl::Span<float>> spans;
      for (const Parameter& parameter : model.layers[i].parameters) {
        if (!parameter.trainable) {
          // LibTorch's own begin with the same values.
          buffers_.emplace_back(NumElements(parameter.shape));
          spans.push_back(absl::MakeSpan(buffers_.back()));
          continue;
        }
        parameters_.push_back(named.at(parameter.name));
        spans.push_back(Values(parameters_.back().data()));
      }
      InitializeLayer(model.layers[i], train_.seed, static_cast<int>(i), spans);
    }
    EXPECT_EQ(parameters_.size(), named.size());
  }

  // Forward and backward of all micro-batches; returns the sum of losses.
  double Accumulate(const WalkBatch& batch) {
    const auto order =
        SampleOrder(train_.seed, batch.epoch, experiment_.set.samples);
    double sum = 0;
    labels_ = 0;
    int64_t first = batch.first;
    for (int m = 0; m < batch.info.micro_batches; ++m) {
      const int64_t samples =
          MicroBatchSamples(batch.info, train_.micro_batch, m);
      const TensorList micro_batch =
          experiment_.set.Take(order, first, samples);
      first += samples;
      const SeedLayer seed = [&](int layer) {
        torch::manual_seed(DropoutSeed(train_.seed, batch.info.step, m, layer));
      };
      const torch::Tensor loss =
          F::cross_entropy(Logits(ToTorch(micro_batch[0]), seed).flatten(0, -2),
                           ToTorch(micro_batch[1]).flatten(),
                           F::CrossEntropyFuncOptions().reduction(torch::kSum));
      loss.backward();
      sum += loss.item<float>();
      labels_ += ToTorch(micro_batch[1]).ne(kNoLabel).sum().item<double>();
    }
    return sum;
  }

  // In bf16 as LibTorch itself would: with its autocast.  LibTorch 2.6 has
  // newer names for these calls; 1.13 has only these.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  torch::Tensor Logits(const torch::Tensor& x, const SeedLayer& seed) {
    if (experiment_.job.precision == "fp32") return model_->Forward(x, seed);
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    at::autocast::set_cpu_enabled(true);
    const torch::Tensor logits = model_->Forward(x, seed);
    at::autocast::clear_cache();
    at::autocast::set_cpu_enabled(false);
    return logits.to(torch::kFloat);
  }
#pragma GCC diagnostic pop

  StepReport Report(const BatchInfo& batch) const {
    StepReport report;
    report.step = batch.step;
    report.samples = static_cast<int64_t>(labels_);
    for (const torch::Tensor& parameter : parameters_) {
      report.squared_norms.push_back(SquaredNorm(Values(parameter.grad())));
    }
    return report;
  }

  const Experiment experiment_;
  const TrainSpec train_;
  BatchWalk walk_;
  std::unique_ptr<PlainModel> model_;
  std::vector<torch::Tensor> parameters_;
  std::deque<std::vector<float>> buffers_;  // drawn for nobody
  double labels_ = 0;                       // of the last batch
};

void ExpectPlainLoopEndsWithTheSameBytes(Experiment experiment) {
  const Outcome plain = PlainLoop(experiment).RunWithOurs();

  for (const int stages : {1, 4}) {
    experiment.stages = stages;
    const Outcome engine = InProcessPipeline(experiment).Run();
    EXPECT_EQ(engine.losses, plain.losses) << stages << " stages";
    ASSERT_EQ(engine.weights.size(), plain.weights.size());
    for (const auto& [name, values] : engine.weights) {
      const std::vector<float>& theirs = plain.weights.at(name);
      // LibTorch folds in double what we fold in float.
      const bool is_exact = name.find(".running_") == std::string::npos;
      ASSERT_EQ(values.size(), theirs.size()) << name;
      for (size_t i = 0; i < values.size(); ++i) {
        const float error =
            is_exact ? 0 : 1e-6f * std::max(1.0f, std::abs(theirs[i]));
        ASSERT_NEAR(values[i], theirs[i], error)
            << name << " " << i << ", " << stages << " stages";
      }
    }
  }
}

TEST(PlainLoop, EndsWithTheSameBytes) {
  ExpectPlainLoopEndsWithTheSameBytes(SmallExperiment("mlp"));
  ExpectPlainLoopEndsWithTheSameBytes(SmallExperiment("lenet"));
  ExpectPlainLoopEndsWithTheSameBytes(RichExperiment("lenet"));
  ExpectPlainLoopEndsWithTheSameBytes(RichExperiment("vgg11"));
  Experiment vit = RichExperiment("vit");
  vit.job.model.dropout = 0;
  ExpectPlainLoopEndsWithTheSameBytes(vit);
}

TEST(PlainLoop, ResnetsToo) {
  for (const char* name : {"resnet18", "resnet50"}) {
    Experiment experiment = SmallExperiment(name);
    // LibTorch's module refuses to normalise a single value.
    experiment.set.samples = 24;
    ExpectPlainLoopEndsWithTheSameBytes(experiment);
  }
}

// Ours casts a weight once a step and rounds where autocast does.  (Not where
// layers end with something that autocast computes in bf16, dropout or a mean:
// what crosses a boundary is float32.)
TEST(PlainLoop, Bf16IsLibTorchsAutocast) {
  if (!HasBf16Instructions()) GTEST_SKIP() << "no bf16 instructions here";
  for (const char* model : {"mlp", "lenet"}) {
    Experiment experiment = SmallExperiment(model);
    experiment.job.precision = "bf16";

    ExpectPlainLoopEndsWithTheSameBytes(experiment);
  }
}

TEST(PlainLoop, ModulesHaveTheDescriptionsParameters) {
  for (const char* name : {"lenet", "mlp", "resnet18", "resnet50", "gnmt"}) {
    const Experiment experiment = SmallExperiment(name);
    std::map<std::string, Shape> described, built;

    for (const Layer& layer : Describe(experiment).layers) {
      for (const Parameter& parameter : layer.parameters) {
        described[parameter.name] = parameter.shape;
      }
    }
    const auto plain = MakePlainModel(experiment);
    for (const auto& named : plain->named_parameters()) {
      built[named.key()] = named.value().sizes().vec();
    }
    for (const auto& named : plain->named_buffers()) {
      built[named.key()] = named.value().sizes().vec();
    }

    EXPECT_EQ(built, described);
  }
}

// An experiment of at least 20 steps, without what only ours does.
Experiment LongExperiment(const std::string& model) {
  Experiment experiment = SmallExperiment(model);
  experiment.job.train.steps = 21;
  return experiment;
}

class PlainLosses : public ::testing::TestWithParam<const char*> {
 protected:
  static void ExpectNear(const Experiment& experiment, PlainLoop& plain,
                         torch::optim::Optimizer& optimizer) {
    const auto ours = InProcessPipeline(experiment).Run().losses;
    const auto theirs = plain.RunWith(optimizer);
    ASSERT_EQ(ours.size(), theirs.size());
    ASSERT_GE(ours.size(), 20u);
    for (size_t step = 0; step < ours.size(); ++step) {
      EXPECT_NEAR(ours[step], theirs[step], 1e-5) << "step " << step;
    }
    EXPECT_NE(ours.front(), ours.back());
  }
};

TEST_P(PlainLosses, AgreeWithLibTorchsSgd) {
  Experiment experiment = LongExperiment(GetParam());
  OptimizerSpec& spec = experiment.job.train.optimizer;
  spec.momentum = 0.9;
  spec.weight_decay = 0.01;
  experiment.job.train.learning_rate.base = 0.01;
  PlainLoop plain(experiment);
  torch::optim::SGD optimizer(plain.parameters(),
                              torch::optim::SGDOptions(0.01)
                                  .momentum(spec.momentum)
                                  .weight_decay(spec.weight_decay));

  ExpectNear(experiment, plain, optimizer);
}

TEST_P(PlainLosses, AgreeWithLibTorchsAdamw) {
  Experiment experiment = LongExperiment(GetParam());
  OptimizerSpec& spec = experiment.job.train.optimizer;
  spec.name = "adamw";
  spec.momentum = 0;
  spec.weight_decay = 0.05;
  experiment.job.train.learning_rate.base = 0.001;
  PlainLoop plain(experiment);
  torch::optim::AdamW optimizer(plain.parameters(),
                                torch::optim::AdamWOptions(0.001)
                                    .betas({spec.beta1, spec.beta2})
                                    .eps(spec.epsilon)
                                    .weight_decay(spec.weight_decay));

  ExpectNear(experiment, plain, optimizer);
}

INSTANTIATE_TEST_SUITE_P(Models, PlainLosses,
                         ::testing::Values("lenet", "vit", "gpt", "bert",
                                           "roberta", "gnmt"),
                         kNameOfModel);

TEST(TorchEngine, KeepsAboutTheActivationBytesOfItsDescription) {
  for (const std::string& name : ModelNames()) {
    for (const double dropout : {0.0, 0.2}) {
      Experiment experiment = SmallExperiment(name);
      experiment.job.model.dropout = dropout;
      TrainSpec& train = experiment.job.train;
      train.batch = train.micro_batch = 16;
      const auto engine = MakeStage(experiment);
      BatchInfo batch;
      batch.samples = train.batch;
      int64_t described = 0;
      for (const Layer& layer : Describe(experiment).layers) {
        described += layer.activation_bytes * batch.samples;
      }
      const std::vector<int32_t> order = SampleOrder(1, 0, batch.samples);
      const TensorList input = experiment.set.Take(order, 0, batch.samples);

      const AllocationMeter meter(/*enabled=*/true);
      ASSERT_TRUE(engine->Forward(batch, 0, input).ok());
      const int64_t kept = meter.live_bytes() + input[0].bytes();

      EXPECT_LE(kept, 1.05 * described) << name << ", dropout " << dropout;
      EXPECT_GE(kept, 0.5 * described) << name << ", dropout " << dropout;
      ASSERT_TRUE(engine->Backward(batch, 0, {}).ok());
      EXPECT_LE(meter.live_bytes(), 0.01 * described) << name;
    }
  }
}

TEST(TensorBridge, BothWaysShareTheMemoryAndKeepItAlive) {
  Tensor ours = Tensor::Allocate(DType::kF32, {2, 3});
  for (float& value : ours.As<float>()) value = 1;
  const uint8_t* memory = ours.data.get();

  at::Tensor theirs = ToTorch(ours);
  ours = {};
  Tensor back = FromTorch(theirs);
  theirs.reset();

  EXPECT_EQ(back.data.get(), memory);
  EXPECT_EQ(back.shape, (Shape{2, 3}));
  EXPECT_EQ(back.As<float>()[5], 1);
}

// With share s and temperature t, sums over the rows that have a label:
// (1 - s) CE + s t^2 sum of p (log p - log q).
TEST(DistilledLoss, IsTheFormulaOverTheRowsThatHaveALabel) {
  const at::Tensor logits = at::randn({4, 3}), teacher = at::randn({4, 3});
  Tensor labels = Tensor::Allocate(DType::kI64, {4});
  const int64_t kLabels[] = {2, kNoLabel, 0, 1};
  std::copy(std::begin(kLabels), std::end(kLabels),
            labels.As<int64_t>().begin());
  const double s = 0.25, t = 4;
  const auto softmax = [](const at::Tensor& row, double by) {
    const at::Tensor powers = (row / by).to(at::kDouble).exp();
    return at::Tensor(powers / powers.sum());
  };
  double expected = 0;
  for (int row = 0; row < 4; ++row) {
    if (kLabels[row] == kNoLabel) continue;
    const at::Tensor p = softmax(teacher[row], t), q = softmax(logits[row], t);
    expected -= (1 - s) *
                std::log(softmax(logits[row], 1)[kLabels[row]].item<double>());
    expected += s * t * t * (p * (p.log() - q.log())).sum().item<double>();
  }

  const at::Tensor loss =
      DistilledLossOf(LossOf(logits, labels), logits, teacher, labels,
                      {.weights = "", .share = s, .temperature = t});

  EXPECT_NEAR(loss.item<double>(), expected, 1e-5 * std::abs(expected));
}

TEST(TensorBridge, LastViewFreesTheMemory) {
  Tensor ours = Tensor::Allocate(DType::kI64, {4});
  const std::weak_ptr<uint8_t> watch = ours.data;
  at::Tensor theirs = ToTorch(ours);
  Tensor back = FromTorch(theirs);

  ours = {};
  EXPECT_FALSE(watch.expired());
  theirs.reset();
  EXPECT_FALSE(watch.expired());
  back = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Guard, TurnsWhatIsThrownIntoStatus) {
  const auto status_of = [](auto thrower) {
    return Guard("work", [&]() -> absl::Status {
      thrower();
      return absl::OkStatus();
    });
  };

  const absl::Status shape = status_of([] {
    torch::matmul(torch::ones({2, 3}), torch::ones({2, 3}));
  });
  EXPECT_TRUE(absl::IsInternal(shape));
  EXPECT_NE(shape.message().find("work: LibTorch:"), absl::string_view::npos);
  EXPECT_TRUE(absl::IsResourceExhausted(
      status_of([] { torch::empty({int64_t{1} << 55}); })));
  EXPECT_TRUE(
      absl::IsResourceExhausted(status_of([] { throw std::bad_alloc(); })));
  EXPECT_TRUE(
      absl::IsInternal(status_of([] { throw std::runtime_error("odd"); })));
  EXPECT_TRUE(status_of([] {}).ok());
}

}  // namespace
}  // namespace paceline

// The engine against training as anyone would write it: LibTorch's modules and
// autograd over the whole graph, in one loop.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/model/initialize.h"
#include "core/optim/optimizer.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"
#include "torch/torch.h"
#include "worker/torch/guard.h"
#include "worker/torch/tensor_bridge.h"

namespace paceline {
namespace {

namespace F = torch::nn::functional;

// Where a module draws, it says which layer of the chain it is.
using SeedLayer = std::function<void(int layer)>;

class PlainModel : public torch::nn::Module {
 public:
  virtual torch::Tensor Forward(torch::Tensor x, const SeedLayer& seed) = 0;
};

class PlainMlp final : public PlainModel {
 public:
  explicit PlainMlp(const Experiment& experiment) {
    int64_t in = NumElements(experiment.set.shape);
    const ModelSpec& spec = experiment.job.model;
    for (const int64_t out : spec.hidden) {
      layers_->push_back(torch::nn::Linear(in, out));
      in = out;
    }
    layers_->push_back(torch::nn::Linear(in, experiment.set.classes));
    register_module("layers", layers_);
  }

  torch::Tensor Forward(torch::Tensor x, const SeedLayer&) override {
    x = x.flatten(1);
    for (size_t i = 0; i < layers_->size(); ++i) {
      x = layers_[i]->as<torch::nn::Linear>()->forward(x);
      if (i + 1 < layers_->size()) x = torch::relu(x);
    }
    return x;
  }

 private:
  torch::nn::ModuleList layers_;
};

class PlainLenet final : public PlainModel {
 public:
  explicit PlainLenet(const Experiment& experiment)
      : features_(Convolution(1, 16), torch::nn::ReLU(), Pool(),
                  Convolution(16, 32), torch::nn::ReLU(), Pool(),
                  Convolution(32, 32), torch::nn::ReLU()),
        classifier_(Drop(experiment), torch::nn::Linear(1568, 128),
                    torch::nn::ReLU(), Drop(experiment),
                    torch::nn::Linear(128, 64), torch::nn::ReLU(),
                    torch::nn::Linear(64, 10)) {
    register_module("features", features_);
    register_module("classifier", classifier_);
  }

  torch::Tensor Forward(torch::Tensor x, const SeedLayer& seed) override {
    x = features_->forward(x).flatten(1);
    seed(5);
    x = classifier_[0]->as<torch::nn::Dropout>()->forward(x);
    x = torch::relu(classifier_[1]->as<torch::nn::Linear>()->forward(x));
    seed(6);
    x = classifier_[3]->as<torch::nn::Dropout>()->forward(x);
    x = torch::relu(classifier_[4]->as<torch::nn::Linear>()->forward(x));
    return classifier_[6]->as<torch::nn::Linear>()->forward(x);
  }

 private:
  static torch::nn::Conv2d Convolution(int64_t in, int64_t out) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, 3).stride(1).padding(1));
  }
  static torch::nn::MaxPool2d Pool() {
    return torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).stride(2));
  }
  static torch::nn::Dropout Drop(const Experiment& experiment) {
    return torch::nn::Dropout(experiment.job.model.dropout);
  }

  torch::nn::Sequential features_;
  torch::nn::Sequential classifier_;
};

class PlainAttention final : public torch::nn::Module {
 public:
  PlainAttention(int64_t width, int64_t heads)
      : heads_(heads), qkv_(width, 3 * width), proj_(width, width) {
    register_module("qkv", qkv_);
    register_module("proj", proj_);
  }

  // As timm 0.6 writes it.
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t n = x.size(0), t = x.size(1), w = x.size(2);
    const auto qkv = qkv_->forward(x)
                         .reshape({n, t, 3, heads_, w / heads_})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
    const double scale = std::pow(static_cast<double>(w / heads_), -0.5);
    auto weights = qkv[0].matmul(qkv[1].transpose(-2, -1)) * scale;
    weights = weights.softmax(-1);
    return proj_->forward(
        weights.matmul(qkv[2]).transpose(1, 2).reshape({n, t, w}));
  }

 private:
  const int64_t heads_;
  torch::nn::Linear qkv_;
  torch::nn::Linear proj_;
};

torch::nn::LayerNorm Norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-6));
}

class PlainMlpHalf final : public torch::nn::Module {
 public:
  explicit PlainMlpHalf(int64_t width)
      : fc1_(width, 4 * width), fc2_(4 * width, width) {
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return fc2_->forward(torch::gelu(fc1_->forward(x)));
  }

 private:
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

class PlainBlock final : public torch::nn::Module {
 public:
  PlainBlock(int64_t width, int64_t heads)
      : norm1_(Norm(width)),
        attention_(std::make_shared<PlainAttention>(width, heads)),
        norm2_(Norm(width)),
        mlp_(std::make_shared<PlainMlpHalf>(width)) {
    register_module("norm1", norm1_);
    register_module("attn", attention_);
    register_module("norm2", norm2_);
    register_module("mlp", mlp_);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = x + attention_->forward(norm1_->forward(x));
    return x + mlp_->forward(norm2_->forward(x));
  }

 private:
  torch::nn::LayerNorm norm1_;
  std::shared_ptr<PlainAttention> attention_;
  torch::nn::LayerNorm norm2_;
  std::shared_ptr<PlainMlpHalf> mlp_;
};

class PlainPatches final : public torch::nn::Module {
 public:
  PlainPatches(int64_t width, int64_t patch)
      : proj_(torch::nn::Conv2dOptions(1, width, patch).stride(patch)) {
    register_module("proj", proj_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return proj_->forward(x).flatten(2).transpose(1, 2);
  }

 private:
  torch::nn::Conv2d proj_;
};

class PlainVit final : public PlainModel {
 public:
  explicit PlainVit(const Experiment& experiment)
      : norm_(Norm(experiment.job.model.width)),
        head_(experiment.job.model.width, 10) {
    const ModelSpec& spec = experiment.job.model;
    const int64_t edge = 28 / spec.patch;
    patches_ = std::make_shared<PlainPatches>(spec.width, spec.patch);
    register_module("patch_embed", patches_);
    token_ = register_parameter("cls_token", torch::zeros({1, 1, spec.width}));
    position_ = register_parameter(
        "pos_embed", torch::zeros({1, edge * edge + 1, spec.width}));
    for (int i = 0; i < spec.depth; ++i) {
      blocks_->push_back(std::make_shared<PlainBlock>(spec.width, spec.heads));
    }
    register_module("blocks", blocks_);
    register_module("norm", norm_);
    register_module("head", head_);
  }

  torch::Tensor Forward(torch::Tensor x, const SeedLayer&) override {
    x = patches_->forward(x);
    x = torch::cat({token_.expand({x.size(0), -1, -1}), x}, 1) + position_;
    for (const auto& block : *blocks_) x = block->as<PlainBlock>()->forward(x);
    return head_->forward(norm_->forward(x).select(1, 0));
  }

 private:
  std::shared_ptr<PlainPatches> patches_;
  torch::Tensor token_;
  torch::Tensor position_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};

std::unique_ptr<PlainModel> MakePlainModel(const Experiment& experiment) {
  const std::string& name = experiment.job.model.name;
  if (name == "mlp") return std::make_unique<PlainMlp>(experiment);
  if (name == "lenet") return std::make_unique<PlainLenet>(experiment);
  return std::make_unique<PlainVit>(experiment);
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
      outcome.losses.push_back(Accumulate(*batch) / batch->info.samples);
      const StepVerdict verdict =
          DecideStep(train_, walk_.total_steps(), {Report(batch->info)});
      for (size_t i = 0; i < parameters_.size(); ++i) {
        std::vector<absl::Span<float>> state;
        for (auto& slot : states[i]) state.push_back(absl::MakeSpan(slot));
        ApplyUpdate(train_.optimizer, verdict, Values(parameters_[i].data()),
                    Values(parameters_[i].grad()), state);
      }
      model_->zero_grad();
    }
    for (const auto& named : model_->named_parameters()) {
      const auto values = Values(named.value().data());
      outcome.weights[named.key()].assign(values.begin(), values.end());
    }
    return outcome;
  }

  // With LibTorch's optimizer; the mean loss of every step.
  std::vector<double> RunWith(torch::optim::Optimizer& optimizer) {
    std::vector<double> losses;
    while (const std::optional<WalkBatch> batch = walk_.Next()) {
      optimizer.zero_grad();
      losses.push_back(Accumulate(*batch) / batch->info.samples);
      for (const torch::Tensor& parameter : parameters_) {
        parameter.grad().div_(static_cast<double>(batch->info.samples));
      }
      optimizer.step();
    }
    return losses;
  }

  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

 private:
  // The engine's first values, found by name; parameters_ in layer order.
  void Initialize() {
    const auto named = model_->named_parameters();
    const ModelDescription model = Describe(experiment_);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      std::vector<absl::Span<float>> spans;
      for (const Parameter& parameter : model.layers[i].parameters) {
        parameters_.push_back(named[parameter.name]);
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
          F::cross_entropy(model_->Forward(ToTorch(micro_batch[0]), seed),
                           ToTorch(micro_batch[1]),
                           F::CrossEntropyFuncOptions().reduction(torch::kSum));
      loss.backward();
      sum += loss.item<float>();
    }
    return sum;
  }

  StepReport Report(const BatchInfo& batch) const {
    StepReport report;
    report.step = batch.step;
    report.samples = batch.samples;
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
};

void ExpectPlainLoopEndsWithTheSameBytes(Experiment experiment) {
  const Outcome plain = PlainLoop(experiment).RunWithOurs();

  for (const int stages : {1, 4}) {
    experiment.stages = stages;
    const Outcome engine = InProcessPipeline(experiment).Run();
    EXPECT_EQ(engine.losses, plain.losses) << stages << " stages";
    EXPECT_EQ(engine.weights, plain.weights) << stages << " stages";
  }
}

TEST(PlainLoop, LenetEndsWithTheSameBytes) {
  ExpectPlainLoopEndsWithTheSameBytes(SmallExperiment("lenet"));
}

TEST(PlainLoop, LenetWithDropoutAdamwAndClippingToo) {
  ExpectPlainLoopEndsWithTheSameBytes(RichExperiment("lenet"));
}

TEST(PlainLoop, VitWithAdamwAndClippingToo) {
  Experiment experiment = RichExperiment("vit");
  experiment.job.model.dropout = 0;

  ExpectPlainLoopEndsWithTheSameBytes(experiment);
}

TEST(PlainLoop, MlpToo) {
  ExpectPlainLoopEndsWithTheSameBytes(SmallExperiment("mlp"));
}

TEST(PlainLoop, ModulesHaveTheDescriptionsParameters) {
  for (const char* name : {"lenet", "mlp", "vit"}) {
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

    EXPECT_EQ(built, described);
  }
}

// An experiment of at least 20 steps, without what only ours does.
Experiment LongExperiment(const std::string& model) {
  Experiment experiment = SmallExperiment(model);
  experiment.job.train.steps = 21;
  return experiment;
}

void ExpectLossesNear(const std::vector<double>& ours,
                      const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  ASSERT_GE(ours.size(), 20u);
  for (size_t step = 0; step < ours.size(); ++step) {
    EXPECT_NEAR(ours[step], theirs[step], 1e-5) << "step " << step;
  }
  EXPECT_NE(ours.front(), ours.back());
}

TEST(PlainLoop, LossesAgreeWithLibTorchsSgd) {
  for (const char* model : {"lenet", "vit"}) {
    Experiment experiment = LongExperiment(model);
    OptimizerSpec& spec = experiment.job.train.optimizer;
    spec.momentum = 0.9;
    spec.weight_decay = 0.01;
    experiment.job.train.learning_rate.base = 0.01;
    PlainLoop plain(experiment);
    torch::optim::SGD optimizer(plain.parameters(),
                                torch::optim::SGDOptions(0.01)
                                    .momentum(spec.momentum)
                                    .weight_decay(spec.weight_decay));

    ExpectLossesNear(InProcessPipeline(experiment).Run().losses,
                     plain.RunWith(optimizer));
  }
}

TEST(PlainLoop, LossesAgreeWithLibTorchsAdamw) {
  for (const char* model : {"lenet", "vit"}) {
    Experiment experiment = LongExperiment(model);
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

    ExpectLossesNear(InProcessPipeline(experiment).Run().losses,
                     plain.RunWith(optimizer));
  }
}

// Counts what LibTorch's allocator has given out since.
class MemoryMeter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, int64_t, int64_t,
                         c10::Device) override {
    held_ += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t held() const { return held_; }

 private:
  int64_t held_ = 0;
};

TEST(TorchEngine, KeepsAboutTheActivationBytesOfItsDescription) {
  for (const std::string& name : ModelNames()) {
    for (const double dropout : {0.0, 0.2}) {
      Experiment experiment = SmallExperiment(name);
      experiment.job.model.dropout = dropout;
      TrainSpec& train = experiment.job.train;
      train.batch = train.micro_batch = 16;
      const ModelDescription model = Describe(experiment);
      const int layers = static_cast<int>(model.layers.size());
      const auto engine = MakeTorchEngine({model, {0, layers}, train, 0, 1});
      ASSERT_TRUE(engine.ok()) << engine.status();
      BatchInfo batch;
      batch.samples = train.batch;
      int64_t described = 0;
      for (const Layer& layer : model.layers) {
        described += layer.activation_bytes * batch.samples;
      }
      const std::vector<int32_t> order = SampleOrder(1, 0, batch.samples);
      const TensorList input = experiment.set.Take(order, 0, batch.samples);

      const auto meter = std::make_shared<MemoryMeter>();
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE,
                                      meter);
      ASSERT_TRUE((*engine)->Forward(batch, 0, input).ok());
      const int64_t kept = meter->held() + input[0].bytes();

      EXPECT_LE(kept, 1.05 * described) << name << ", dropout " << dropout;
      EXPECT_GE(kept, 0.5 * described) << name << ", dropout " << dropout;
      ASSERT_TRUE((*engine)->Backward(batch, 0, {}).ok());
      EXPECT_LE(meter->held(), 0.01 * described) << name;
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

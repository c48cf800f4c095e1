// Models as anyone would write them with LibTorch's own modules; they know
// nothing of layers.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/torch/in_process_pipeline.h"
#include "torch/torch.h"
#include "worker/torch/torch_layer.h"

namespace paceline {

// Where a module draws, it says which layer of the chain it is.
using SeedLayer = std::function<void(int layer)>;

class PlainModel : public torch::nn::Module {
 public:
  virtual torch::Tensor Forward(torch::Tensor x, const SeedLayer& seed) = 0;
  // All that is trained, by the names of the description.
  virtual std::map<std::string, torch::Tensor> Parameters() {
    std::map<std::string, torch::Tensor> all;
    for (const auto& named : named_parameters()) {
      all[named.key()] = named.value();
    }
    return all;
  }
};

// Our own layers, whose outputs logits_test.cc proves, in one graph over the
// whole model.  Where a layer borrows a parameter, it is the owner's.
class PlainChain final : public PlainModel {
 public:
  explicit PlainChain(const Experiment& experiment)
      : model_(Describe(experiment)) {
    layers_.reserve(model_.layers.size());
    for (const Layer& layer : model_.layers) {
      TorchLayer& added = layers_.emplace_back(
          layer, 1, static_cast<int>(layers_.size()), 0, products_);
      std::vector<at::Tensor> variables;
      for (const TorchParameter& each : added.parameters()) {
        variables.push_back(each.borrowed ? parameters_.at(each.name)
                                          : each.variable);
        if (each.trainable) parameters_[each.name] = variables.back();
      }
      added.Bind(variables);
    }
  }

  torch::Tensor Forward(torch::Tensor x, const SeedLayer& seed) override {
    std::vector<at::Tensor> beside;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i].draws()) seed(static_cast<int>(i));
      x = layers_[i].Forward(x, /*training=*/true, nullptr, &beside);
    }
    return x;
  }
  std::map<std::string, torch::Tensor> Parameters() override {
    return parameters_;
  }

 private:
  const ModelDescription model_;
  Products products_{Precision::kF32};
  std::vector<TorchLayer> layers_;
  std::map<std::string, torch::Tensor> parameters_;
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

inline torch::nn::LayerNorm Norm(int64_t width) {
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

  // The convolution as a product of matrices: the same up to rounding.
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor patches =
        torch::im2col(x, proj_->options.kernel_size(), /*dilation=*/{1, 1},
                      /*padding=*/{0, 0}, proj_->options.stride());
    return torch::linear(patches.transpose(1, 2).contiguous(),
                         proj_->weight.flatten(1), proj_->bias);
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

}  // namespace paceline

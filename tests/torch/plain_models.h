// Models as anyone would write them with LibTorch's own modules; they know
// nothing of layers.
#pragma once

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

}  // namespace paceline

// ResNet with LibTorch's own modules, called as torchvision calls them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/torch/in_process_pipeline.h"
#include "tests/torch/plain_models.h"
#include "torch/torch.h"

namespace paceline {

inline torch::nn::Conv2d PlainConvolution(int64_t in, int64_t out,
                                          int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .bias(false));
}

class PlainResidual final : public torch::nn::Module {
 public:
  PlainResidual(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      Add(in, width, 1, 1);
      Add(width, width, 3, stride);
      Add(width, out, 1, 1);
    } else {
      Add(in, width, 3, stride);
      Add(width, width, 3, 1);
    }
    if (stride == 1 && in == out) return;
    downsample_ = torch::nn::Sequential(PlainConvolution(in, out, 1, stride),
                                        torch::nn::BatchNorm2d(out));
    register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      y = norms_[i]->forward(convolutions_[i]->forward(y));
      if (i + 1 < convolutions_.size()) y = torch::relu(y);
    }
    return torch::relu(y +
                       (downsample_.is_empty() ? x : downsample_->forward(x)));
  }

 private:
  void Add(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.push_back(register_module(
        "conv" + number, PlainConvolution(in, out, kernel, stride)));
    norms_.push_back(
        register_module("bn" + number, torch::nn::BatchNorm2d(out)));
  }

  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential downsample_ = nullptr;
};

class PlainResnet final : public PlainModel {
 public:
  explicit PlainResnet(const Experiment& experiment) {
    const int64_t width = experiment.job.model.width;
    const bool bottleneck = experiment.job.model.name == "resnet50";
    const std::vector<int> blocks = bottleneck ? std::vector<int>{3, 4, 6, 3}
                                               : std::vector<int>{2, 2, 2, 2};
    stem_ = register_module(
        "conv1", PlainConvolution(experiment.set.shape[0], width, 7, 2));
    norm_ = register_module("bn1", torch::nn::BatchNorm2d(width));
    int64_t in = width;
    for (int group = 0; group < 4; ++group) {
      torch::nn::Sequential layer;
      const int64_t channels = width << group;
      for (int block = 0; block < blocks[group]; ++block) {
        layer->push_back(std::make_shared<PlainResidual>(
            in, channels, group > 0 && block == 0 ? 2 : 1, bottleneck));
        in = bottleneck ? 4 * channels : channels;
      }
      layers_.push_back(
          register_module("layer" + std::to_string(group + 1), layer));
    }
    head_ =
        register_module("fc", torch::nn::Linear(in, experiment.set.classes));
  }

  torch::Tensor Forward(torch::Tensor x, const SeedLayer&) override {
    x = torch::relu(norm_->forward(stem_->forward(x)));
    x = torch::max_pool2d(x, 3, 2, 1);
    for (auto& layer : layers_) x = layer->forward(x);
    return head_->forward(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  torch::nn::Conv2d stem_ = nullptr;
  torch::nn::BatchNorm2d norm_ = nullptr;
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear head_ = nullptr;
};

}  // namespace paceline

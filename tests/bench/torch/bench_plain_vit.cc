// DeiT-S as anybody would write it with LibTorch's modules, run in a plain
// loop: forward, or with `train` forward and backward.  What one node of a mesh
// is measured against, with as many threads as a worker has.  Run it where the
// worker runs: deploy/testbed.sh exec --on 1 -- bench_plain_vit
//   bench_plain_vit [MICRO_BATCHES [SAMPLES [THREADS [infer|train]]]]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "torch/torch.h"
#include "worker/torch/engine.h"

namespace {

constexpr int64_t kWidth = 384;
constexpr int64_t kHeads = 6;
constexpr int64_t kDepth = 12;
constexpr int64_t kPatch = 16;
constexpr int64_t kPixels = 224;
constexpr int64_t kTokens = (kPixels / kPatch) * (kPixels / kPatch) + 1;
constexpr int64_t kClasses = 1000;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : norm1(register_module("norm1", Norm())),
        qkv(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        proj(register_module("proj", torch::nn::Linear(kWidth, kWidth))),
        norm2(register_module("norm2", Norm())),
        fc1(register_module("fc1", torch::nn::Linear(kWidth, 4 * kWidth))),
        fc2(register_module("fc2", torch::nn::Linear(4 * kWidth, kWidth))) {}

  static torch::nn::LayerNorm Norm() {
    return torch::nn::LayerNorm(
        torch::nn::LayerNormOptions({kWidth}).eps(1e-6));
  }

  at::Tensor Attend(const at::Tensor& x) {
    const int64_t n = x.size(0);
    const int64_t each = kWidth / kHeads;
    const at::Tensor all =
        qkv(x).reshape({n, kTokens, 3, kHeads, each}).permute({2, 0, 3, 1, 4});
    const at::Tensor q = all[0];
    const at::Tensor k = all[1];
    const at::Tensor scores =
        q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(each));
    const at::Tensor seen = scores.softmax(-1).matmul(all[2]);
    return proj(seen.transpose(1, 2).reshape({n, kTokens, kWidth}));
  }

  at::Tensor forward(at::Tensor x) {
    x = x + Attend(norm1(x));
    return x + fc2(torch::gelu(fc1(norm2(x))));
  }

  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv, proj;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Block);

struct VitImpl : torch::nn::Module {
  VitImpl()
      : patches(register_module(
            "patches",
            torch::nn::Conv2d(
                torch::nn::Conv2dOptions(3, kWidth, kPatch).stride(kPatch)))),
        blocks(register_module("blocks", torch::nn::Sequential())),
        norm(register_module("norm", BlockImpl::Norm())),
        head(register_module("head", torch::nn::Linear(kWidth, kClasses))),
        token(register_parameter("token", torch::zeros({1, 1, kWidth}))),
        position(register_parameter("position",
                                    torch::randn({1, kTokens, kWidth}))) {
    for (int64_t i = 0; i < kDepth; ++i) blocks->push_back(Block());
  }

  at::Tensor forward(const at::Tensor& pictures) {
    at::Tensor x = patches(pictures).flatten(2).transpose(1, 2);
    x = torch::cat({token.expand({x.size(0), -1, -1}), x}, 1) + position;
    return head(norm(blocks->forward(x)).select(1, 0));
  }

  torch::nn::Conv2d patches;
  torch::nn::Sequential blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
  at::Tensor token, position;
};
TORCH_MODULE(Vit);

int64_t Argument(int argc, char** argv, int index, int64_t otherwise) {
  const int64_t value = argc > index ? std::atoll(argv[index]) : otherwise;
  return value > 0 ? value : otherwise;
}

// The sum of what came out, so that somebody looks at every result.
double Forward(Vit& model, const at::Tensor& pictures) {
  return model->forward(pictures).sum().item<double>();
}

// Gradients add up, as they do over a batch.
double ForwardAndBackward(Vit& model, const at::Tensor& pictures) {
  const at::Tensor labels =
      torch::zeros({pictures.size(0)}, torch::dtype(torch::kInt64));
  const at::Tensor loss =
      torch::cross_entropy_loss(model->forward(pictures), labels);
  loss.backward();
  return loss.item<double>();
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t micro_batches = Argument(argc, argv, 1, 24);
  const int64_t samples = Argument(argc, argv, 2, 4);
  paceline::SetComputeThreads(static_cast<int>(Argument(argc, argv, 3, 1)));
  const bool trains = argc > 4 && std::string_view(argv[4]) == "train";
  const auto run = trains ? ForwardAndBackward : Forward;
  torch::manual_seed(1);
  const c10::InferenceMode guard(!trains);
  Vit model;
  model->train(trains);
  const at::Tensor pictures = torch::rand({samples, 3, kPixels, kPixels});
  for (int i = 0; i < 2; ++i) run(model, pictures);

  const auto begin = std::chrono::steady_clock::now();
  double sum = 0;
  for (int64_t i = 0; i < micro_batches; ++i) sum += run(model, pictures);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  std::printf("%.4f samples/s, %lld micro-batches of %lld in %.2f s (%g)\n",
              static_cast<double>(micro_batches * samples) / seconds.count(),
              static_cast<long long>(micro_batches),
              static_cast<long long>(samples), seconds.count(), sum);
  return std::isfinite(sum) ? 0 : 1;
}

// A layer of an LSTM, forward and backward, by LibTorch's own operator and by
// ours (worker/torch/operations/computations.h): one thread.
#include "benchmark/benchmark.h"
#include "torch/torch.h"
#include "worker/torch/engine.h"
#include "worker/torch/operations/computations.h"

namespace paceline {
namespace {

constexpr int64_t kSamples = 16;

// Width and tokens.
struct Sizes {
  explicit Sizes(const benchmark::State& state)
      : width(state.range(0)), tokens(state.range(1)) {
    SetComputeThreads(1);
    torch::manual_seed(1);
  }

  at::Tensor Input() const {
    return at::rand({tokens, kSamples, width}).set_requires_grad(true);
  }

  int64_t width;
  int64_t tokens;
};

void TimeLibTorchs(benchmark::State& state) {
  const Sizes sizes(state);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(sizes.width, sizes.width));
  const at::Tensor x = sizes.Input();
  for (auto _ : state) std::get<0>(lstm->forward(x)).sum().backward();
}

void TimeOurs(benchmark::State& state, Precision precision) {
  const Sizes sizes(state);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(sizes.width, sizes.width));
  const std::vector<at::Tensor> weights = lstm->parameters();
  const at::Tensor x = sizes.Input();
  Products products(precision);
  for (auto _ : state) {
    const at::Tensor gates =
        AsFloat(products.Linear(x, weights[0], weights[2]));
    RunLstm(gates, weights[1], weights[3], products).sum().backward();
  }
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({128, 16})->Args({1024, 50})->Unit(benchmark::kMillisecond);
}

BENCHMARK(TimeLibTorchs)->Apply(Shapes);
BENCHMARK_CAPTURE(TimeOurs, fp32, Precision::kF32)->Apply(Shapes);
BENCHMARK_CAPTURE(TimeOurs, bf16, Precision::kBf16)->Apply(Shapes);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();

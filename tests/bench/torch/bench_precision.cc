// Measures what bf16 saves, and casting weights once a version: forward
// and backward of two blocks of DeiT-S, eight micro-batches a version, one
// thread.  `autocast` is LibTorch's own, over the same layers.
#include <cstdint>
#include <vector>

#include "ATen/autocast_mode.h"
#include "benchmark/benchmark.h"
#include "core/model/description.h"
#include "torch/torch.h"
#include "worker/torch/engine.h"
#include "worker/torch/operations/precision.h"
#include "worker/torch/torch_layer.h"

namespace paceline {
namespace {

constexpr int64_t kSamples = 4;
constexpr int kMicroBatches = 8;

enum class Way { kFp32, kOnceAVersion, kOnceAMicroBatch, kAutocast, kRounded };

class Blocks {
 public:
  explicit Blocks(Way way)
      : way_(way),
        products_(way == Way::kFp32 || way == Way::kAutocast ? Precision::kF32
                                                             : Precision::kBf16,
                  way != Way::kRounded) {
    SetComputeThreads(1);
    ModelSpec spec;
    spec.name = "vit";
    spec.depth = 2;
    spec.width = 384;
    spec.heads = 6;
    spec.patch = 16;
    const ModelDescription model =
        DescribeModel(spec, {3, 224, 224}, 1000).value();
    const int last = static_cast<int>(model.layers.size()) - 1;
    layers_.reserve(last);
    for (int i = 1; i < last; ++i) {
      layers_.emplace_back(model.layers[i], 1, i, 0, products_);
    }
    input_ = at::rand({kSamples, 197, 384}) - 0.5;
  }

  void MicroBatch() {
    std::vector<at::Tensor> inputs, outputs;
    at::Tensor x = input_;
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    at::autocast::set_cpu_enabled(way_ == Way::kAutocast);
    for (const TorchLayer& layer : layers_) {
      inputs.push_back(x.detach().set_requires_grad(true));
      outputs.push_back(layer.Forward(inputs.back(), true, nullptr));
      x = outputs.back().detach();
    }
    at::autocast::clear_cache();
    at::autocast::set_cpu_enabled(false);
    at::Tensor gradient = input_;
    for (size_t i = outputs.size(); i-- > 0;) {
      torch::autograd::backward({outputs[i]}, {gradient});
      gradient = inputs[i].grad();
    }
    if (way_ == Way::kOnceAMicroBatch) products_.ForgetAll();
  }
  void NextVersion() { products_.ForgetAll(); }

 private:
  const Way way_;
  Products products_;
  std::vector<TorchLayer> layers_;
  at::Tensor input_;
};

void Train(benchmark::State& state, Way way) {
  const bool native = way == Way::kOnceAVersion ||
                      way == Way::kOnceAMicroBatch || way == Way::kAutocast;
  if (native && !HasBf16Instructions()) {
    state.SkipWithError("no bf16 instructions here");
    return;
  }
  Blocks blocks(way);
  for (auto _ : state) {
    for (int i = 0; i < kMicroBatches; ++i) blocks.MicroBatch();
    blocks.NextVersion();
  }
  state.counters["seconds_a_micro_batch"] = benchmark::Counter(
      kMicroBatches, benchmark::Counter::kIsIterationInvariantRate |
                         benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(Train, fp32, Way::kFp32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Train, bf16_once_a_version, Way::kOnceAVersion)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Train, bf16_once_a_micro_batch, Way::kOnceAMicroBatch)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Train, bf16_autocast, Way::kAutocast)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Train, bf16_rounded, Way::kRounded)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();

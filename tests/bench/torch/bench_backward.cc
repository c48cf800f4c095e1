// Measures what a backward in two halves costs against a whole one
// (zero-bubble): layers of the size of DeiT-S, one thread.
#include <chrono>
#include <memory>

#include "benchmark/benchmark.h"
#include "core/base/errors.h"
#include "worker/torch/engine.h"

namespace paceline {
namespace {

constexpr int64_t kSamples = 4;

// Some blocks in the middle of the model.
EngineOptions Blocks() {
  ModelSpec model;
  model.name = "vit";
  model.depth = 3;
  model.width = 384;
  model.heads = 6;
  model.patch = 16;
  EngineOptions options;
  options.model = DescribeModel(model, {3, 224, 224}, 1000).value();
  const int layers = static_cast<int>(options.model.layers.size());
  options.layers = {1, layers - 1};
  options.train.micro_batch = kSamples;
  options.train.optimizer.momentum = 0.9;
  options.stage = 1;
  options.stages = 3;
  return options;
}

Tensor Values(const Shape& sample) {
  Shape shape = {kSamples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  Tensor tensor = Tensor::Allocate(DType::kF32, shape);
  float next = 0.1f;
  for (float& value : tensor.As<float>()) {
    value = next;
    next = next > 0.5f ? next - 1.0f : next + 0.11f;
  }
  return tensor;
}

// One engine, and a micro-batch for it.
struct Stage {
  explicit Stage(const EngineOptions& options) {
    SetComputeThreads(1);
    engine = MakeTorchEngine(options).value();
    batch.samples = kSamples;
    const auto& layers = options.model.layers;
    input = {Values(layers[options.layers.first - 1].output),
             Tensor::Allocate(DType::kI64, {kSamples})};
    for (int64_t& label : input[1].As<int64_t>()) label = 0;
    gradient = {Values(layers[options.layers.last - 1].output)};
    verdict.gradient_scale = 1e-6f;
    verdict.learning_rate = 1e-6f;
  }

  void Forward() {
    PACELINE_CHECK(engine->Forward(batch, 0, input).ok(), "forward");
  }
  void Clear() { PACELINE_CHECK(engine->Apply(verdict).ok(), "apply"); }

  std::unique_ptr<StageEngine> engine;
  BatchInfo batch;
  TensorList input;
  TensorList gradient;
  StepVerdict verdict;
};

// A whole backward, its first half, or both halves one after the other.
enum class Part { kWhole, kInput, kBothHalves };

// Seconds that `work` takes.
template <typename Work>
double SecondsOf(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void TimePart(benchmark::State& state, Part part) {
  Stage stage(Blocks());
  StageEngine& engine = *stage.engine;
  const bool whole = part == Part::kWhole;
  for (auto _ : state) {
    stage.Forward();
    const double first = SecondsOf([&] {
      const auto backward =
          whole ? engine.Backward(stage.batch, 0, stage.gradient)
                : engine.BackwardInput(stage.batch, 0, stage.gradient);
      PACELINE_CHECK(backward.ok(), "backward");
    });
    const double second = SecondsOf([&] {
      PACELINE_CHECK(whole || engine.BackwardWeight(stage.batch, 0).ok(), "W");
    });
    stage.Clear();
    state.SetIterationTime(part == Part::kBothHalves ? first + second : first);
  }
}

void Manual(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(TimePart, backward, Part::kWhole)->Apply(Manual);
BENCHMARK_CAPTURE(TimePart, input_half, Part::kInput)->Apply(Manual);
BENCHMARK_CAPTURE(TimePart, both_halves, Part::kBothHalves)->Apply(Manual);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();

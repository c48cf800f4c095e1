// Measures what a backward in two halves costs against a whole one
// (zero-bubble), what keeping versions of the weights costs an update, and what
// micro-batches that wait for their backward cost everything (pipedream):
// layers of the size of DeiT-S, one thread.
#include <chrono>
#include <map>
#include <memory>

#include "benchmark/benchmark.h"
#include "core/base/check.h"
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

enum class Part { kForward, kBackward, kInput, kWeight, kBothHalves };

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
  const bool whole = part == Part::kForward || part == Part::kBackward;
  for (auto _ : state) {
    const double forward = SecondsOf([&] { stage.Forward(); });
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
    const std::map<Part, double> seconds = {
        {Part::kForward, forward},
        {Part::kBackward, first},
        {Part::kInput, first},
        {Part::kWeight, second},
        {Part::kBothHalves, first + second}};
    state.SetIterationTime(seconds.at(part));
  }
}

// stashes: the update goes beside a version that is still in use.
void TimeUpdate(benchmark::State& state, bool stashes) {
  EngineOptions options = Blocks();
  options.stashes = stashes;
  Stage stage(options);
  StageEngine& engine = *stage.engine;
  const auto backward = [&](int64_t ordinal) {
    stage.batch.ordinal = ordinal;
    PACELINE_CHECK(engine.Backward(stage.batch, 0, stage.gradient).ok(), "B");
  };
  int64_t updates = 0;
  const auto use = [&] {
    if (!stashes) return;
    PACELINE_CHECK(engine.UseVersion(updates).ok(), "version");
  };
  for (auto _ : state) {
    use();
    // One micro-batch waits for its backward while another updates.
    for (int64_t i = 0; i < (stashes ? 2 : 1); ++i) {
      stage.batch.ordinal = i;
      stage.Forward();
    }
    backward(0);
    ++updates;
    use();
    state.SetIterationTime(SecondsOf([&] { stage.Clear(); }));
    if (!stashes) continue;
    backward(1);
    ++updates;
    use();
    stage.Clear();
  }
}

// A stage in the steady state of a schedule without a flush: forward, the
// backward of the oldest micro-batch, update; range(0) of them in flight, each
// with a version of its own.
void TimeInFlight(benchmark::State& state) {
  EngineOptions options = Blocks();
  options.stashes = true;
  Stage stage(options);
  StageEngine& engine = *stage.engine;
  int64_t forwards = 0, updates = 0;
  const auto use = [&] {
    PACELINE_CHECK(engine.UseVersion(updates).ok(), "version");
  };
  const auto forward = [&] {
    stage.batch.ordinal = forwards++;
    stage.Forward();
  };
  use();
  while (forwards < state.range(0) - 1) forward();
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
  for (auto _ : state) {
    const double there = SecondsOf(forward);
    const double back = SecondsOf([&] {
      stage.batch.ordinal = updates;
      PACELINE_CHECK(engine.Backward(stage.batch, 0, stage.gradient).ok(), "B");
    });
    const double update = SecondsOf([&] {
      ++updates;
      use();
      stage.Clear();
    });
    state.SetIterationTime(there + back + update);
    forward_seconds += there;
    backward_seconds += back;
    update_seconds += update;
  }
  const auto milliseconds = [](double seconds) {
    return benchmark::Counter(1e3 * seconds,
                              benchmark::Counter::kAvgIterations);
  };
  state.counters["forward_ms"] = milliseconds(forward_seconds);
  state.counters["backward_ms"] = milliseconds(backward_seconds);
  state.counters["update_ms"] = milliseconds(update_seconds);
}

void Manual(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(TimePart, forward, Part::kForward)->Apply(Manual);
BENCHMARK_CAPTURE(TimePart, backward, Part::kBackward)->Apply(Manual);
BENCHMARK_CAPTURE(TimePart, input_half, Part::kInput)->Apply(Manual);
BENCHMARK_CAPTURE(TimePart, weight_half, Part::kWeight)->Apply(Manual);
BENCHMARK_CAPTURE(TimePart, both_halves, Part::kBothHalves)->Apply(Manual);
BENCHMARK_CAPTURE(TimeUpdate, in_place, false)->Apply(Manual)->Iterations(10);
BENCHMARK_CAPTURE(TimeUpdate, beside, true)->Apply(Manual)->Iterations(10);
BENCHMARK(TimeInFlight)->Apply(Manual)->Arg(1)->Arg(2)->Arg(4);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();

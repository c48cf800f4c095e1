// How long a simulation takes.  With --check ends with 1 when a thousand
// devices and a thousand micro-batches take more than five seconds of CPU,
// which is what one thread that never waits takes on a machine that does
// nothing else.
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/base/errors.h"
#include "core/simulate/simulation.h"
#include "tests/bench/checked_main.h"

namespace paceline {
namespace {

CpuBudget full_size("1000 devices x 1000 micro-batches", 5);

// Unlike devices in file, with frames that cost CPU and links that are not
// free: every kind of event there is.
struct Pipeline {
  explicit Pipeline(int devices, int64_t micro_batches) {
    for (int d = 0; d < devices; ++d) {
      problem.layers.push_back({"layer", 0.01, 0.02, 1e5, 1e6, 1e6});
      Device device;
      device.name = "device";
      device.speed = 1 + 0.1 * (d % 7);
      device.frame_seconds = 1e-4;
      problem.devices.push_back(device);
      placement.push_back({{d, d + 1}, {d}, {1}});
    }
    problem.links.assign(devices,
                         std::vector<LinkCost>(devices, {1.25e8, 1e-4}));
    problem.micro_batches = micro_batches;
  }

  PlanProblem problem;
  Placement placement;
};

void SimulateStep(benchmark::State& state, const std::string& schedule) {
  const int devices = static_cast<int>(state.range(0));
  const Pipeline pipeline(devices, state.range(1));
  SimulationOptions options;
  options.schedule = schedule;
  for (auto _ : state) {
    const double begin = CpuSeconds();
    const auto result = Simulate(pipeline.problem, pipeline.placement, options);
    PACELINE_CHECK(result.ok(), result.status().ToString());
    if (devices == 1000) full_size.Add(CpuSeconds() - begin);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4, 32})
      ->Args({100, 100})
      ->Args({1000, 1000})
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(SimulateStep, 1f1b, "1f1b")->Apply(&Sizes);
BENCHMARK_CAPTURE(SimulateStep, gpipe, "gpipe")->Apply(&Sizes);

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  return paceline::CheckedMain(argc, argv,
                               [] { return paceline::full_size.IsKept(); });
}

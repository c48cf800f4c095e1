// How long planning takes, and how far plans are from the lower bound (counter
// `gap`; `exact` 1: proved).  With --check ends with 1 when 1,000 layers on 64
// unlike devices take more than a second of CPU: the planner is one thread
// that never waits.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/plan/search/policies.h"
#include "core/plan/search/policy.h"
#include "tests/bench/checked_main.h"

namespace paceline {
namespace {

CpuBudget full_size("1000 layers on 64 devices", 1);

// Uniform in [least, most), and evenly over the decades between them.
double Between(SplitMix64& random, double least, double most) {
  return least + (most - least) * static_cast<double>(random.Unit());
}
double Decades(SplitMix64& random, double least, double most) {
  return std::exp(Between(random, std::log(least), std::log(most)));
}

// Unlike layers, devices and links, each pair's directions apart.
PlanProblem ProblemOf(int layers, int devices, int64_t micro_batches) {
  SplitMix64 random(1);
  PlanProblem problem;
  problem.micro_batches = micro_batches;
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.name = "layer";
    layer.forward_seconds = Between(random, 0.001, 0.02);
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.output_bytes = Decades(random, 1e4, 1e6);
    layer.parameter_bytes = Decades(random, 1e4, 1e6);
    layer.kept_bytes = layer.output_bytes;
    problem.layers.push_back(layer);
  }
  for (int i = 0; i < devices; ++i) {
    Device device;
    device.name = "device";
    device.speed = Between(random, 0.25, 4);
    problem.devices.push_back(device);
    std::vector<LinkCost> row;
    for (int j = 0; j < devices; ++j) {
      row.push_back({Decades(random, 1e6, 1e9), Between(random, 0, 0.001)});
    }
    problem.links.push_back(std::move(row));
  }
  return problem;
}

// layers / devices / micro-batches (0: an endless stream) / replicas
void Plan(benchmark::State& state, const std::string& policy) {
  PlanProblem problem =
      ProblemOf(static_cast<int>(state.range(0)),
                static_cast<int>(state.range(1)), state.range(2));
  problem.replicas = state.range(3) != 0;
  PlanAnswer answer;
  for (auto _ : state) {
    const double begin = CpuSeconds();
    auto solved = SolvePlan(policy, problem, {});
    PACELINE_CHECK(solved.ok(), solved.status().ToString());
    answer = *std::move(solved);
    if (state.range(0) == 1000) full_size.Add(CpuSeconds() - begin);
  }
  state.counters["gap"] = answer.gap;
  state.counters["exact"] = answer.exact;
  state.counters["stages"] = static_cast<double>(answer.placement.size());
}

// Streams and steps, without and with replicas.
void Sizes(benchmark::internal::Benchmark* benchmark, int layers, int devices) {
  for (const int micro_batches : {0, 64}) {
    for (const int replicas : {0, 1}) {
      benchmark->Args({layers, devices, micro_batches, replicas});
    }
  }
  benchmark->Unit(benchmark::kMillisecond);
}

void Everything(benchmark::internal::Benchmark* benchmark) {
  Sizes(benchmark, 8, 5);
  Sizes(benchmark, 30, 8);
  Sizes(benchmark, 1000, 64);
}

BENCHMARK_CAPTURE(Plan, optimal, "optimal")->Apply(&Everything);

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  return paceline::CheckedMain(argc, argv,
                               [] { return paceline::full_size.IsKept(); });
}

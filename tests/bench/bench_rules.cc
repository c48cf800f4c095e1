// Bytes a second of each aggregation rule: Decide and Combine over all
// coordinates, members x values of float32.  `read` is the bound: one pass
// over the same bytes that looks for NaN.
#include <cstdint>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/round/rules/rule.h"
#include "core/round/rules/rule_blocks.h"

namespace paceline {
namespace {

// Costs nothing, so that zeno's own arithmetic is what is measured.
class NoLoss : public TrustedLoss {
 public:
  absl::StatusOr<double> After(absl::Span<const float> direction,
                               double) override {
    return direction.empty() ? 1.0 : 0.5;
  }
};

std::vector<std::vector<float>> ValuesOf(int64_t members, int64_t length) {
  SplitMix64 random(1);
  std::vector<std::vector<float>> values(members);
  for (auto& part : values) {
    for (int64_t i = 0; i < length; ++i) part.push_back(random.Unit() - 0.5f);
  }
  return values;
}

std::vector<RulePart> PartsOf(const std::vector<std::vector<float>>& values) {
  std::vector<RulePart> parts;
  for (const auto& part : values) parts.push_back({part, 12});
  return parts;
}

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) *
                          static_cast<int64_t>(sizeof(float)));
}

void RunRule(benchmark::State& state, const std::string& name) {
  const auto values = ValuesOf(state.range(0), state.range(1));
  const std::vector<RulePart> parts = PartsOf(values);
  std::vector<float> result(state.range(1));
  NoLoss loss;
  const auto rule = MakeRule({.name = name, .k = 2, .gamma = 0.1}, &loss);
  PACELINE_CHECK(rule.ok(), rule.status().ToString());

  for (auto _ : state) {
    const auto verdict = (*rule)->Decide(parts);
    PACELINE_CHECK(verdict.ok(), verdict.status().ToString());
    (*rule)->Combine(parts, *verdict, 0, result.size(), absl::MakeSpan(result));
    benchmark::DoNotOptimize(result.data());
  }
  CountBytes(state);
}

void Read(benchmark::State& state) {
  const auto values = ValuesOf(state.range(0), state.range(1));
  for (auto _ : state) {
    for (const auto& part : values) {
      benchmark::DoNotOptimize(FindNonFinite(part));
    }
  }
  CountBytes(state);
}

// members / values
void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({9, 1 << 20})->Unit(benchmark::kMillisecond);
}
BENCHMARK(Read)->Name("read")->Apply(Sizes);
BENCHMARK_CAPTURE(RunRule, mean, "mean")->Apply(Sizes);
BENCHMARK_CAPTURE(RunRule, median, "median")->Apply(Sizes);
BENCHMARK_CAPTURE(RunRule, trimmed_mean, "trimmed-mean")->Apply(Sizes);
BENCHMARK_CAPTURE(RunRule, krum, "krum")->Apply(Sizes);
BENCHMARK_CAPTURE(RunRule, suspicion, "suspicion")->Apply(Sizes);
BENCHMARK_CAPTURE(RunRule, zeno, "zeno")->Apply(Sizes);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();

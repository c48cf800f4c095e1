// How fast tensors cross from one process to another over loopback, and what
// CPU time that costs: the data plane (tls: encrypted) and a bare gRPC stream
// (grpc+: with the allocator told what the data plane tells it).
//
//   bench_data_plane [--turns N] [--mib M] [--check] [--benchmark_...]
//
// One iteration of a benchmark is one transfer between two processes of this
// program, timed by the receiver.  The ways take turns, so that what else the
// machine does hits all alike; ratios are medians over pairs of the same turn.
// The column "CPU" is google-benchmark's and is of this process, which only
// waits; the children's is in the counter cpu_seconds_per_GB.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmark/benchmark.h"
#include "tests/bench/peers/transfer_pair.h"
#include "tests/bench/ratios.h"

namespace paceline {
namespace {

constexpr int kUsageError = 2;
// A median of fewer is chance.
constexpr int kLeastTurnsToCheck = 5;
constexpr int64_t kLeastMib = 2;  // the first frame only starts the clock
constexpr int64_t kFrameBytes[] = {int64_t{1} << 20, int64_t{16} << 10};
constexpr const char* kWays[] = {"plane", "tls", "grpc", "grpc+"};

struct Settings {
  int turns = kLeastTurnsToCheck;
  int64_t mib = 1024;  // of one transfer
  bool check = false;
  std::string identity;  // a folder
};

// Rates turn by turn, by size and way.
using Turns = std::map<std::pair<int64_t, std::string>, std::vector<Rate>>;

void Transfer(benchmark::State& state, const std::string& way,
              const TransferSpec& spec, Turns& turns) {
  // The receiver's clock starts when the first frame is there.
  const int64_t timed_bytes = spec.frame_bytes * (spec.frames - 1);
  const double gb = static_cast<double>(spec.frame_bytes * spec.frames) / 1e9;
  double cpu_seconds = 0;
  for (auto _ : state) {
    const TransferCost cost = MeasureTransfer(way, spec);
    state.SetIterationTime(cost.seconds);
    cpu_seconds += cost.cpu_seconds;
    turns[{spec.frame_bytes, way}].push_back(
        {static_cast<double>(timed_bytes) / cost.seconds,
         cost.cpu_seconds / gb});
  }
  const auto transfers = static_cast<double>(state.iterations());
  state.SetBytesProcessed(state.iterations() * timed_bytes);
  state.counters["cpu_seconds_per_GB"] = cpu_seconds / (gb * transfers);
}

// In the order in which they shall run: turn after turn, and in each all ways.
void Register(const Settings& settings, Turns& turns) {
  for (const int64_t frame_bytes : kFrameBytes) {
    const TransferSpec spec = {frame_bytes, (settings.mib << 20) / frame_bytes,
                               settings.identity};
    for (int turn = 1; turn <= settings.turns; ++turn) {
      for (const std::string way : kWays) {
        benchmark::RegisterBenchmark(
            absl::StrCat(way, "/", frame_bytes, "/turn:", turn).c_str(),
            [way, spec, &turns](benchmark::State& state) {
              Transfer(state, way, spec, turns);
            })
            ->UseManualTime()
            ->Iterations(1)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

// Nothing unless both ways ran as often.
std::optional<Ratios> Compare(const Turns& turns, int64_t frame_bytes,
                              const std::string& way,
                              const std::string& measure) {
  const auto one = turns.find({frame_bytes, way});
  const auto other = turns.find({frame_bytes, measure});
  if (one == turns.end() || other == turns.end()) return std::nullopt;
  return CompareTurns(one->second, other->second);
}

// Medians and ratios.  True when every size has both ratios good enough.
bool Summarize(const Turns& turns) {
  bool good = true;
  for (const int64_t frame_bytes : kFrameBytes) {
    for (const auto& [key, rates] : turns) {
      if (key.first != frame_bytes) continue;
      const Rate rate = MedianRate(rates);
      absl::PrintF("%9d  %-6s %8.3f GB/s %8.3f CPU s/GB, median of %d\n",
                   frame_bytes, key.second, rate.bytes_per_second / 1e9,
                   rate.cpu_seconds_per_gb, rates.size());
    }
    if (const auto tls = Compare(turns, frame_bytes, "tls", "plane")) {
      absl::PrintF("%9d  tls / plane: throughput %.2f, CPU %.2f\n", frame_bytes,
                   tls->throughput, tls->cpu);
    }
    const auto ratios = Compare(turns, frame_bytes, "plane", "grpc");
    if (!ratios.has_value()) {
      absl::PrintF("%9d  no ratio: plane and grpc did not both run\n",
                   frame_bytes);
      good = false;
      continue;
    }
    absl::PrintF(
        "%9d  plane / grpc: throughput %.2f (at least %.1f), CPU "
        "%.2f (at most %.1f): %s\n",
        frame_bytes, ratios->throughput, kLeastThroughput, ratios->cpu,
        kMostCpu, ratios->good() ? "good" : "MISSED");
    good &= ratios->good();
  }
  return good;
}

// Takes what google-benchmark has left of the command line.
bool ParseSettings(const std::vector<std::string>& arguments,
                   Settings* settings) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::string value =
        i + 1 < arguments.size() ? arguments[i + 1] : std::string();
    if (argument == "--check") {
      settings->check = true;
    } else if (argument == "--turns" &&
               absl::SimpleAtoi(value, &settings->turns) &&
               settings->turns > 0) {
      ++i;
    } else if (argument == "--mib" && absl::SimpleAtoi(value, &settings->mib) &&
               settings->mib >= kLeastMib) {
      ++i;
    } else {
      return false;
    }
  }
  return !settings->check || settings->turns >= kLeastTurnsToCheck;
}

int Main(int argc, char** argv) {
  Settings settings;
  benchmark::Initialize(&argc, argv);
  if (!ParseSettings({argv + 1, argv + argc}, &settings)) {
    std::fprintf(stderr,
                 "usage: bench_data_plane [--turns N] [--mib M] [--check] "
                 "[--benchmark_...]\n--check needs at least %d turns\n",
                 kLeastTurnsToCheck);
    return kUsageError;
  }
  settings.identity = MakeIdentity();
  Turns turns;
  Register(settings, turns);
  benchmark::RunSpecifiedBenchmarks();
  const bool good = Summarize(turns);
  benchmark::Shutdown();
  std::filesystem::remove_all(settings.identity);
  return settings.check && !good ? 1 : 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) { return paceline::Main(argc, argv); }

// The main of benchmarks that have a limit, and the CPU time that they may
// take.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "benchmark/benchmark.h"
#include "tests/bench/cpu_seconds.h"

namespace paceline {

// Runs what is registered.  With --check among the arguments ends with 1 when
// `is_good`, asked afterwards, says no; a filter that left out what it judges
// must make it say no: nothing was proved.  2: an argument that nobody knows.
inline int CheckedMain(int argc, char** argv,
                       absl::FunctionRef<bool()> is_good) {
  std::vector<char*> rest(argv, argv + argc);
  const auto end = std::remove_if(
      rest.begin(), rest.end(),
      [](const char* argument) { return std::string(argument) == "--check"; });
  const bool check = end != rest.end();
  rest.erase(end, rest.end());
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return check && !is_good() ? 1 : 0;
}

// Returns the factor by which this machine may exceed a limit.  The suite runs
// on slow machines too, and a limit there shall find slower code only.
inline double Slack() {
  const char* const text = std::getenv("PACELINE_BENCH_SLACK");
  const double slack = text == nullptr ? 1 : std::atof(text);
  return slack > 0 ? slack : 1;
}

// The slowest of some runs that --check looks at.  Thread-compatible.
class CpuBudget {
 public:
  CpuBudget(const char* what, double most_seconds)
      : what_(what), most_seconds_(most_seconds * Slack()) {}

  void Add(double seconds) { slowest_ = std::max(slowest_, seconds); }
  // Prints it; false as well when nothing was added.
  bool IsKept() const {
    std::printf("%s: %.2f s of CPU, at most %.0f s\n", what_, slowest_,
                most_seconds_);
    return slowest_ > 0 && slowest_ <= most_seconds_;
  }

 private:
  const char* const what_;
  const double most_seconds_;
  double slowest_ = 0;
};

}  // namespace paceline

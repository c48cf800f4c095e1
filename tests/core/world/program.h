// The command line of a simulation's program, and what it prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "tests/core/world/runs.h"

namespace paceline::world {

inline constexpr int kUsageError = 2;

struct Arguments {
  uint64_t first = 1;
  uint64_t schedules = 1000;
  unsigned threads = 1;
  bool coverage = false;
  bool trace = false;
  int flaw = 0;
};

// Fills `arguments`; what a world adds to `app` beforehand is parsed, too.
//   flaws  as many as flaw.h names, with the one that is none
// Returns the code with which the program ends now, if it does.
std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv,
                                  int flaws, Arguments& arguments);

// Measures since it was made, and prints a line on stderr that says how far it
// is.
class Stopwatch {
 public:
  double Seconds() const;
  void Say(uint64_t schedules) const;

 private:
  const std::chrono::steady_clock::time_point begin_ =
      std::chrono::steady_clock::now();
};

// Runs the schedules and prints what they sum up to.  Returns the program's
// exit code: 1 when an invariant was broken, something fell short, or, where it
// is asked for, never came up.
template <typename WorldOptions, typename WorldResult>
int RunAndPrint(const Arguments& arguments, const WorldOptions& options,
                WorldResult (*run)(const WorldOptions&, Coverage*)) {
  const Stopwatch watch;
  const Totals<WorldResult> totals =
      RunSeeds(options, arguments.first, arguments.schedules, arguments.threads,
               run, [&watch](uint64_t done) { watch.Say(done); });
  const double seconds = watch.Seconds();
  std::vector<std::string> problems;
  if (arguments.coverage) {
    absl::PrintF("%s\n", totals.coverage.Text());
    problems = totals.coverage.Problems(totals.schedules);
  }
  absl::PrintF("%-20s%14s%10s%10s\n", "", "sum", "fewest", "most");
  for (const auto& [name, value, least] : WorldResult::Counts()) {
    absl::PrintF("%-20s%14d%10d%10d\n", name, totals.sum.*value,
                 totals.fewest.*value, totals.most.*value);
    if (totals.fewest.*value < least) {
      problems.push_back(absl::StrFormat("fewer than %d %s", least, name));
    }
  }
  for (const std::string& each : problems) absl::PrintF("%s\n", each);
  absl::PrintF("%d schedules in %.1f s\n%s%sbroken %d\n", totals.schedules,
               seconds, totals.first_broken,
               totals.first_broken.empty() ? "" : "\n", totals.broken);
  return totals.broken == 0 && problems.empty() ? 0 : 1;
}

// The whole program of a world without options of its own.
template <typename WorldOptions, typename WorldResult>
int Main(int argc, char** argv, const char* about, int flaws,
         WorldResult (*run)(const WorldOptions&, Coverage*)) {
  CLI::App app(about);
  Arguments arguments;
  const auto ends = ParseArguments(app, argc, argv, flaws, arguments);
  if (ends.has_value()) return *ends;
  WorldOptions options;
  options.trace = arguments.trace;
  options.flaw = static_cast<decltype(options.flaw)>(arguments.flaw);
  return RunAndPrint(arguments, options, run);
}

}  // namespace paceline::world

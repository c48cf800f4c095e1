// Many schedules of faults against core/round, or one once more, or the faults
// of a job's file: --help.  Exits 1 when an invariant was broken, and prints
// the seed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "client/files/job_file.h"
#include "tests/core/round/simulation_runs.h"

namespace paceline::round_world {
namespace {

struct Arguments {
  WorldOptions world;
  uint64_t first = 1;
  uint64_t schedules = 1000;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  bool coverage = false;
  std::string faults;
};

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void PrintNumbers(const Totals& n, double seconds) {
  absl::PrintF(
      "%d schedules of %d to %d members\n"
      "%d rounds, at least %d in each; %d void ones beside them\n"
      "%d faults, at least %d in each; %d views, %d attempts\n"
      "%d events in %.0f s: %.0f events/s\n",
      n.schedules, n.fewest_members, n.most_members, n.rounds, n.fewest_rounds,
      n.voids, n.faults, n.fewest_faults, n.views, n.attempts, n.events,
      seconds, static_cast<double>(n.events) / seconds);
}

int RunSeeds(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  const Totals totals =
      RunSchedules(arguments.world, arguments.first, arguments.schedules,
                   arguments.threads, [begin](uint64_t done) {
                     absl::FPrintF(stderr, "%d schedules, %.0f s\n", done,
                                   SecondsSince(begin));
                   });
  const double seconds = SecondsSince(begin);
  std::vector<std::string> problems;
  if (arguments.coverage) {
    absl::PrintF("%s\n", totals.coverage.Text());
    problems = totals.coverage.Problems(totals.schedules);
    for (const std::string& problem : problems) {
      absl::PrintF("%s\n", problem);
    }
  }
  PrintNumbers(totals, seconds);
  absl::PrintF("%s%sbroken %d\n", totals.first_broken,
               totals.first_broken.empty() ? "" : "\n", totals.broken);
  const bool enough = totals.fewest_rounds >= arguments.world.rounds &&
                      totals.fewest_faults >= arguments.world.faults;
  return totals.broken == 0 && enough && problems.empty() ? 0 : 1;
}

void PrintTally(uint64_t seed, const WorldResult& result) {
  absl::PrintF(
      "seed %d: %d rounds, %d void, %d views, %d attempts\n"
      "  %-12s %8s %8s %8s %10s %10s\n",
      seed, result.rounds, result.voids, result.views, result.attempts,
      "worker", "parts", "lies", "refused", "last step", "processes");
  for (const WorkerTally& worker : result.workers) {
    absl::PrintF("  %-12s %8d %8d %8d %10d %10d%s\n", worker.name, worker.parts,
                 worker.lies, worker.refused, worker.last_step,
                 worker.processes, worker.lives ? "" : ", dead");
  }
}

int RunScript(const Arguments& arguments) {
  const absl::StatusOr<std::string> text = ReadJobFile(arguments.faults);
  const absl::StatusOr<ParsedJob> job =
      text.ok() ? ParseJobFile({arguments.faults, *text, {}})
                : absl::StatusOr<ParsedJob>(text.status());
  const absl::StatusOr<JobScript> script =
      job.ok() ? ScriptOf(job->spec) : absl::StatusOr<JobScript>(job.status());
  if (!script.ok()) {
    absl::FPrintF(stderr, "%s\n", script.status().message());
    return 2;
  }
  WorldOptions options = arguments.world;
  options.script = *script;
  for (uint64_t i = 0; i < arguments.schedules; ++i) {
    options.seed = arguments.first + i;
    const WorldResult result = RunWorld(options, nullptr);
    PrintTally(options.seed, result);
    if (result.violation.empty()) continue;
    absl::PrintF("seed %d: %s\n", options.seed, result.violation);
    return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  constexpr int kUsageError = 2;
  Arguments arguments;
  int flaw = 0;
  uint64_t seed = 0;
  CLI::App app(
      "Many schedules of faults against core/round, one of them once more, or "
      "the faults of a job's file.");
  app.add_option("--first", arguments.first, "the seed of the first schedule");
  const auto* const schedules =
      app.add_option("--schedules", arguments.schedules,
                     "so many, with seeds from --first on (default: 1000; 1 "
                     "with --faults)");
  app.add_option("--threads", arguments.threads,
                 "at a time (default: one for each core)")
      ->check(CLI::Range(1, 256));
  app.add_flag("--coverage", arguments.coverage,
               "what came up, as tables; fails where something never did");
  const auto* const one =
      app.add_option("--seed", seed, "this one schedule")->excludes("--first");
  app.add_flag("--trace", arguments.world.trace,
               "what happens in one schedule, line by line");
  app.add_option("--flaw", flaw,
                 "with this mistake in the core: tests/core/round/flaw.h")
      ->check(CLI::Range(0, static_cast<int>(RoundFlaw::kAdoptOlderView)));
  app.add_option("--faults", arguments.faults,
                 "a job's file: not what seeds draw, but its `faults:`, with "
                 "its members, shards, min_parts and deadline");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  arguments.world.flaw = static_cast<RoundFlaw>(flaw);
  if (one->count() > 0) arguments.first = seed;
  if (schedules->count() == 0 &&
      (one->count() > 0 || !arguments.faults.empty())) {
    arguments.schedules = 1;
  }
  if (arguments.world.trace && arguments.schedules > 1) {
    absl::FPrintF(stderr, "--trace is of one schedule: add --seed\n");
    return kUsageError;
  }
  return arguments.faults.empty() ? RunSeeds(arguments) : RunScript(arguments);
}

}  // namespace
}  // namespace paceline::round_world

int main(int argc, char** argv) {
  return paceline::round_world::Main(argc, argv);
}

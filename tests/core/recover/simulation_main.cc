// Many schedules of faults against core/recover, or one once more: --help.
// Exits 1 when an invariant was broken, and prints the seed.
#include <algorithm>
#include <chrono>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "tests/core/recover/simulation_runs.h"

namespace paceline::recover_world {
namespace {

int Main(int argc, char** argv) {
  constexpr int kUsageError = 2;
  WorldOptions world;
  uint64_t first = 1;
  uint64_t schedules = 1000;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  bool coverage = false;
  int flaw = 0;
  uint64_t seed = 0;
  CLI::App app("Many schedules of faults against core/recover, or one again.");
  app.add_option("--first", first, "the seed of the first schedule");
  app.add_option("--schedules", schedules, "so many (default: 1000)");
  app.add_option("--threads", threads, "at a time (default: one for each core)")
      ->check(CLI::Range(1, 256));
  app.add_flag("--coverage", coverage,
               "what came up, as tables; fails where something never did");
  const auto* const one = app.add_option("--seed", seed, "this one schedule");
  app.add_flag("--trace", world.trace, "what happens, line by line");
  app.add_option("--flaw", flaw, "with this mistake: tests/core/recover/flaw.h")
      ->check(CLI::Range(0, kRecoverFlaws - 1));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  world.flaw = static_cast<RecoverFlaw>(flaw);
  if (one->count() > 0) {
    first = seed;
    schedules = 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  const Totals totals = RunSchedules(world, first, schedules, threads);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  size_t problems = 0;
  if (coverage) {
    absl::PrintF("%s\n", totals.coverage.Text());
    for (const std::string& problem :
         totals.coverage.Problems(totals.schedules)) {
      absl::PrintF("%s\n", problem);
      ++problems;
    }
  }
  absl::PrintF(
      "%d schedules: %d faults, %d attempts, %d steps, %d floors, %d events\n"
      "%.1f s; ended done %d, paused %d, failed %d\n%s\n",
      totals.schedules, totals.faults, totals.attempts, totals.steps,
      totals.floors, totals.events, seconds,
      totals.ends[static_cast<int>(JobPhase::kDone)],
      totals.ends[static_cast<int>(JobPhase::kPaused)],
      totals.ends[static_cast<int>(JobPhase::kFailed)],
      totals.first_broken.empty() ? "nothing broken" : totals.first_broken);
  return totals.first_broken.empty() && problems == 0 ? 0 : 1;
}

}  // namespace
}  // namespace paceline::recover_world

int main(int argc, char** argv) {
  return paceline::recover_world::Main(argc, argv);
}

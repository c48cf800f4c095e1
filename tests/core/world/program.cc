#include "tests/core/world/program.h"

#include <algorithm>
#include <thread>

namespace paceline::world {

std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv,
                                  int flaws, Arguments& arguments) {
  uint64_t seed = 0;
  arguments.threads = std::max(1u, std::thread::hardware_concurrency());
  app.add_option("--first", arguments.first, "the seed of the first schedule");
  app.add_option("--schedules", arguments.schedules,
                 "how many, with seeds from --first on (default: 1000)");
  app.add_option("--threads", arguments.threads,
                 "at a time (default: one for each core)")
      ->check(CLI::Range(1, 256));
  app.add_flag("--coverage", arguments.coverage,
               "what came up, as tables; fails where something never did");
  const auto* const one = app.add_option("--seed", seed, "this one schedule")
                              ->excludes("--first")
                              ->excludes("--schedules");
  app.add_flag("--trace", arguments.trace,
               "what happens in the first schedule, line by line");
  app.add_option("--flaw", arguments.flaw, "with this mistake of flaw.h")
      ->check(CLI::Range(0, flaws - 1));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  if (one->count() > 0) arguments.first = seed;
  if (one->count() > 0 || arguments.trace) arguments.schedules = 1;
  return std::nullopt;
}

double Stopwatch::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       begin_)
      .count();
}

void Stopwatch::Say(uint64_t schedules) const {
  absl::FPrintF(stderr, "%d schedules, %.0f s\n", schedules, Seconds());
}

}  // namespace paceline::world

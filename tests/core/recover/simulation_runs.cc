#include "tests/core/recover/simulation_runs.h"

#include "absl/strings/str_cat.h"
#include "tests/support/simulation_runs.h"

namespace paceline::recover_world {

void Totals::Add(const WorldResult& result, uint64_t seed) {
  ++schedules;
  events += result.events;
  steps += result.steps;
  attempts += result.attempts;
  faults += result.faults;
  floors += result.floors;
  ++ends[static_cast<int>(result.end)];
  if (result.violation.empty() || seed >= broken_seed) return;
  broken_seed = seed;
  first_broken = absl::StrCat("seed ", seed, ": ", result.violation);
}

Totals RunSchedules(const WorldOptions& options, uint64_t first, uint64_t count,
                    unsigned threads) {
  return RunSeeds<Totals>(first, count, threads,
                          [&options](uint64_t seed, Coverage* coverage) {
                            WorldOptions each = options;
                            each.seed = seed;
                            return RunWorld(each, coverage);
                          });
}

}  // namespace paceline::recover_world

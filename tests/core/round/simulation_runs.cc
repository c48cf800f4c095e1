#include "tests/core/round/simulation_runs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/support/simulation_runs.h"

namespace paceline::round_world {
namespace {

constexpr uint64_t kProgressEvery = 50'000;

}  // namespace

void Totals::Add(const WorldResult& result, uint64_t seed) {
  ++schedules;
  events += result.events;
  rounds += result.rounds;
  voids += result.voids;
  views += result.views;
  attempts += result.attempts;
  faults += result.faults;
  fewest_rounds = std::min(fewest_rounds, result.rounds);
  fewest_faults = std::min<int64_t>(fewest_faults, result.faults);
  fewest_members = std::min(fewest_members, result.members);
  most_members = std::max(most_members, result.members);
  if (result.violation.empty()) return;
  ++broken;
  if (seed >= broken_seed) return;
  broken_seed = seed;
  first_broken = absl::StrCat("seed ", seed, ": ", result.violation);
}

Totals RunSchedules(const WorldOptions& options, uint64_t first, uint64_t count,
                    unsigned threads,
                    const std::function<void(uint64_t done)>& progress) {
  return RunSeeds<Totals>(first, count, threads,
                          [&](uint64_t seed, Coverage* coverage) {
                            WorldOptions each = options;
                            each.seed = seed;
                            const WorldResult result = RunWorld(each, coverage);
                            const uint64_t done = seed - first + 1;
                            if (progress && done % kProgressEvery == 0)
                              progress(done);
                            return result;
                          });
}

}  // namespace paceline::round_world

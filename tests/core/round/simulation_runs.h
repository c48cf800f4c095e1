// Many simulated schedules, on all cores.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/core/round/world.h"

namespace paceline::round_world {

// Sums over all schedules that were run.
struct Totals {
  int64_t schedules = 0;
  int64_t events = 0;
  int64_t rounds = 0;  // not void
  int64_t voids = 0;
  int64_t views = 0;
  int64_t attempts = 0;
  int64_t faults = 0;
  int64_t fewest_rounds = INT64_MAX;  // in one schedule
  int64_t fewest_faults = INT64_MAX;
  int fewest_members = INT32_MAX;
  int most_members = 0;
  int64_t broken = 0;
  std::string first_broken;  // "seed 17: ..."; of the lowest seed
  uint64_t broken_seed = UINT64_MAX;
  Coverage coverage;

  void Add(const WorldResult& result, uint64_t seed);
};

// The schedules of `count` seeds from `first` on; no more once one has broken
// something.  What is found does not depend on `threads`, unless something
// breaks.  progress: called every 50,000 schedules, on any thread; may be null.
Totals RunSchedules(const WorldOptions& options, uint64_t first, uint64_t count,
                    unsigned threads,
                    const std::function<void(uint64_t done)>& progress);

}  // namespace paceline::round_world

// Many simulated schedules, on all cores.
#pragma once

#include <cstdint>
#include <string>

#include "tests/core/recover/world.h"

namespace paceline::recover_world {

// Sums over all schedules that were run.
struct Totals {
  int64_t schedules = 0;
  int64_t events = 0;
  int64_t steps = 0;
  int64_t attempts = 0;
  int64_t faults = 0;
  int64_t floors = 0;
  int64_t ends[kJobPhases] = {};
  std::string first_broken;  // "seed 17: ..."; of the lowest seed
  uint64_t broken_seed = UINT64_MAX;
  Coverage coverage;

  void Add(const WorldResult& result, uint64_t seed);
};

// The schedules of `count` seeds from `first` on; no more once one has broken
// something.
Totals RunSchedules(const WorldOptions& options, uint64_t first, uint64_t count,
                    unsigned threads);

}  // namespace paceline::recover_world

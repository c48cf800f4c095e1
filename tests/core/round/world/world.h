// Members, a coordinator, its store and a network in one thread, driven by a
// seed: the real core of core/round and core/cluster under every fault that
// core/round/README.md speaks of.  What is not the core (gradients, sums,
// states) is a number that depends on all that it must depend on, so that a
// wrong one is seen at once.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/core/round/flaw.h"
#include "tests/core/round/world/world_coverage.h"
#include "tests/core/world/runs.h"

namespace paceline::round_world {

struct WorldOptions : world::Options {
  RoundFlaw flaw = RoundFlaw::kNone;
};

struct WorldResult : world::Result {
  int64_t rounds = 0;  // (attempt, step) that were applied and not void
  int64_t voids = 0;
  int64_t views = 0;
  int64_t attempts = 0;
  int64_t members = 0;  // to begin with

  static const std::vector<world::Count<WorldResult>>& Counts();
  static world::Coverage NewCoverage() { return world::Coverage(Tables()); }
};

// At least, in each schedule.
inline constexpr int kLeastRounds = 5;  // that are not void
inline constexpr int kLeastFaults = 3;

// Runs one schedule to its end: faults while rounds pass, then calm, in which
// all that live must become level, equal, and go on.  coverage: may be null;
// what happens does not depend on it.
WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage);

}  // namespace paceline::round_world

// Members, a coordinator, its store and a network in one thread, driven by a
// seed: the real core of core/round and core/cluster under every fault that
// core/round/README.md speaks of.  What is not the core (gradients, sums,
// states) is a number that depends on all that it must depend on, so that a
// wrong one is seen at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/job/spec/job_spec.h"
#include "tests/core/round/flaw.h"
#include "tests/core/round/world/world_coverage.h"
#include "tests/core/world/runs.h"

namespace paceline::round_world {

// The faults of a job's file, and what of the job they need.
struct JobScript {
  std::vector<std::string> workers;  // names; the first ones begin
  std::vector<FaultSpec> faults;
  int shards = 1;
  bool central = false;
  int min_parts = 1;
  absl::Duration deadline = absl::Seconds(30);
  int64_t steps = 0;  // to run: a little beyond the last fault
};

// Errors: InvalidArgument  no data-parallel job, or a fault of a worker that it
// will not have
absl::StatusOr<JobScript> ScriptOf(const JobSpec& job);

struct WorldOptions : world::Options {
  RoundFlaw flaw = RoundFlaw::kNone;
  // Instead of faults that the seed draws; with the daemons' own periods.
  std::optional<JobScript> script;
};

// Counts one worker's parts, over all its processes.
struct WorkerTally {
  std::string name;
  int64_t parts = 0;       // in results
  int64_t lies = 0;        // of them: not the gradient that was to be computed
  int64_t refused = 0;     // at a server's border
  int64_t last_step = -1;  // in whose result it is
  int processes = 0;
  bool lives = false;
};

struct WorldResult : world::Result {
  int64_t rounds = 0;  // (attempt, step) that were applied and not void
  int64_t voids = 0;
  int64_t views = 0;
  int64_t attempts = 0;
  int64_t members = 0;  // to begin with
  std::vector<WorkerTally> workers;

  static const std::vector<world::Count<WorldResult>>& Counts();
  static world::Coverage NewCoverage() { return world::Coverage(Tables()); }
};

// At least, in each schedule that a seed draws.
inline constexpr int kLeastRounds = 5;  // that are not void
inline constexpr int kLeastFaults = 3;

// Runs one schedule to its end: faults while rounds pass, then calm, in which
// all that live must become level, equal, and go on.  coverage: may be null;
// what happens does not depend on it.
WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage);

}  // namespace paceline::round_world

// Jobs whose attempts are round groups: processes with the members of
// core/round, a coordinator with JobRecovery and JobGroup, its store and a
// network in one thread, driven by a seed.  It stands on the world of
// tests/core/recover, and adds what a group has: views, rounds or gossip,
// deposits, checkpoints, exports, and a job that is stopped and goes on with
// other members.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/core/joint/flaw.h"
#include "tests/core/world/runs.h"

namespace paceline::joint_world {

// Many schedules must reach each of these, in rounds and in gossip.
enum class Moment : uint8_t {
  kView,        // after the first of its attempt
  kJoin,        // a listener becomes a member
  kEvicted,     // a silent, hung or failed member
  kDrained,     // a member that drains has left
  kMismatch,    // a member whose state the others do not have
  kTorn,        // no state has a majority
  kLost,        // a group without a member that has taken part
  kAdopted,     // by a coordinator that has started anew
  kNotAdopted,  // left by it
  kRestored,    // a base from pieces
  kCheckpoint,
  kExport,
  kResumed,   // stopped, and gone on as another job
  kFromDisk,  // a base from a checkpoint
  kGoesBack,  // an attempt below a step that was reported
};
constexpr int kMoments = 15;

struct WorldOptions : world::Options {
  JointFlaw flaw = JointFlaw::kNone;
};

struct WorldResult : world::Result {
  int64_t steps = 0;  // applied by members, also those run again
  int64_t attempts = 0;
  int64_t views = 0;
  int64_t checkpoints = 0;
  int64_t jobs = 0;
  // How it ended: one of these is 1.
  int64_t done = 0;
  int64_t paused = 0;

  static const std::vector<world::Count<WorldResult>>& Counts();
  static world::Coverage NewCoverage();
};

// Runs one schedule: faults while the job runs, then calm, in which it must
// end. coverage: may be null; what happens does not depend on it.
WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage);

}  // namespace paceline::joint_world

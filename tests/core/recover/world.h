// Workers, a coordinator, its store and a network in one thread, driven by a
// seed: the real core of core/recover under every fault that its README speaks
// of.  The state of a layer is a number that depends on all that it must depend
// on, so that a wrong one is seen at once.
#pragma once

#include <cstdint>
#include <vector>

#include "core/recover/job_recovery.h"
#include "tests/core/recover/flaw.h"
#include "tests/core/world/runs.h"

namespace paceline::recover_world {

enum class Fault : uint8_t {
  kKill,
  kKillMachine,  // all workers on it
  kRestart,      // killed, and started again at once
  kFreeze,       // SIGSTOP, for less or more than a lease
  kHang,         // the compute thread only
  kPartition,    // from the coordinator
  kCutLink,      // between two workers
  kFail,         // the run, transiently
  kMove,         // a better plan
  kDrain,
  kCrash,         // of the coordinator
  kFreezeAll,     // the coordinator's SIGSTOP
  kSlowStore,     // for a while
  kFailingStore,  // stores or not, and says that it failed
  kRollBack,      // crash, and the newest row is gone from the store
  kSlowReports,   // of one worker, for a while
  kSlowOrders,
  kRefuse,      // a worker has no memory for pieces of others any more
  kStandstill,  // of the whole world, as a laptop that is shut
};
constexpr int kFaults = 19;

// Many schedules must reach each fault in each phase of the job and of the
// worker that it hits, and each row of the worker's table and of
// kJobTransitions.
enum class Table : uint8_t { kFaults, kWork, kWorkTransitions, kTransitions };
const world::CoverageTables& Tables();

struct WorldOptions : world::Options {
  RecoverFlaw flaw = RecoverFlaw::kNone;
};

struct WorldResult : world::Result {
  int64_t steps = 0;  // applied by somebody, also those run again
  int64_t attempts = 0;
  int64_t floors = 0;
  // How it ended: one of these is 1.
  int64_t done = 0;
  int64_t paused = 0;
  int64_t failed = 0;

  static const std::vector<world::Count<WorldResult>>& Counts();
  static world::Coverage NewCoverage() { return world::Coverage(Tables()); }
};

// Runs one schedule: faults while the job runs, then calm, in which it must
// end. coverage: may be null; what happens does not depend on it.
WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage);

}  // namespace paceline::recover_world

// Workers, a coordinator, its store and a network in one thread, driven by a
// seed: the real core of core/recover under every fault that its README speaks
// of.  The state of a layer is a number that depends on all that it must depend
// on, so that a wrong one is seen at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/recover/job_recovery.h"
#include "tests/core/recover/flaw.h"

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
const char* FaultName(Fault fault);

// Counts what came up over many schedules.
class Coverage {
 public:
  void HitTransition(JobPhase from, JobCause cause) {
    ++transitions_[static_cast<int>(from)][static_cast<int>(cause)];
  }
  void HitFault(Fault fault, JobPhase phase) {
    ++faults_[static_cast<int>(fault)][static_cast<int>(phase)];
  }
  // A fault hit a worker, or while one was there, in this phase.
  void HitWork(Fault fault, WorkPhase phase) {
    ++work_[static_cast<int>(fault)][static_cast<int>(phase)];
  }
  // A worker goes from one phase into another one.
  void HitWorkTransition(WorkPhase from, WorkPhase to) {
    ++work_transitions_[static_cast<int>(from)][static_cast<int>(to)];
  }
  void Add(const Coverage& other);

  // One line for each row of JobTransitions(), each row of the worker's table,
  // and each fault in each phase of both, that never came up though it can.
  //   schedules  that were run: what seldom comes up is asked of 100,000
  std::vector<std::string> Problems(int64_t schedules) const;
  std::string Text() const;

 private:
  int64_t transitions_[kJobPhases][kJobCauses] = {};
  int64_t faults_[kFaults][kJobPhases] = {};
  int64_t work_[kFaults][kWorkPhases] = {};
  int64_t work_transitions_[kWorkPhases][kWorkPhases] = {};
};

struct WorldOptions {
  uint64_t seed = 1;
  RecoverFlaw flaw = RecoverFlaw::kNone;
  bool trace = false;  // to stdout
};

struct WorldResult {
  std::string violation;  // empty: none
  int64_t events = 0;
  int64_t steps = 0;  // applied by somebody, also those run again
  int64_t attempts = 0;
  int64_t faults = 0;
  int64_t floors = 0;
  JobPhase end = JobPhase::kQueued;
};

// Runs one schedule: faults while the job runs, then calm, in which it must
// end. coverage: may be null; what happens does not depend on it.
WorldResult RunWorld(const WorldOptions& options, Coverage* coverage);

}  // namespace paceline::recover_world

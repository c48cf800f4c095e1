// Mistakes that an implementation of the recovery could contain.  The
// simulation puts one into a schedule on purpose, to see that its checks find
// it.
#pragma once

#include <cstdint>

namespace paceline {

enum class RecoverFlaw : uint8_t {
  kNone,
  // The core's; a function of it is overridden, or it hears something else.
  kMixAttempts,         // pieces of several attempts make a cut
  kAnnounceFirst,       // before the attempt is stored
  kCountWorkers,        // two on one machine are two holders
  kReuseAttempt,        // a number that was heard is given out again
  kForgetFloor,         // it falls when holders are lost
  kAcceptExcluded,      // a process that was excluded takes part
  kLeaveByStaleReport,  // any report without a run counts
  kBeginTwice,          // a worker begins an attempt that it has left
  kFloorIsBase,         // though the base is not replicated
  kCopiesOfAttached,    // machines that were not heard of count as lost
  kNextAttemptOnly,     // decides whether a cut is valid
  // The worker's adapter's, which the simulation stands in for.
  kPruneOwn,        // what is older than the newest that the worker has itself
  kKeepList,        // what the coordinator did not list is dropped
  kUnequalStop,     // each stage stops where it is
  kMarkByStage,     // each stage decides which steps it deposits
  kStopClosesGate,  // a stage that has stopped answers nobody
  kGateFromZero,    // the update counter of a new attempt begins at 0
  kTornDeposit,     // a layer is copied when the next step is applied already
  // The coordinator's adapter's.
  kStandstillCounts,  // nobody has left in the time in which it stood still
};
constexpr int kRecoverFlaws = 20;

}  // namespace paceline

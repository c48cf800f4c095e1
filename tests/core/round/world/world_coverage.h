// Many simulated schedules must reach all of this: every row of the tables of
// core/round/README.md, every kind of message in every phase, and every fault
// in every phase of a round.
#pragma once

#include <cstdint>
#include <string>

#include "tests/core/world/coverage.h"

namespace paceline::round_world {

enum class Fault : uint8_t {
  kKill,  // also in the middle of sending commits
  kRestart,
  kJoin,  // of a worker that never was there
  kPause,
  kPartition,  // of a member from the coordinator
  kCutLink,    // between two that live
  kCoordinatorCrash,
  kSlowStore,
  kFailingStore,
  kRestore,  // of an older snapshot: a new attempt
  kCorrupt,  // a member's state is not what it should be
  kSlowPart,
  kSpoiltPart,  // NaN, or bytes that are not those of its hash
  kLyingPart,
  kRepeatedPart,
  kLoseRequests,  // for a while, as those below
  kLoseReplies,
  kDuplicate,
  kDelay,    // of all messages alike
  kReorder,  // of each on its own
};
inline constexpr int kFaults = 20;
const std::string& FaultName(Fault fault);

// The member that a fault hit was doing this.
enum class RoundPhase : uint8_t {
  kListening,
  kLevelling,
  kComputing,   // its part is not ready, and nobody's is here
  kWaiting,     // its part is out
  kHolding,     // between hold and commit
  kGathering,   // these three as the server
  kSpreading,   // the result is out, nobody else is known to hold it
  kCommitting,  // somebody does
};
const std::string& RoundPhaseName(RoundPhase phase);

// The events of README.md's table of a member, in its order; the states are
// RoundMember::Phase.
enum class MemberEvent : uint8_t {
  kNewerView,
  kNewerViewWithout,
  kOlderView,
  kOlderMessage,
  kOtherAttempt,
  kState,
  kCommitted,
  kLevelApplies,
  kLevelHolds,
  kLevelHasIt,
  kLevelDone,
  kOwnPart,
  kHolds,
  kCommit,
  kProof,
  kSendsPast,
  kTooOld,
  kAsksForState,
  kOffersState,
  kFetched,
  kSuspects,
};

enum class ServerState : uint8_t { kOpen, kClosed, kVoid, kSpread };
enum class ServerEvent : uint8_t {
  kFirstPart,
  kAllSpoken,
  kDeadline,
  kTooFewUsable,
  kOnceMore,
  kLate,
  kSum,
  kNoSum,
  kAllHold,
  kStatesDiffer,
};

enum class LevellerState : uint8_t { kAsking, kFetching, kSpreading };
enum class LevellerEvent : uint8_t {
  kAnswer,
  kOfAJoiner,  // it is one itself
  kMoreApplied,
  kLastDone,
  kLastSpreads,
  kLastFetches,
  kBytes,
  kAppliedMeanwhile,
  kHold,
  kLastHold,
  kFurtherView,
};

enum class Table : uint8_t { kFaults, kMessages, kMember, kServer, kLeveller };
const world::CoverageTables& Tables();

}  // namespace paceline::round_world

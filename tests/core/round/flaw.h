// Mistakes that an implementation of the rounds could contain.  The simulation
// puts one into a schedule on purpose, to see that its invariants find it.
#pragma once

#include <cstdint>

namespace paceline {

enum class RoundFlaw : uint8_t {
  kNone,
  kAnswerWithoutAdopting,    // old views' results are still taken
  kLevelWithoutAll,          // most answers, and most holds, level a view
  kCommitWithoutHolds,       // commits when the result is spread
  kCommitWithMostHolds,      // a majority is taken for all
  kIgnoreHeldWhenLevelling,  // what was held is thrown away
  kKeepPartsOverAttempts,    // a cache that knows no attempt
  kTornState,                // a joiner's state and its step do not match
  kShardsMoveWithView,       // bounds are those of the view, not of the round
  kDivisorIsMembers,         // not the samples used
  kLatePartJoinsNextRound,
  kSumInOrderOfArrival,
  kSendViewBeforeItIsDurable,
  kJoinerServesBehind,       // before it has what its view had applied
  kAddLatePartAfterClosing,  // the sum has a part that came after the close
  kMixDivisions,             // parts of two divisions of one batch are summed
  kCommitOverUnequalStates,  // rounds go on though states differ
  kIgnoreAttempt,            // messages of an earlier life are heard
  kAdoptOlderView,           // the last view that comes is taken for the newest
};
constexpr int kRoundFlaws = 19;

}  // namespace paceline

// Counts what came up over many simulated schedules: every row of the tables of
// core/round/README.md, every kind of message in every phase, and every fault
// in every phase of a round.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
const char* FaultName(Fault fault);

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
inline constexpr int kRoundPhases = 8;
const char* RoundPhaseName(RoundPhase phase);

// The events of README.md's table of a member, in its order; the states are
// RoundMember::Phase.
enum class MemberEvent : uint8_t {
  kNewerView,
  kNewerViewWithout,
  kOlderView,
  kOlderMessage,
  kOtherAttempt,
  kCopy,
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
  kAsksForCopy,
  kSendsCopy,
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
inline constexpr int kTables = 5;

struct TableRow {
  const char* name;
  // A letter for each column: 'x' where the cell can come up; 'r' in so few
  // schedules that only a million are expected to reach it (once and six times
  // in the first 100,000 seeds); else the reason why it cannot.
  const char* cells;
};
struct TableShape {
  const char* title;
  std::vector<TableRow> rows;
  std::vector<const char*> columns;
};
const TableShape& TableOf(Table table);

// Why a cell can never come up, or is none of README.md's rows; null: it can.
const char* WhyUnreachable(Table table, size_t row, size_t column);

class Coverage {
 public:
  template <typename Row, typename Column>
  void Hit(Table table, Row row, Column column) {
    ++cells_[static_cast<int>(table)][static_cast<int>(row)]
            [static_cast<int>(column)];
  }
  int64_t Count(Table table, int row, int column) const {
    return cells_[static_cast<int>(table)][row][column];
  }
  void Add(const Coverage& other);

  // One line each: cells that never came up though they can, and cells that did
  // though WhyUnreachable() says that they cannot.
  //   schedules  that were run: what seldom comes up is asked of a million
  std::vector<std::string> Problems(int64_t schedules) const;

  // All tables, with the reasons of cells that are left out.
  std::string Text() const;

 private:
  static constexpr int kMostRows = 24;
  static constexpr int kMostColumns = 16;

  int64_t cells_[kTables][kMostRows][kMostColumns] = {};
};

}  // namespace paceline::round_world

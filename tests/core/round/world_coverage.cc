#include "tests/core/round/world_coverage.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/round/round_member.h"

namespace paceline::round_world {
namespace {

const std::vector<const char*>& FaultNames() {
  static const std::vector<const char*> names = {
      "kill",          "restart",    "join",          "pause",
      "partition",     "cut link",   "coordinator",   "slow store",
      "failing store", "restore",    "corrupt state", "slow part",
      "spoilt part",   "lying part", "repeated part", "lose requests",
      "lose replies",  "duplicate",  "delay",         "reorder"};
  return names;
}

const std::vector<const char*>& PhaseNames() {
  static const std::vector<const char*> names = {
      "listening", "levelling", "computing", "waiting",
      "holding",   "gathering", "spreading", "committing"};
  return names;
}

constexpr char kNoRow[] = "no row of README.md: nothing happens";
constexpr char kNeedsItsHold[] =
    "whoever committed the step had this leveller's hold: it need not fetch";

// A row of README.md's table of a member, by the phases in which something
// comes of the event.
struct MemberRow {
  MemberEvent event;
  bool listening, levelling, running;
};
constexpr MemberRow kMemberRows[] = {
    {MemberEvent::kNewerView, true, true, true},
    {MemberEvent::kNewerViewWithout, true, true, true},
    {MemberEvent::kOlderView, true, true, true},
    {MemberEvent::kOlderMessage, true, true, true},
    {MemberEvent::kOtherAttempt, true, true, true},
    {MemberEvent::kCopy, true, true, true},
    {MemberEvent::kCommitted, true, true, true},
    {MemberEvent::kLevelApplies, false, true, false},
    {MemberEvent::kLevelHolds, false, true, false},
    {MemberEvent::kLevelHasIt, false, true, false},
    {MemberEvent::kLevelDone, false, true, false},
    {MemberEvent::kOwnPart, true, true, true},
    {MemberEvent::kHolds, false, false, true},
    {MemberEvent::kCommit, false, false, true},
    {MemberEvent::kProof, false, false, true},
    {MemberEvent::kSendsPast, true, true, true},
    {MemberEvent::kTooOld, true, true, true},
    {MemberEvent::kAsksForCopy, true, true, true},
    {MemberEvent::kSendsCopy, false, true, true},
    {MemberEvent::kFetched, false, true, false},
    {MemberEvent::kSuspects, false, true, true},
};

// Cells that come up, but in so few schedules that only a run of `schedules` is
// expected to reach them.
struct RareCell {
  Table table;
  int row, column;
  int64_t schedules;
};
constexpr int64_t kMillion = 1'000'000;
constexpr RareCell kRareCells[] = {
    // A listener that has a copy keeps the last few results, and is asked for
    // an earlier one: once in the first 100,000 seeds.
    {Table::kMember, static_cast<int>(MemberEvent::kTooOld),
     static_cast<int>(RoundMember::Phase::kListening), kMillion},
    // Six in 100,000.
    {Table::kMember, static_cast<int>(MemberEvent::kLevelHasIt),
     static_cast<int>(RoundMember::Phase::kLevelling), kMillion},
};

struct ServerRow {
  ServerState state;
  ServerEvent event;
};
constexpr ServerRow kServerRows[] = {
    {ServerState::kOpen, ServerEvent::kFirstPart},
    {ServerState::kOpen, ServerEvent::kAllSpoken},
    {ServerState::kOpen, ServerEvent::kDeadline},
    {ServerState::kOpen, ServerEvent::kTooFewUsable},
    {ServerState::kOpen, ServerEvent::kOnceMore},
    {ServerState::kClosed, ServerEvent::kOnceMore},
    {ServerState::kVoid, ServerEvent::kOnceMore},
    {ServerState::kSpread, ServerEvent::kOnceMore},
    {ServerState::kClosed, ServerEvent::kLate},
    {ServerState::kVoid, ServerEvent::kLate},
    {ServerState::kSpread, ServerEvent::kLate},
    {ServerState::kClosed, ServerEvent::kSum},
    {ServerState::kClosed, ServerEvent::kNoSum},
    {ServerState::kVoid, ServerEvent::kAllHold},
    {ServerState::kSpread, ServerEvent::kAllHold},
    {ServerState::kVoid, ServerEvent::kStatesDiffer},
    {ServerState::kSpread, ServerEvent::kStatesDiffer},
};

struct LevellerRow {
  LevellerState state;
  LevellerEvent event;
};
constexpr LevellerRow kLevellerRows[] = {
    {LevellerState::kAsking, LevellerEvent::kAnswer},
    {LevellerState::kSpreading, LevellerEvent::kAnswer},
    {LevellerState::kAsking, LevellerEvent::kOfAJoiner},
    {LevellerState::kAsking, LevellerEvent::kMoreApplied},
    {LevellerState::kAsking, LevellerEvent::kLastDone},
    {LevellerState::kAsking, LevellerEvent::kLastSpreads},
    {LevellerState::kAsking, LevellerEvent::kLastFetches},
    {LevellerState::kFetching, LevellerEvent::kBytes},
    {LevellerState::kSpreading, LevellerEvent::kHold},
    {LevellerState::kSpreading, LevellerEvent::kLastHold},
    {LevellerState::kAsking, LevellerEvent::kFurtherView},
    {LevellerState::kFetching, LevellerEvent::kFurtherView},
    {LevellerState::kSpreading, LevellerEvent::kFurtherView},
};

bool IsTooRare(Table table, size_t row, size_t column, int64_t schedules) {
  return std::any_of(
      std::begin(kRareCells), std::end(kRareCells), [&](const RareCell& cell) {
        return cell.table == table && static_cast<size_t>(cell.row) == row &&
               static_cast<size_t>(cell.column) == column &&
               schedules < cell.schedules;
      });
}

const char* WhyNoMemberRow(int row, int column) {
  for (const MemberRow& each : kMemberRows) {
    if (static_cast<int>(each.event) != row) continue;
    const bool in[] = {each.listening, each.levelling, each.running};
    return in[column] ? nullptr : kNoRow;
  }
  return kNoRow;
}

}  // namespace

const char* FaultName(Fault fault) {
  return FaultNames()[static_cast<size_t>(fault)];
}

const char* RoundPhaseName(RoundPhase phase) {
  return PhaseNames()[static_cast<size_t>(phase)];
}

const TableNames& NamesOf(Table table) {
  static const TableNames tables[kTables] = {
      {"fault, by what the member that it hit was doing", FaultNames(),
       PhaseNames()},
      {"message, by the phase of the member that it came to",
       {"part", "want", "result", "hold", "commit", "committed", "too old",
        "answer", "fetch", "fetched", "level", "level done", "copy wanted",
        "copy"},
       {"listening", "levelling", "running"}},
      {"a member: event, by its phase",
       {"newer view with it",
        "newer view without it",
        "older view",
        "message of an older view",
        "message of another attempt",
        "copy",
        "committed result",
        "level, applies",
        "level, holds",
        "level, has it",
        "level done",
        "own part ready",
        "results of all shards",
        "commit",
        "proof of a commit",
        "sends a past result",
        "says it is too old",
        "too old: asks for a copy",
        "sends a copy",
        "sends what it holds",
        "suspects the silent"},
       {"listening", "levelling", "running"}},
      {"a shard's server: state, by event",
       {"open", "closed", "void", "spread"},
       {"first part", "all spoken", "deadline", "too few", "once more", "late",
        "sum", "no sum", "all hold", "differ"}},
      {"a leveller: state, by event",
       {"asking", "fetching", "spreading"},
       {"answer", "is a joiner", "more since", "last: done", "last: spread",
        "last: fetch", "bytes", "applied it", "hold", "last hold", "new view"}},
  };
  return tables[static_cast<int>(table)];
}

const char* WhyUnreachable(Table table, int row, int column) {
  switch (table) {
    case Table::kFaults:
      return row >= static_cast<int>(Fault::kSlowPart) &&
                     row <= static_cast<int>(Fault::kRepeatedPart) &&
                     column == static_cast<int>(RoundPhase::kListening)
                 ? "who listens computes no part that could be wrong"
                 : nullptr;
    case Table::kMessages:
      return nullptr;
    case Table::kMember:
      return WhyNoMemberRow(row, column);
    case Table::kServer:
      for (const ServerRow& each : kServerRows) {
        if (static_cast<int>(each.state) == row &&
            static_cast<int>(each.event) == column) {
          return nullptr;
        }
      }
      return kNoRow;
    case Table::kLeveller:
      if (row == static_cast<int>(LevellerState::kFetching) &&
          column == static_cast<int>(LevellerEvent::kAppliedMeanwhile)) {
        return kNeedsItsHold;
      }
      for (const LevellerRow& each : kLevellerRows) {
        if (static_cast<int>(each.state) == row &&
            static_cast<int>(each.event) == column) {
          return nullptr;
        }
      }
      return kNoRow;
  }
  return nullptr;
}

void Coverage::Add(const Coverage& other) {
  for (int table = 0; table < kTables; ++table) {
    for (int row = 0; row < kMostRows; ++row) {
      for (int column = 0; column < kMostColumns; ++column) {
        cells_[table][row][column] += other.cells_[table][row][column];
      }
    }
  }
}

std::vector<std::string> Coverage::Problems(int64_t schedules) const {
  std::vector<std::string> problems;
  for (int i = 0; i < kTables; ++i) {
    const auto table = static_cast<Table>(i);
    const TableNames& names = NamesOf(table);
    for (size_t row = 0; row < names.rows.size(); ++row) {
      for (size_t column = 0; column < names.columns.size(); ++column) {
        const bool hit = Count(table, row, column) > 0;
        const char* const why = WhyUnreachable(table, row, column);
        if (hit == (why == nullptr)) continue;
        if (IsTooRare(table, row, column, schedules)) continue;
        problems.push_back(absl::StrCat(
            names.title, ": ", names.rows[row], " x ", names.columns[column],
            hit ? " came up, which is said to be impossible: " : " never",
            hit ? why : " came up"));
      }
    }
  }
  return problems;
}

std::string Coverage::Text() const {
  std::string text;
  std::vector<std::string> reasons;
  for (int i = 0; i < kTables; ++i) {
    const auto table = static_cast<Table>(i);
    const TableNames& names = NamesOf(table);
    absl::StrAppend(&text, "\n", names.title, "\n",
                    absl::StrFormat("%-27s", ""));
    for (const char* const column : names.columns) {
      absl::StrAppend(&text, absl::StrFormat("%12s", column));
    }
    text += "\n";
    for (size_t row = 0; row < names.rows.size(); ++row) {
      absl::StrAppend(&text, absl::StrFormat("%-27s", names.rows[row]));
      for (size_t column = 0; column < names.columns.size(); ++column) {
        const char* const why = WhyUnreachable(table, row, column);
        if (why == nullptr || Count(table, row, column) > 0) {
          absl::StrAppend(&text,
                          absl::StrFormat("%12d", Count(table, row, column)));
          continue;
        }
        auto found = std::find(reasons.begin(), reasons.end(), why);
        if (found == reasons.end()) {
          found = reasons.insert(reasons.end(), why);
        }
        absl::StrAppend(
            &text,
            absl::StrFormat(
                "%12s", std::string(1, static_cast<char>(
                                           'a' + (found - reasons.begin())))));
      }
      text += "\n";
    }
  }
  for (size_t i = 0; i < reasons.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n" : "",
                    std::string(1, static_cast<char>('a' + i)), ": ",
                    reasons[i], "\n");
  }
  return text;
}

}  // namespace paceline::round_world

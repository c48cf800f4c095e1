#include "tests/core/round/world_coverage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paceline::round_world {
namespace {

constexpr int64_t kMillion = 1'000'000;

}  // namespace

const char* FaultName(Fault fault) {
  return TableOf(Table::kFaults).rows[static_cast<size_t>(fault)].name;
}

const char* RoundPhaseName(RoundPhase phase) {
  return TableOf(Table::kFaults).columns[static_cast<size_t>(phase)];
}

const TableShape& TableOf(Table table) {
  static const TableShape tables[kTables] = {
      {"fault, by what the member that it hit was doing",
       {{"kill", "xxxxxxxx"},          {"restart", "xxxxxxxx"},
        {"join", "xxxxxxxx"},          {"pause", "xxxxxxxx"},
        {"partition", "xxxxxxxx"},     {"cut link", "xxxxxxxx"},
        {"coordinator", "xxxxxxxx"},   {"slow store", "xxxxxxxx"},
        {"failing store", "xxxxxxxx"}, {"restore", "xxxxxxxx"},
        {"corrupt state", "xxxxxxxx"}, {"slow part", "pxxxxxxx"},
        {"spoilt part", "pxxxxxxx"},   {"lying part", "pxxxxxxx"},
        {"repeated part", "pxxxxxxx"}, {"lose requests", "xxxxxxxx"},
        {"lose replies", "xxxxxxxx"},  {"duplicate", "xxxxxxxx"},
        {"delay", "xxxxxxxx"},         {"reorder", "xxxxxxxx"}},
       {"listening", "levelling", "computing", "waiting", "holding",
        "gathering", "spreading", "committing"}},
      {"message, by the phase of the member that it came to",
       {{"part", "xxx"},
        {"want", "xxx"},
        {"result", "xxx"},
        {"hold", "xxx"},
        {"commit", "xxx"},
        {"committed", "xxx"},
        {"too old", "xxx"},
        {"answer", "xxx"},
        {"fetch", "rxx"},
        {"fetched", "rxx"},
        {"level", "xxx"},
        {"level done", "xxx"},
        {"copy wanted", "xxx"},
        {"copy", "xxx"}},
       {"listening", "levelling", "running"}},
      {"a member: event, by its phase",
       {{"newer view with it", "xxx"},
        {"newer view without it", "xxx"},
        {"older view", "xxx"},
        {"message of an older view", "xxx"},
        {"message of another attempt", "xxx"},
        {"copy", "xxx"},
        {"committed result", "xxx"},
        {"level, applies", ".x."},
        {"level, holds", ".x."},
        {"level, has it", ".r."},
        {"level done", ".x."},
        {"own part ready", "xxx"},
        {"results of all shards", "..x"},
        {"commit", "..x"},
        {"proof of a commit", "..x"},
        {"sends a past result", "xxx"},
        {"says it is too old", "rxx"},
        {"too old: asks for a copy", "xxx"},
        {"sends a copy", ".xx"},
        {"sends what it holds", ".x."},
        {"suspects the silent", ".xx"}},
       {"listening", "levelling", "running"}},
      {"a shard's server: state, by event",
       {{"open", "xxxxx....."},
        {"closed", "....xxxx.."},
        {"void", "....xx..xx"},
        {"spread", "....xx..xx"}},
       {"first part", "all spoken", "deadline", "too few", "once more", "late",
        "sum", "no sum", "all hold", "differ"}},
      {"a leveller: state, by event",
       {{"asking", "xxxxxx....x"},
        {"fetching", "......xh..x"},
        {"spreading", "x.......xxx"}},
       {"answer", "is a joiner", "more since", "last: done", "last: spread",
        "last: fetch", "bytes", "applied it", "hold", "last hold", "new view"}},
  };
  return tables[static_cast<int>(table)];
}

const char* WhyUnreachable(Table table, size_t row, size_t column) {
  switch (TableOf(table).rows[row].cells[column]) {
    case 'x':
    case 'r':
      return nullptr;
    case 'p':
      return "a listener computes no part that could be wrong";
    case 'h':
      return "whoever committed the step had this leveller's hold: it need not "
             "fetch";
    default:
      return "no row of README.md: nothing happens";
  }
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
    const TableShape& names = TableOf(table);
    for (size_t row = 0; row < names.rows.size(); ++row) {
      for (size_t column = 0; column < names.columns.size(); ++column) {
        const bool hit = Count(table, row, column) > 0;
        const char* const why = WhyUnreachable(table, row, column);
        if (hit == (why == nullptr)) continue;
        if (names.rows[row].cells[column] == 'r' && schedules < kMillion) {
          continue;
        }
        problems.push_back(absl::StrCat(
            names.title, ": ", names.rows[row].name, " x ",
            names.columns[column],
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
    const TableShape& names = TableOf(table);
    absl::StrAppend(&text, "\n", names.title, "\n",
                    absl::StrFormat("%-27s", ""));
    for (const char* const column : names.columns) {
      absl::StrAppend(&text, absl::StrFormat("%12s", column));
    }
    text += "\n";
    for (size_t row = 0; row < names.rows.size(); ++row) {
      absl::StrAppend(&text, absl::StrFormat("%-27s", names.rows[row].name));
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

// Counts what came up over many schedules, in tables that say what can.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace paceline::world {

struct TableRow {
  std::string name;
  // A letter for each column:
  //   x  the cell can come up
  //   r  so seldom that only many schedules are expected to reach it
  //   -  nobody asks for it
  //   else it cannot, and CoverageTables::reasons says why
  std::string cells;
};
struct Table {
  std::string title;
  std::vector<TableRow> rows;        // at most 64
  std::vector<std::string> columns;  // at most 16
};
struct CoverageTables {
  std::vector<Table> tables;
  int64_t rare_schedules = 0;  // that must show what seldom comes up
  std::vector<std::pair<char, std::string>> reasons;
};

// Thread-compatible.
class Coverage {
 public:
  // tables: outlives it.
  explicit Coverage(const CoverageTables& tables);

  template <typename TableIndex, typename Row, typename Column>
  void Hit(TableIndex table, Row row, Column column) {
    ++At(static_cast<size_t>(table), static_cast<size_t>(row),
         static_cast<size_t>(column));
  }
  void Add(const Coverage& other);  // of the same tables

  // One line each: cells that never came up though they can, and cells that did
  // though they cannot.
  //   schedules  that were run
  std::vector<std::string> Problems(int64_t schedules) const;

  // All tables, with the reasons of cells that are left out.
  std::string Text() const;

 private:
  static constexpr size_t kMostRows = 64;
  static constexpr size_t kMostColumns = 16;

  int64_t& At(size_t table, size_t row, size_t column) {
    return cells_[(table * kMostRows + row) * kMostColumns + column];
  }
  int64_t At(size_t table, size_t row, size_t column) const {
    return cells_[(table * kMostRows + row) * kMostColumns + column];
  }
  // Null: the cell can come up.
  const std::string* WhyNot(char cell) const;
  std::string TextOf(size_t table) const;

  const CoverageTables* tables_;
  std::vector<int64_t> cells_;
};

}  // namespace paceline::world

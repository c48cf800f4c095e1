#include "tests/core/world/coverage.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paceline::world {

Coverage::Coverage(const CoverageTables& tables)
    : tables_(&tables),
      cells_(tables.tables.size() * kMostRows * kMostColumns) {}

void Coverage::Add(const Coverage& other) {
  for (size_t i = 0; i < cells_.size(); ++i) cells_[i] += other.cells_[i];
}

const std::string* Coverage::WhyNot(char cell) const {
  for (const auto& [letter, why] : tables_->reasons) {
    if (letter == cell) return &why;
  }
  return nullptr;
}

std::vector<std::string> Coverage::Problems(int64_t schedules) const {
  std::vector<std::string> problems;
  for (size_t i = 0; i < tables_->tables.size(); ++i) {
    const Table& table = tables_->tables[i];
    for (size_t row = 0; row < table.rows.size(); ++row) {
      for (size_t column = 0; column < table.columns.size(); ++column) {
        const char cell = table.rows[row].cells[column];
        const bool hit = At(i, row, column) > 0;
        const std::string* const why_not = WhyNot(cell);
        const bool is_asked_for =
            cell == 'x' ||
            (cell == 'r' && schedules >= tables_->rare_schedules);
        if (hit ? why_not == nullptr : !is_asked_for) continue;
        problems.push_back(absl::StrCat(
            table.title, ": ", table.rows[row].name, " x ",
            table.columns[column],
            hit ? " came up, which is said to be impossible: " + *why_not
                : " never came up"));
      }
    }
  }
  return problems;
}

std::string Coverage::TextOf(size_t index) const {
  const Table& table = tables_->tables[index];
  std::string text = absl::StrFormat("\n%s\n%-27s", table.title, "");
  for (const std::string& column : table.columns) {
    absl::StrAppendFormat(&text, "%12s", column);
  }
  for (size_t row = 0; row < table.rows.size(); ++row) {
    absl::StrAppendFormat(&text, "\n%-27s", table.rows[row].name);
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const char cell = table.rows[row].cells[column];
      const int64_t count = At(index, row, column);
      absl::StrAppendFormat(&text, "%12s",
                            count == 0 && WhyNot(cell) != nullptr
                                ? std::string(1, cell)
                                : absl::StrCat(count));
    }
  }
  return text + "\n";
}

std::string Coverage::Text() const {
  std::string text;
  for (size_t i = 0; i < tables_->tables.size(); ++i) text += TextOf(i);
  for (const auto& [letter, why] : tables_->reasons) {
    absl::StrAppendFormat(&text, "\n%c: %s", letter, why);
  }
  return text + "\n";
}

}  // namespace paceline::world

// Text in columns.
#pragma once

#include <string>
#include <vector>

namespace paceline {

// Thread-compatible.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column.  Cells are made printable: what a peer sent cannot
  // break the layout.
  void AddRow(std::vector<std::string> cells);

  // Titles in capitals, then the rows; two spaces between columns, none at the
  // end of a line.
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "key:   value" lines with the values below each other; pairs with an empty
// value are left out.
std::string RenderFacts(
    const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace paceline

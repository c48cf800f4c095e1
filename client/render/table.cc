#include "client/render/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/render/text.h"
#include "core/base/check.h"

namespace paceline {
namespace {

void AppendCell(std::string& line, const std::string& cell, int width,
                Table::Align align) {
  const std::string padding(std::max(0, width - DisplayWidth(cell)), ' ');
  if (align == Table::Align::kRight) {
    absl::StrAppend(&line, padding, cell);
  } else {
    absl::StrAppend(&line, cell, padding);
  }
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  PACELINE_CHECK(
      cells.size() == columns_.size(),
      absl::StrCat("cells=", cells.size(), " columns=", columns_.size()));
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = DisplayWidth(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto append_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += "  ";
      AppendCell(line, cell_of(c), widths[c], columns_[c].align);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  };
  append_line(
      [&](size_t c) { return absl::AsciiStrToUpper(columns_[c].title); });
  for (const auto& row : rows_) append_line([&](size_t c) { return row[c]; });
  return text;
}

std::string RenderFacts(
    const std::vector<std::pair<std::string, std::string>>& facts) {
  size_t width = 0;
  for (const auto& [key, value] : facts) {
    if (!value.empty()) width = std::max(width, key.size());
  }
  std::string text;
  for (const auto& [key, value] : facts) {
    if (value.empty()) continue;
    absl::StrAppend(&text, key, ":", std::string(width - key.size() + 2, ' '),
                    Printable(value), "\n");
  }
  return text;
}

}  // namespace paceline

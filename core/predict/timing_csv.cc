#include "core/predict/timing_csv.h"

#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/counted.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr absl::string_view kSizeColumns[] = {"elements", "bytes", "flops",
                                              "size"};

using Cells = std::vector<absl::string_view>;

// A cell as a message may show it.
std::string Shown(absl::string_view cell) {
  constexpr size_t kMostShown = 40;
  return absl::StrCat("'", absl::CHexEscape(cell.substr(0, kMostShown)),
                      cell.size() > kMostShown ? "..." : "", "'");
}

absl::Status ReadHeader(const Cells& cells, std::vector<std::string>& header,
                        TimingTable& table) {
  std::vector<std::string> sizes;
  for (const absl::string_view cell : cells) {
    if (cell.empty()) {
      return InvalidArgument("column ", header.size() + 1,
                             " of the header has no name");
    }
    if (absl::c_linear_search(header, cell)) {
      return InvalidArgument("the header names ", Shown(cell), " twice");
    }
    header.emplace_back(cell);
    if (IsSizeColumn(cell)) {
      sizes.emplace_back(cell);
    } else if (cell != "seconds") {
      table.columns.emplace_back(cell);
    }
  }
  if (!absl::c_linear_search(header, "seconds")) {
    return InvalidArgument("no column 'seconds' in the header, which has ",
                           Shown(absl::StrJoin(header, ",")));
  }
  if (sizes.size() != 1) {
    return InvalidArgument(
        "need one size column (", absl::StrJoin(kSizeColumns, ", "), "), got ",
        sizes.empty() ? "none" : absl::StrJoin(sizes, " and "));
  }
  table.size_column = sizes.front();
  return absl::OkStatus();
}

absl::Status ReadRow(const Cells& cells, const std::vector<std::string>& header,
                     TimingTable& table) {
  if (cells.size() != header.size()) {
    return InvalidArgument(
        "got ", cells.size(), " cells, need ", header.size(), " (",
        absl::StrJoin(header, ","), ")",
        cells.size() < header.size() ? ": is the file cut off?" : "");
  }
  std::vector<std::string> features;
  double size = 0, seconds = 0;
  for (size_t c = 0; c < cells.size(); ++c) {
    const bool is_size = header[c] == table.size_column;
    if (!is_size && header[c] != "seconds") {
      features.emplace_back(cells[c]);
    } else if (!absl::SimpleAtod(cells[c], is_size ? &size : &seconds)) {
      return InvalidArgument(header[c], " ", Shown(cells[c]), " is no number");
    }
  }
  if (!std::isfinite(size) || size < 0) {
    return InvalidArgument(table.size_column, " is ", size,
                           ", need a finite number from 0 up");
  }
  if (std::isfinite(seconds) && seconds > 0) {
    table.measurements[std::move(features)].emplace_back(size, seconds);
  } else {
    ++table.dropped_rows;
  }
  return absl::OkStatus();
}

// `header` is empty until it is read.
absl::Status ReadLine(absl::string_view line, std::vector<std::string>& header,
                      TimingTable& table) {
  absl::ConsumeSuffix(&line, "\r");
  for (const unsigned char byte : line) {
    if (byte >= 0x20 || byte == '\t') continue;
    return InvalidArgument("is no text: byte 0x",
                           absl::Hex(byte, absl::kZeroPad2),
                           " in the line; need comma separated values");
  }
  if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
  if (header.empty()) absl::ConsumePrefix(&line, "\xef\xbb\xbf");
  Cells cells = absl::StrSplit(line, ',');
  for (absl::string_view& cell : cells) cell = absl::StripAsciiWhitespace(cell);
  return header.empty() ? ReadHeader(cells, header, table)
                        : ReadRow(cells, header, table);
}

}  // namespace

bool IsSizeColumn(absl::string_view column) {
  return absl::c_linear_search(kSizeColumns, column);
}

absl::StatusOr<TimingTable> ParseTimingCsv(absl::string_view name,
                                           absl::string_view text) {
  TimingTable table;
  std::vector<std::string> header;
  // A number that lost its last digits is still a number: only the missing
  // line break tells.
  const bool is_whole = absl::ConsumeSuffix(&text, "\n");
  int64_t number = 0;
  absl::Status read;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    read = ReadLine(line, header, table);
    if (!read.ok()) break;
  }
  if (read.ok() && header.empty()) {
    read = InvalidArgument("is empty; need a header line and measurements");
  } else if (read.ok() && !is_whole) {
    read = InvalidArgument(
        "the last line has no line break: is the file cut off? If it is "
        "whole, end it with one");
  }
  if (!read.ok()) {
    return InvalidArgument(name, ":", number, ": ", read.message());
  }
  if (table.measurements.empty()) {
    return InvalidArgument(
        name, ": ",
        table.dropped_rows == 0
            ? "has a header, but no measurement"
            : absl::StrCat("none of its ", Counted(table.dropped_rows, "time"),
                           " is finite and positive: nothing to fit"));
  }
  return table;
}

}  // namespace paceline

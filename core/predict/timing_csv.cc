#include "core/predict/timing_csv.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr absl::string_view kSizeColumns[] = {"elements", "bytes", "flops",
                                              "size"};

// A cell as a message may show it.
std::string Shown(absl::string_view cell) {
  constexpr size_t kMostShown = 40;
  return absl::StrCat("'", absl::CHexEscape(cell.substr(0, kMostShown)),
                      cell.size() > kMostShown ? "..." : "", "'");
}

// Thread-compatible.
class Reader {
 public:
  explicit Reader(absl::string_view name) { table_.name = std::string(name); }

  absl::StatusOr<TimingTable> Read(absl::string_view text);

 private:
  template <typename... Parts>
  absl::Status Error(const Parts&... what) const {
    return InvalidArgument(table_.name, ":", line_, ": ", what...);
  }
  absl::Status ReadHeader(absl::string_view line);
  absl::Status ReadRow(absl::string_view line);

  TimingTable table_;
  std::vector<std::string> header_;  // empty until read
  size_t size_at_ = 0;               // column of the size
  size_t seconds_at_ = 0;
  int64_t line_ = 0;  // from 1
};

absl::Status Reader::ReadHeader(absl::string_view line) {
  absl::ConsumePrefix(&line, "\xef\xbb\xbf");
  std::vector<std::string> sizes;
  for (const absl::string_view cell : absl::StrSplit(line, ',')) {
    const std::string column(absl::StripAsciiWhitespace(cell));
    const size_t index = header_.size();
    if (column.empty()) {
      return Error("column ", index + 1, " of the header has no name");
    }
    if (std::find(header_.begin(), header_.end(), column) != header_.end()) {
      return Error("the header names ", Shown(column), " twice");
    }
    header_.push_back(column);
    if (IsSizeColumn(column)) {
      sizes.push_back(column);
      size_at_ = index;
    } else if (column == "seconds") {
      seconds_at_ = index;
    } else {
      table_.columns.push_back(column);
    }
  }
  if (header_[seconds_at_] != "seconds") {
    return Error("no column 'seconds' in the header, which has ", Shown(line));
  }
  if (sizes.size() != 1) {
    return Error("need one size column (", absl::StrJoin(kSizeColumns, ", "),
                 "), got ",
                 sizes.empty() ? "none" : absl::StrJoin(sizes, " and "));
  }
  table_.size_column = sizes.front();
  return absl::OkStatus();
}

absl::Status Reader::ReadRow(absl::string_view line) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  if (cells.size() != header_.size()) {
    return Error("got ", cells.size(), " cells, need ", header_.size(), " (",
                 absl::StrJoin(header_, ","), ")",
                 cells.size() < header_.size() ? ": is the file cut off?" : "");
  }
  std::vector<std::string> features;
  double size = 0, seconds = 0;
  for (size_t c = 0; c < cells.size(); ++c) {
    if (c != size_at_ && c != seconds_at_) {
      features.emplace_back(absl::StripAsciiWhitespace(cells[c]));
    } else if (!absl::SimpleAtod(cells[c], c == size_at_ ? &size : &seconds)) {
      return Error(header_[c], " ", Shown(cells[c]), " is no number");
    }
  }
  if (!std::isfinite(size) || size < 0) {
    return Error(table_.size_column, " is ", size,
                 ", need a finite number from 0 up");
  }
  if (std::isfinite(seconds) && seconds > 0) {
    table_.measurements[std::move(features)].emplace_back(size, seconds);
  } else {
    ++table_.dropped_rows;
  }
  return absl::OkStatus();
}

absl::StatusOr<TimingTable> Reader::Read(absl::string_view text) {
  while (!text.empty()) {
    ++line_;
    const size_t end = text.find('\n');
    absl::string_view line = text.substr(0, end);
    absl::ConsumeSuffix(&line, "\r");
    for (const unsigned char byte : line) {
      if (byte >= 0x20 || byte == '\t') continue;
      return Error("is no text: byte 0x", absl::Hex(byte, absl::kZeroPad2),
                   " in the line; need comma separated values");
    }
    if (!absl::StripAsciiWhitespace(line).empty()) {
      PACELINE_RETURN_IF_ERROR(header_.empty() ? ReadHeader(line)
                                               : ReadRow(line));
    }
    // A number that lost its last digits is still a number: only the missing
    // line break tells.
    if (end == absl::string_view::npos) {
      return Error(
          "the last line has no line break: is the file cut off? If it is "
          "whole, end it with one");
    }
    text.remove_prefix(end + 1);
  }
  if (header_.empty()) {
    ++line_;
    return Error("is empty; need a header line and measurements");
  }
  if (table_.measurements.empty() && table_.dropped_rows == 0) {
    return Error("has a header, but no measurement");
  }
  return std::move(table_);
}

}  // namespace

bool IsSizeColumn(absl::string_view column) {
  return absl::c_linear_search(kSizeColumns, column);
}

absl::StatusOr<TimingTable> ParseTimingCsv(absl::string_view name,
                                           absl::string_view text) {
  return Reader(name).Read(text);
}

}  // namespace paceline

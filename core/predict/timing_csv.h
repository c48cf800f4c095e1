// Measured times as comma separated text: what `paceline predict --fit` reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// Grammar: a header line that names the columns, then a line a measurement.
//   op,dtype,group_size,elements,seconds
//   all_reduce,f32,4,1024,2.1e-05
// One column is the size (`elements`, `bytes`, `flops` or `size`), one is
// `seconds`; all others are features, whatever their names.  Cells have no
// quotes; \r\n, a byte order mark and empty lines are fine.
struct TimingTable {
  std::string size_column;           // one of the four
  std::vector<std::string> columns;  // features, in the file's order
  // (size, seconds) by the values of `columns`; sizes >= 0, seconds finite and
  // > 0, in the file's order.
  std::map<std::vector<std::string>, std::vector<std::pair<double, double>>>
      measurements;
  int64_t dropped_rows = 0;  // time is zero, negative, infinite or NaN
};

// "elements", "bytes", "flops" or "size".
bool IsSizeColumn(absl::string_view column);

// O(bytes of text * log).  Messages begin with "NAME:LINE: ", or "NAME: ".
// Errors: InvalidArgument  the text is empty, is no text, is cut off (a row
//                          with too few cells, no line break at the end), has
//                          no or two size columns, no seconds, no row, or a
//                          cell that is no number, or a size that is negative
//                          or not finite, or no time is finite and positive
absl::StatusOr<TimingTable> ParseTimingCsv(absl::string_view name,
                                           absl::string_view text);

}  // namespace paceline

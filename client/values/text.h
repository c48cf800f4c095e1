// Text that a terminal or another program reads: words, numbers, columns and a
// curve.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// The value of an environment variable; empty where it is not set.
std::string Environment(const char* name);

// `text` as valid UTF-8: each byte that belongs to no character is U+FFFD.
std::string ValidUtf8(absl::string_view text);

// `text` on one line without control characters (HoldsControl()): what a peer
// sent cannot move the cursor, change colors or turn the text beside it.  Each
// becomes '?'; a line break becomes a space.
std::string Printable(absl::string_view text);

// Columns of a terminal that valid UTF-8 takes: two for what is East Asian or
// an emoji, none for marks that go on the character before.
int DisplayWidth(absl::string_view text);

// The beginning of valid UTF-8 that takes at most `columns`.
std::string CutToWidth(absl::string_view text, int columns);

// `text` in which words of more than 300 bytes are cut and counted, so that
// what somebody typed or sent does not bury the sentence about it.
std::string ShortenWords(absl::string_view text);

// The first clause of `text`, up to "; " and at most 60 columns wide; "..."
// at its end where more was cut.
std::string FirstClause(absl::string_view text);

// "812", "13.4 k", "1.29 M": three digits and a decimal unit.
std::string HumanCount(double count);

// Writes a rate a second as HumanCount() does, but with two digits below ten:
// "0.083".
std::string HumanRate(double per_second);

// "812 B", "13.4 KiB", "1.29 GiB".
std::string HumanBytes(double bytes);

// "8 s", "3 min 20 s", "2 h 5 min"; "0 s" for less than half a second.
std::string HumanDuration(absl::Duration duration);

// "850 us", "12.3 ms", "1.25 s": three digits and a decimal unit.
std::string HumanSeconds(double seconds);

// Local date and time, "2024-05-01 13:37:00"; empty for 0.
std::string HumanTime(int64_t unix_ms);

// A number of at least `digits` significant digits in %g form.
std::string HumanNumber(double value, int digits = 4);

// A loss or an accuracy: "0.1250".
std::string HumanLoss(double loss);

// "there is no policy 'mincut'; did you mean 'min-cut'?; there are: ..."; empty
// when `word` is one of `names`.
//   what  "policy"
std::string WhyNotAmong(const std::string& what, const std::string& word,
                        const std::vector<std::string>& names);

// The same as a status.
//   where  what the message begins with: "--schedule: "
// Errors: InvalidArgument  `word` is not one of `names`
absl::Status CheckAmong(const std::string& where, const std::string& what,
                        const std::string& word,
                        const std::vector<std::string>& names);

// "90", "90s", "1.5m", "2h": a bare number is seconds.  Returns false for
// anything else, and for negative or infinite durations.
bool ParseTimeout(const std::string& text, absl::Duration* timeout);

// Text in columns.  Thread-compatible.
class Table {
 public:
  // The cells below a title that begins with '>' are flush right.  A title
  // with '+' before all else is that of a column of the wide table only.
  explicit Table(std::vector<std::string> titles)
      : titles_(std::move(titles)) {}

  // One cell a column.  Cells are made printable: what a peer sent cannot
  // break the layout.
  void AddRow(std::vector<std::string> cells);
  template <typename First, typename Second, typename... Cells>
  void AddRow(const First& first, const Second& second, const Cells&... cells) {
    AddRow(std::vector<std::string>{absl::StrCat(first), absl::StrCat(second),
                                    absl::StrCat(cells)...});
  }

  // Titles in capitals, then the rows; two spaces between columns, none at the
  // end of a line.
  std::string Render(bool wide = false) const;

 private:
  const std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

// "key:   value" lines with the values below each other; pairs with an empty
// value are left out.
std::string RenderFacts(
    const std::vector<std::pair<std::string, std::string>>& facts);

using LossCurve = google::protobuf::RepeatedPtrField<v1::StepRecord>;

struct PlotOptions {
  int columns = 60;  // of the plot itself, without the labels
  int rows = 8;
  bool unicode = false;  // eighth blocks instead of '#'
};

// The loss over the steps, as a filled curve between its least and its greatest
// value; points that share a column are averaged, and values that are not
// finite are left out.  Where none is finite, a line that says so.  Else
// empty for fewer than two points.
std::string PlotLoss(const LossCurve& curve, const PlotOptions& options);

}  // namespace paceline

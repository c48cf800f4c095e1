#include "client/values/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

namespace {

struct CodePoints {
  uint32_t first;
  uint32_t last;
};

// Blocks of Unicode 15 that are wide (UAX 11: W and F), coarsely.
constexpr CodePoints kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},
    {0x2614, 0x2615},   {0x2648, 0x2653},   {0x26AA, 0x26AB},
    {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x2705, 0x2705},
    {0x270A, 0x270B},   {0x2728, 0x2728},   {0x274C, 0x274C},
    {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},
    {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
    {0xFFE0, 0xFFE6},   {0x16FE0, 0x18CFF}, {0x1AFF0, 0x1B2FF},
    {0x1F18E, 0x1F18E}, {0x1F191, 0x1F19A}, {0x1F200, 0x1F320},
    {0x1F32D, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7EB},
    {0x1F90C, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD},
};
// Combining marks, joiners, selectors.
constexpr CodePoints kWithoutWidth[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD},   {0x064B, 0x065F},
    {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF},   {0x1DC0, 0x1DFF},
    {0x200B, 0x200F}, {0x2060, 0x2064}, {0x20D0, 0x20FF},   {0x302A, 0x302D},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0x1F3FB, 0x1F3FF}, {0xE0000, 0xE01EF},
};

bool IsAmong(absl::Span<const CodePoints> ranges, uint32_t point) {
  return absl::c_any_of(ranges, [point](const CodePoints& each) {
    return point >= each.first && point <= each.last;
  });
}

// Returns the columns of one character of valid UTF-8.
int CharacterWidth(absl::string_view character) {
  const uint32_t point = Utf8CodePoint(character);
  return IsAmong(kWithoutWidth, point) ? 0 : IsAmong(kWide, point) ? 2 : 1;
}

std::string WithUnit(double value, double base,
                     const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(std::round(value), units[0]);
  const int decimals = std::abs(value) >= 100  ? 0
                       : std::abs(value) >= 10 ? 1
                                               : 2;
  return absl::StrFormat("%.*f%s", decimals, value, units[unit]);
}

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const absl::string_view character = TakeCharacter(text);
    const bool good = Utf8SequenceLength(character) > 0;
    absl::StrAppend(&result, good ? character : "\xEF\xBF\xBD");
  }
  return result;
}

std::string Printable(absl::string_view text) {
  std::string result;
  const std::string valid = ValidUtf8(text);
  for (absl::string_view rest = valid; !rest.empty();) {
    const absl::string_view character = TakeCharacter(rest);
    const bool space = character == "\n" || character == "\t";
    absl::StrAppend(&result, space                     ? " "
                             : HoldsControl(character) ? "?"
                                                       : character);
  }
  return result;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) width += CharacterWidth(TakeCharacter(text));
  return width;
}

std::string CutToWidth(absl::string_view text, int columns) {
  absl::string_view rest = text;
  size_t end = 0;
  while (!rest.empty()) {
    columns -= CharacterWidth(TakeCharacter(rest));
    if (columns < 0) break;
    end = text.size() - rest.size();
  }
  return std::string(text.substr(0, end));
}

std::string ShortenWords(absl::string_view text) {
  constexpr size_t kLongest = 300;  // a path of a job is shorter
  constexpr size_t kKept = 80;
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const absl::string_view word = text.substr(0, end);
    if (word.size() <= kLongest) {
      absl::StrAppend(&result, word);
    } else {
      absl::StrAppend(&result, ToUtf8(word, kKept), " (", word.size(),
                      " bytes)");
    }
    text.remove_prefix(end);
    const size_t next = std::min(text.find_first_not_of(" \n"), text.size());
    absl::StrAppend(&result, text.substr(0, next));
    text.remove_prefix(next);
  }
  return result;
}

std::string FirstClause(absl::string_view text) {
  constexpr int kColumns = 60;
  const std::string line = Printable(text);
  const std::string clause = line.substr(0, line.find("; "));
  if (DisplayWidth(clause) <= kColumns) return clause;
  return absl::StrCat(CutToWidth(clause, kColumns - 3), "...");
}

std::string HumanCount(double count) {
  return WithUnit(count, 1000, {"", " k", " M", " G", " T"});
}

std::string HumanRate(double per_second) {
  return std::abs(per_second) < 10 ? HumanNumber(per_second, 2)
                                   : HumanCount(per_second);
}

std::string HumanBytes(double bytes) {
  return WithUnit(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string HumanDuration(absl::Duration duration) {
  const int64_t seconds = std::llround(
      absl::ToDoubleSeconds(std::max(duration, absl::ZeroDuration())));
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) {
    return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  }
  return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
}

std::string HumanSeconds(double seconds) {
  if (!(seconds < 1)) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  return absl::StrFormat("%.3g ms", seconds * 1e3);
}

std::string HumanTime(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string HumanNumber(double value, int digits) {
  // A NaN may have a sign, which says nothing.
  return std::isnan(value) ? "nan" : absl::StrFormat("%.*g", digits, value);
}

std::string HumanLoss(double loss) {
  return std::isnan(loss) ? "nan" : absl::StrFormat("%.4f", loss);
}

std::string WhyNotAmong(const std::string& what, const std::string& word,
                        const std::vector<std::string>& names) {
  if (absl::c_linear_search(names, word)) return "";
  return absl::StrCat("there is no ", what, " '", Printable(word), "'",
                      MeantText(word, names),
                      "; there are: ", absl::StrJoin(names, ", "));
}

absl::Status CheckAmong(const std::string& where, const std::string& what,
                        const std::string& word,
                        const std::vector<std::string>& names) {
  const std::string why = WhyNotAmong(what, word, names);
  if (why.empty()) return absl::OkStatus();
  return InvalidArgument(where, why);
}

bool ParseTimeout(const std::string& text, absl::Duration* timeout) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    if (!std::isfinite(seconds)) return false;
    *timeout = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, timeout)) {
    return false;
  }
  return *timeout >= absl::ZeroDuration() &&
         *timeout < absl::InfiniteDuration();
}

void Table::AddRow(std::vector<std::string> cells) {
  PACELINE_CHECK_EQ(cells.size(), titles_.size());
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render(bool wide) const {
  std::vector<std::vector<std::string>> lines = {{}};
  for (const absl::string_view title : titles_) {
    lines[0].push_back(absl::AsciiStrToUpper(
        absl::StripPrefix(absl::StripPrefix(title, "+"), ">")));
  }
  lines.insert(lines.end(), rows_.begin(), rows_.end());
  std::vector<int> widths(titles_.size(), 0);
  for (const auto& cells : lines) {
    for (size_t c = 0; c < cells.size(); ++c) {
      widths[c] = std::max(widths[c], DisplayWidth(cells[c]));
    }
  }

  std::string text;
  for (const auto& cells : lines) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      absl::string_view title = titles_[c];
      if (absl::ConsumePrefix(&title, "+") && !wide) continue;
      const std::string padding(widths[c] - DisplayWidth(cells[c]), ' ');
      const bool flush_right = absl::StartsWith(title, ">");
      absl::StrAppend(&line, c > 0 ? "  " : "", flush_right ? padding : "",
                      cells[c], flush_right ? "" : padding);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
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

namespace {

constexpr int kLabelColumns = 10;
// U+2581 to U+2588: one to eight eighths.
constexpr const char* kEighths[] = {" ", "▁", "▂", "▃", "▄",
                                    "▅", "▆", "▇", "█"};

struct Columns {
  std::vector<double> values;  // mean of a column's points, gaps carried on
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
};

std::optional<Columns> Gather(const LossCurve& curve, int columns) {
  std::vector<double> sums(columns, 0);
  std::vector<int> counts(columns, 0);
  const int64_t first = curve.begin()->step();
  const int64_t span = curve.rbegin()->step() - first + 1;
  if (span < 2) return std::nullopt;
  for (const v1::StepRecord& point : curve) {
    if (!std::isfinite(point.loss())) continue;
    const int64_t column = (point.step() - first) * columns / span;
    if (column < 0 || column >= columns) continue;
    sums[column] += point.loss();
    ++counts[column];
  }
  Columns result;
  double last = std::numeric_limits<double>::quiet_NaN();
  for (int c = 0; c < columns; ++c) {
    if (counts[c] > 0) {
      last = sums[c] / counts[c];
      result.least = std::min(result.least, last);
      result.greatest = std::max(result.greatest, last);
    }
    result.values.push_back(last);
  }
  if (!std::isfinite(result.least)) return std::nullopt;
  return result;
}

}  // namespace

std::string PlotLoss(const LossCurve& curve, const PlotOptions& options) {
  if (!curve.empty() && absl::c_none_of(curve, [](const auto& point) {
        return std::isfinite(point.loss());
      })) {
    return "no finite loss\n";
  }
  if (curve.size() < 2) return "";
  const std::optional<Columns> columns = Gather(curve, options.columns);
  if (!columns.has_value()) return "";

  // The least value still shows one eighth, so that it differs from no value.
  const double range = columns->greatest - columns->least;
  std::vector<int> eighths;
  for (const double value : columns->values) {
    const double share = range > 0 ? (value - columns->least) / range : 0.5;
    eighths.push_back(std::isnan(value)
                          ? 0
                          : 1 + static_cast<int>(std::lround(
                                    share * (8 * options.rows - 1))));
  }

  std::string text;
  for (int row = options.rows - 1; row >= 0; --row) {
    std::string label;
    if (row == options.rows - 1) label = HumanNumber(columns->greatest);
    if (row == 0) label = HumanNumber(columns->least);
    absl::StrAppendFormat(&text, "%*s |", kLabelColumns, label);
    std::string line;
    for (const int bar : eighths) {
      const int cell = std::clamp(bar - 8 * row, 0, 8);  // filled eighths
      // Half a cell rounds up, and the lowest row always shows the bar.
      const char* ascii = cell >= 4 || (row == 0 && cell > 0) ? "#" : " ";
      line += options.unicode ? kEighths[cell] : ascii;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  const std::string first = absl::StrCat("step ", curve.begin()->step());
  const std::string last = absl::StrCat(curve.rbegin()->step());
  const int gap =
      std::max<int>(1, options.columns - first.size() - last.size());
  absl::StrAppend(&text, std::string(kLabelColumns + 2, ' '), first,
                  std::string(gap, ' '), last, "\n");
  return text;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace paceline

#include "core/predict/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/base/text.h"

namespace paceline {
namespace {

constexpr int kLeastCopiedPoints = 3;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// kUnknown for a word.
double NumberOf(const std::string& value) {
  double number;
  const bool is_number =
      absl::SimpleAtod(value, &number) && std::isfinite(number);
  return is_number ? number : kUnknown;
}

// A copy has at least half its points from one curve before it, to the last
// bit; measurements of their own never agree so.
void FindFamilies(std::vector<Curve>& curves) {
  // By (size, seconds): the family of the first curve that has the point.
  std::map<std::pair<double, double>, int> owner;
  for (size_t c = 0; c < curves.size(); ++c) {
    Curve& curve = curves[c];
    curve.family = static_cast<int>(c);
    std::map<int, int> shared;
    for (int p = 0; p < curve.points(); ++p) {
      const auto [at, is_new] =
          owner.try_emplace({curve.sizes[p], curve.seconds[p]}, curve.family);
      if (!is_new) ++shared[at->second];
    }
    for (const auto& [family, count] : shared) {
      if (count < kLeastCopiedPoints || 2 * count < curve.points()) continue;
      curve.family = family;
      break;
    }
  }
}

// The features in which two curves differ, and how far apart these are: the
// ratios of numbers in powers of e, 1 for words.
std::pair<int, double> Unlikeness(const Curve& a, const Curve& b) {
  std::pair<int, double> unlike = {0, 0};
  for (size_t c = 0; c < a.features.size(); ++c) {
    if (a.features[c] == b.features[c]) continue;
    const double apart =
        std::abs(std::log(NumberOf(a.features[c]) / NumberOf(b.features[c])));
    unlike.first += 1;
    unlike.second += std::isfinite(apart) ? apart : 1;
  }
  return unlike;
}

// Bytes of one of the curve's elements; 0 if that is not known.
double ElementBytes(const CurveSet& set, const Curve& curve) {
  const auto dtype = absl::c_find(set.columns, "dtype") - set.columns.begin();
  if (curve.size_column != "elements" || dtype == std::ssize(set.columns)) {
    return 0;
  }
  return ElementBytesOf(curve.features[dtype]);
}

// The curves whose sizes count what the target's do, by their features; none of
// its family, and none that differs from it in fewer features.
using ByFeatures = std::map<std::vector<std::string>, const Curve*>;
ByFeatures EvidenceFor(const CurveSet& set, const Curve& target,
                       int least_differences) {
  ByFeatures evidence;
  for (const Curve& curve : set.curves) {
    if (curve.family != target.family &&
        curve.size_column == target.size_column &&
        Unlikeness(curve, target).first >= least_differences) {
      evidence.emplace(curve.features, &curve);
    }
  }
  return evidence;
}

// Gives at most so many curves, the most alike first: by differences, then by
// how far they are apart, then by the set's order.
std::vector<Sister> FindSisters(const CurveSet& set, const Curve& target,
                                const ByFeatures& evidence, size_t most) {
  std::vector<std::pair<std::pair<int, double>, const Curve*>> candidates;
  for (const auto& [features, curve] : evidence) {
    candidates.emplace_back(Unlikeness(*curve, target), curve);
  }
  absl::c_sort(candidates);
  if (candidates.size() > most) candidates.resize(most);
  std::vector<Sister> sisters;
  for (const auto& [unlike, curve] : candidates) {
    sisters.push_back({.curve = curve, .differences = unlike.first});
    const double ratio = ElementBytes(set, target) / ElementBytes(set, *curve);
    if (!std::isfinite(ratio) || ratio == 0 || ratio == 1) continue;
    sisters.push_back(sisters.back());
    sisters.back().scale = ratio;
  }
  return sisters;
}

// Seconds at `size` on the line between two points of the curve, or those of
// the only one of them that it has.
double SecondsAcross(const Curve& curve, int below, int above, double size) {
  if (below < 0) return curve.seconds[above];
  if (above >= curve.points()) return curve.seconds[below];
  const double part =
      (size - curve.sizes[below]) / (curve.sizes[above] - curve.sizes[below]);
  return (1 - part) * curve.seconds[below] + part * curve.seconds[above];
}

// The first point that is no smaller than `size`.
int PointFrom(const Curve& curve, double size) {
  return static_cast<int>(absl::c_lower_bound(curve.sizes, size) -
                          curve.sizes.begin());
}

}  // namespace

std::string CanonicalValue(const std::string& value) {
  const double number = NumberOf(value);
  return std::isnan(number) ? value : absl::StrCat(number);
}

CurveSet BuildCurves(const std::vector<TimingTable>& tables) {
  CurveSet set;
  for (const TimingTable& table : tables) {
    set.dropped_rows += table.dropped_rows;
    for (const std::string& column : table.columns) {
      if (!absl::c_linear_search(set.columns, column)) {
        set.columns.push_back(column);
      }
    }
  }
  // (size column, features), and the times by size.
  std::map<std::pair<std::string, std::vector<std::string>>,
           std::map<double, std::vector<double>>>
      named;
  for (const TimingTable& table : tables) {
    for (const auto& [values, measurements] : table.measurements) {
      std::vector<std::string> features(set.columns.size());
      for (size_t c = 0; c < values.size(); ++c) {
        const auto at = absl::c_find(set.columns, table.columns[c]);
        features[at - set.columns.begin()] = CanonicalValue(values[c]);
      }
      auto& all = named[{table.size_column, std::move(features)}];
      for (const auto& [size, seconds] : measurements) {
        all[size].push_back(seconds);
      }
    }
  }
  for (auto& [name, measurements] : named) {
    Curve& curve = set.curves.emplace_back();
    std::tie(curve.size_column, curve.features) = name;
    for (auto& [size, repeats] : measurements) {
      curve.sizes.push_back(size);
      curve.seconds.push_back(Median(std::move(repeats)));
    }
  }
  FindFamilies(set.curves);
  return set;
}

double LogSecondsAt(const Curve& curve, double size) {
  const std::vector<double>& sizes = curve.sizes;
  const int at = PointFrom(curve, size);
  const double seconds = std::log(SecondsAcross(curve, at - 1, at, size));
  if (at < curve.points() || at == 1 || sizes[at - 2] <= 0) return seconds;
  const double slope = (seconds - std::log(curve.seconds[at - 2])) /
                       std::log(sizes[at - 1] / sizes[at - 2]);
  return seconds + std::clamp(slope, 0.0, 1.0) * std::log(size / sizes[at - 1]);
}

double ElementBytesOf(const std::string& dtype) {
  const size_t digit = dtype.find_first_of("0123456789");
  if (digit == std::string::npos) return 0;
  return std::strtol(dtype.c_str() + digit, nullptr, 10) / 8.0;
}

// --- predictions ---

namespace {

// Sisters that one prediction listens to.
constexpr size_t kMostSisters = 24;
constexpr int kMostDifferences = 2;
// Points at each side from which a sister's worth is judged: agreement further
// away says little about here.
constexpr int kWindow = 7;
// The weight of agreement fades with the distance in points.
constexpr double kFade = 2;
// Measuring noise, relative: curves that agree better than this are equal.
constexpr double kNoise = 0.01;
// A disagreement larger than this says no more than this.
constexpr double kMostDisagreement = 0.3;
// "No correction" competes as a sister of this prior weight.
constexpr double kPlainPrior = 0.03;

using WeightByValue = std::map<double, double>;

// The least value with half the weight at or below it; 0 for none.
double WeightedMedian(const WeightByValue& weights) {
  double total = 0;
  for (const auto& [value, weight] : weights) total += weight;
  double below = 0;
  for (const auto& [value, weight] : weights) {
    below += weight;
    if (2 * below >= total) return value;
  }
  return 0;
}

// log(seconds) where the curve was measured, or between: else kUnknown.
double LogSecondsWithin(const Curve& curve, double size) {
  const bool within = size >= curve.sizes.front() && size <= curve.sizes.back();
  return within ? LogSecondsAt(curve, size) : kUnknown;
}

// Curves are compared by these numbers at each point.  Inside: how far it lies
// from the line between its neighbours, which the first and the last have not.
// Outside: how far it is from the one before it.
std::vector<double> ChangesOf(const Curve& curve, bool inside) {
  const int points = curve.points();
  std::vector<double> changes(points, kUnknown);
  for (int p = 1; p < (inside ? points - 1 : points); ++p) {
    const double plain =
        SecondsAcross(curve, p - 1, inside ? p + 1 : points, curve.sizes[p]);
    changes[p] = std::log(curve.seconds[p] / plain);
  }
  return changes;
}

// By the mean absolute disagreement at the points around the one at `gap`, near
// points first.
double WeightOf(const std::vector<double>& disagreements, int gap,
                double prior) {
  double sum = 0;
  double weights = 0;
  for (int p = 0; p < static_cast<int>(disagreements.size()); ++p) {
    if (std::isnan(disagreements[p])) continue;
    const double weight = 1 / (1 + std::abs(p - gap + 0.5) / kFade);
    sum += weight * std::min(std::abs(disagreements[p]), kMostDisagreement);
    weights += weight;
  }
  const double mean = weights > 0 ? sum / weights : kMostDisagreement;
  return prior / ((mean + kNoise) * (mean + kNoise));
}

constexpr size_t kMostSources = 12;
constexpr size_t kMostPairs = 16;
// Pairs are looked for among so many curves, evenly taken from a larger set.
constexpr size_t kMostSearched = 1024;
// Expected |log error| for a feature that differs and of which no pair tells.
constexpr double kUnknownSpread = 0.5;

// `value` changed as `from` became `to`: the other word, or the same ratio.
// False when `value` is not the word that changes.
bool Transform(const std::string& from, const std::string& to,
               std::string& value) {
  if (from == to) return true;
  const double number = NumberOf(value) * NumberOf(to) / NumberOf(from);
  if (!std::isfinite(number) && value != from) return false;
  value = std::isfinite(number) ? absl::StrCat(number) : to;
  return true;
}

// Pairs of curves that differ as `source` and `target` do; those that are most
// like the source first.
std::vector<std::pair<const Curve*, const Curve*>> FindPairs(
    const Curve& source, const Curve& target, const ByFeatures& evidence) {
  std::vector<std::tuple<int, const Curve*, const Curve*>> found;
  const size_t stride = 1 + evidence.size() / kMostSearched;
  size_t index = 0;
  for (const auto& [name, curve] : evidence) {
    if (index++ % stride != 0) continue;
    std::vector<std::string> features = name;
    bool differs_so = true;
    for (size_t c = 0; differs_so && c < features.size(); ++c) {
      differs_so =
          Transform(source.features[c], target.features[c], features[c]);
    }
    const auto other = evidence.find(features);
    if (differs_so && other != evidence.end() &&
        other->second->family != curve->family) {
      found.emplace_back(Unlikeness(*curve, source).first, curve,
                         other->second);
    }
  }
  std::ranges::sort(found);
  std::vector<std::pair<const Curve*, const Curve*>> pairs;
  for (const auto& [differences, from, to] : found) {
    if (pairs.size() < kMostPairs) pairs.emplace_back(from, to);
  }
  return pairs;
}

// Features of the target that are numbers beyond those of `evidence`.
int NumbersBeyond(const Curve& target, const ByFeatures& evidence) {
  int beyond = 0;
  for (size_t c = 0; c < target.features.size(); ++c) {
    const double number = NumberOf(target.features[c]);
    const auto reaches = [&](double sign) {
      return absl::c_any_of(evidence, [&](const auto& known) {
        return sign * NumberOf(known.first[c]) >= sign * number;
      });
    };
    beyond += !std::isnan(number) && !(reaches(1) && reaches(-1));
  }
  return beyond;
}

}  // namespace

KnownCurve::KnownCurve(const CurveSet& set, const Curve& curve)
    : curve_(curve),
      sisters_(
          FindSisters(set, curve, EvidenceFor(set, curve, 0), kMostSisters)) {}

double KnownCurve::LogSeconds(double size, PointRange left_out) const {
  if (left_out.first == left_out.last) {
    left_out.first = left_out.last = PointFrom(curve_, size);
  }
  Curve near;
  for (int p = std::max(left_out.first - kWindow, 0);
       p < std::min(left_out.last + kWindow, curve_.points()); ++p) {
    if (p >= left_out.first && p < left_out.last) continue;
    near.sizes.push_back(curve_.sizes[p]);
    near.seconds.push_back(curve_.seconds[p]);
  }
  const int gap = std::min(left_out.first, kWindow);
  const bool inside = gap > 0 && gap < near.points();
  if (gap < near.points() && near.sizes[gap] == size) {
    return std::log(near.seconds[gap]);
  }

  // By the neighbours alone.
  const auto plain_of = [&](const Curve& curve) {
    return std::log(SecondsAcross(curve, gap - 1, gap, size));
  };
  const std::vector<double> own = ChangesOf(near, inside);
  WeightByValue corrections;
  corrections[LogSecondsAt(near, size) - plain_of(near)] =
      WeightOf(inside ? own : std::vector<double>(), gap, kPlainPrior);
  for (const Sister& sister : sisters_) {
    if (sister.differences > kMostDifferences) break;
    const auto their_log_seconds = [&](double at) {
      return LogSecondsWithin(*sister.curve, sister.scale * at);
    };
    Curve theirs;
    theirs.sizes = near.sizes;
    for (const double at : near.sizes) {
      theirs.seconds.push_back(std::exp(their_log_seconds(at)));
    }
    const double correction = their_log_seconds(size) - plain_of(theirs);
    if (std::isnan(correction)) continue;
    std::vector<double> apart = ChangesOf(theirs, inside);
    for (size_t p = 0; p < apart.size(); ++p) apart[p] -= own[p];
    const double unlike = 1 + sister.differences;
    corrections[correction] += WeightOf(apart, gap, 1 / (unlike * unlike));
  }
  return plain_of(near) + WeightedMedian(corrections);
}

UnseenCurve::UnseenCurve(const CurveSet& set, const Curve& target,
                         int least_differences) {
  const ByFeatures evidence = EvidenceFor(set, target, least_differences);
  bool has_pair = false;
  sources_ = FindSisters(set, target, evidence, kMostSources);
  for (Sister& source : sources_) {
    source.pairs = FindPairs(*source.curve, target, evidence);
    has_pair = has_pair || !source.pairs.empty();
  }
  if (has_pair) {
    distance_ = sources_.front().differences +
                NumbersBeyond(target, EvidenceFor(set, target, 0));
  }
}

double UnseenCurve::LogSeconds(double size) const {
  WeightByValue answers;
  for (const auto& [curve, differences, scale, pairs] : sources_) {
    // The pairs say so about log(target / source).
    std::vector<double> ratios;
    for (const auto& [from, to] : pairs) {
      if (size > to->sizes.back() || scale * size > from->sizes.back()) {
        continue;
      }
      ratios.push_back(LogSecondsAt(*to, size) -
                       LogSecondsAt(*from, scale * size));
    }
    const double median = Median(ratios);
    // One pair more that says "no change" and knows nothing: a large change
    // needs many pairs, and how far it was pulled is uncertain.
    const auto count = static_cast<double>(ratios.size());
    double apart = std::abs(median) + kUnknownSpread * differences;
    for (const double ratio : ratios) apart += std::abs(ratio - median);
    const double spread = apart / (count + 1) + kNoise;
    answers[LogSecondsAt(*curve, scale * size) +
            median * count / (count + 1)] += 1 / (spread * spread);
  }
  return WeightedMedian(answers);
}

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

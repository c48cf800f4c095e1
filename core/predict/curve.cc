#include "core/predict/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

constexpr int kLeastCopiedPoints = 3;

// (size column, features), and the times by size.
using CurveName = std::pair<std::string, std::vector<std::string>>;
using Measurements = std::map<double, std::vector<double>>;

// The index of `column`, which is added where it is new.
size_t IndexOf(const std::string& column, std::vector<std::string>& columns) {
  const auto at = std::find(columns.begin(), columns.end(), column);
  if (at != columns.end()) return at - columns.begin();
  columns.push_back(column);
  return columns.size() - 1;
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
      if (count >= kLeastCopiedPoints && 2 * count >= curve.points()) {
        curve.family = family;
        break;
      }
    }
  }
}

// How far two numbers are apart, in powers of e; 1 for words.
double Distance(bool numeric, const std::string& a, const std::string& b) {
  double from, to;
  if (!numeric || !absl::SimpleAtod(a, &from) || !absl::SimpleAtod(b, &to) ||
      from <= 0 || to <= 0) {
    return 1;
  }
  return std::abs(std::log(to / from));
}

// Counts the features in which two curves differ.
int Differences(const Curve& a, const Curve& b) {
  int differences = 0;
  for (size_t c = 0; c < a.features.size(); ++c) {
    differences += a.features[c] != b.features[c];
  }
  return differences;
}

// Factors at which sizes of `of` may equal sizes of `target`: 1, and the ratio
// of their element sizes where sizes count elements.
std::vector<double> ScalesOf(const CurveSet& set, const Curve& target,
                             const Curve& of) {
  std::vector<double> scales = {1};
  if (target.size_column != "elements") return scales;
  for (size_t c = 0; c < set.columns.size(); ++c) {
    if (set.columns[c] != "dtype") continue;
    const double bytes = ElementBytesOf(target.features[c]);
    const double bytes_of = ElementBytesOf(of.features[c]);
    if (bytes > 0 && bytes_of > 0 && bytes != bytes_of) {
      scales.push_back(bytes / bytes_of);
    }
  }
  return scales;
}

}  // namespace

double WeightedMedian(std::vector<Weighted> values) {
  std::sort(
      values.begin(), values.end(),
      [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double total = 0;
  for (const Weighted& v : values) total += v.weight;
  double below = 0;
  for (const Weighted& v : values) {
    below += v.weight;
    if (2 * below >= total) return v.value;
  }
  return 0;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return Quantile(values, 0.5);
}

double Quantile(const std::vector<double>& sorted, double part) {
  const double rank = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(std::floor(rank));
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] +
         (rank - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

std::string CanonicalValue(const std::string& value) {
  double number;
  if (!absl::SimpleAtod(value, &number) || !std::isfinite(number)) return value;
  return absl::StrCat(number);
}

absl::StatusOr<CurveSet> BuildCurves(const std::vector<TimingTable>& tables) {
  if (tables.empty()) {
    return absl::InvalidArgumentError("got no measurements to fit");
  }
  CurveSet set;
  for (const TimingTable& table : tables) {
    for (const std::string& column : table.columns) {
      IndexOf(column, set.columns);
    }
  }
  std::map<CurveName, Measurements> named;
  for (const TimingTable& table : tables) {
    if (table.measurements.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(table.name, ": none of its ", table.dropped_rows,
                       " times is finite and positive: nothing to fit"));
    }
    for (const auto& [values, measurements] : table.measurements) {
      CurveName name{table.size_column,
                     std::vector<std::string>(set.columns.size())};
      for (size_t c = 0; c < values.size(); ++c) {
        name.second[IndexOf(table.columns[c], set.columns)] =
            CanonicalValue(values[c]);
      }
      Measurements& all = named[std::move(name)];
      for (const auto& [size, seconds] : measurements) {
        all[size].push_back(seconds);
      }
    }
    set.dropped_rows += table.dropped_rows;
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
  for (size_t c = 0; c < set.columns.size(); ++c) {
    set.numeric.push_back(std::all_of(
        set.curves.begin(), set.curves.end(), [c](const Curve& curve) {
          double number;
          return curve.features[c].empty() ||
                 absl::SimpleAtod(curve.features[c], &number);
        }));
  }
  return set;
}

double LogSecondsAt(const Curve& curve, double size) {
  const std::vector<double>& sizes = curve.sizes;
  const std::vector<double>& seconds = curve.seconds;
  const size_t at =
      std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin();
  if (at < sizes.size() && (sizes[at] == size || at == 0)) {
    return std::log(seconds[at]);
  }
  if (at < sizes.size()) {
    const double part = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1]);
    return std::log(seconds[at - 1] + part * (seconds[at] - seconds[at - 1]));
  }
  const size_t last = at - 1;
  const double end = std::log(seconds[last]);
  if (last == 0) return end;
  if (sizes[last - 1] <= 0) return end;
  const double slope = (end - std::log(seconds[last - 1])) /
                       std::log(sizes[last] / sizes[last - 1]);
  return end + std::clamp(slope, 0.0, 1.0) * std::log(size / sizes[last]);
}

double ElementBytesOf(const std::string& dtype) {
  const size_t digit = dtype.find_first_of("0123456789");
  if (digit == std::string::npos) return 0;
  const size_t end = dtype.find_first_not_of("0123456789", digit);
  int bits;
  if (!absl::SimpleAtoi(dtype.substr(digit, end - digit), &bits)) return 0;
  return bits / 8.0;
}

double OctavesBetween(double a, double b) {
  return std::abs(std::log2((1 + a) / (1 + b)));
}

std::vector<Sister> FindSisters(const CurveSet& set, const Curve& target,
                                const SisterLimits& limits) {
  // (differences, distance, the curve: they lie in the set's order)
  std::vector<std::tuple<int, double, const Curve*>> candidates;
  for (const Curve& curve : set.curves) {
    const int differences = Differences(curve, target);
    if (curve.family == target.family ||
        curve.size_column != target.size_column ||
        differences < limits.least_differences ||
        differences > limits.differences) {
      continue;
    }
    double distance = 0;
    for (size_t c = 0; c < set.columns.size(); ++c) {
      if (curve.features[c] == target.features[c]) continue;
      distance +=
          Distance(set.numeric[c], target.features[c], curve.features[c]);
    }
    candidates.emplace_back(differences, distance, &curve);
  }
  const auto most = std::min<size_t>(candidates.size(), limits.sisters);
  std::partial_sort(candidates.begin(), candidates.begin() + most,
                    candidates.end());
  std::vector<Sister> sisters;
  for (const auto& [differences, distance, curve] : candidates) {
    for (const double scale : ScalesOf(set, target, *curve)) {
      if (static_cast<int>(sisters.size()) == limits.sisters) return sisters;
      sisters.push_back({curve, scale, differences});
    }
  }
  return sisters;
}

// --- predictions
// --------------------------------------------------------------

namespace {

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

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A sister at a size of the target; NaN beyond what it has measured.
double SisterAt(const Sister& sister, double size) {
  const double scaled = sister.scale * size;
  if (scaled > sister.curve->sizes.back() ||
      scaled < sister.curve->sizes.front()) {
    return kUnknown;
  }
  return LogSecondsAt(*sister.curve, scaled);
}

// The measured sizes around one that is asked for, which lies between gap - 1
// and gap; outside of them both are the nearest.
struct Around {
  std::vector<double> sizes;
  int gap = 0;
  double size = 0;

  int points() const { return static_cast<int>(sizes.size()); }
  bool inside() const { return gap > 0 && gap < points(); }
  int low() const { return std::max(gap - 1, 0); }
  int high() const { return std::min(gap, points() - 1); }

  // log of the line from (sizes[a], e^logs[a]) to (sizes[b], e^logs[b]).
  double LineAt(const std::vector<double>& logs, int a, int b,
                double at) const {
    const double part = (at - sizes[a]) / (sizes[b] - sizes[a]);
    return std::log((1 - part) * std::exp(logs[a]) + part * std::exp(logs[b]));
  }

  // The log at the size by the logs at the sizes alone.
  double Plain(const std::vector<double>& logs) const {
    return inside() ? LineAt(logs, low(), high(), size) : logs[low()];
  }

  // Curves are compared by these numbers at each size.  Inside: how far it is
  // from the line between its neighbours; NaN for the first, the last and the
  // two beside the gap, whose line would cross it.  Outside: how far it is from
  // the one before it.
  std::vector<double> Changes(const std::vector<double>& logs) const {
    std::vector<double> changes(sizes.size(), kUnknown);
    for (int p = 1; p < points(); ++p) {
      if (!inside()) {
        changes[p] = logs[p] - logs[p - 1];
      } else if (p != gap && p != gap - 1 && p + 1 < points()) {
        changes[p] = logs[p] - LineAt(logs, p - 1, p + 1, sizes[p]);
      }
    }
    return changes;
  }

  // The mean absolute difference, near points first, as a weight.
  double WeightOf(const std::vector<double>& differences, double prior) const {
    double sum = 0;
    double weights = 0;
    for (int p = 0; p < static_cast<int>(differences.size()); ++p) {
      if (std::isnan(differences[p])) continue;
      const int distance = p < high() ? high() - p : p - low();
      const double weight = 1 / (1 + distance / kFade);
      sum += weight * std::min(std::abs(differences[p]), kMostDisagreement);
      weights += weight;
    }
    const double mean = weights > 0 ? sum / weights : kMostDisagreement;
    return prior / ((mean + kNoise) * (mean + kNoise));
  }
};

constexpr int kMostSources = 12;
constexpr int kMostPairs = 16;
// Pairs are looked for among so many curves, evenly taken from a larger set.
constexpr int kMostSearched = 1024;
// Expected |log error| for a feature that differs and of which no pair tells.
constexpr double kUnknownSpread = 0.5;

using CurvePair = std::pair<const Curve*, const Curve*>;
using ByFeatures = std::map<std::vector<std::string>, const Curve*>;

// `value` changed as `from` became `to`: the other word, or the same ratio.
// False when `value` is not the word that changes.
bool Transform(bool numeric, const std::string& from, const std::string& to,
               std::string* value) {
  if (from == to) return true;
  double a, b, v;
  if (numeric && absl::SimpleAtod(from, &a) && absl::SimpleAtod(to, &b) &&
      absl::SimpleAtod(*value, &v) && a != 0) {
    *value = absl::StrCat(v * b / a);
    return true;
  }
  if (*value != from) return false;
  *value = to;
  return true;
}

// Pairs of curves out of `by_features`, which are those `searched`, that differ
// as `source` and `target` do; those that are most like the source first.
std::vector<CurvePair> FindPairs(const CurveSet& set, const Curve& source,
                                 const Curve& target,
                                 const std::vector<const Curve*>& searched,
                                 const ByFeatures& by_features) {
  std::vector<std::pair<int, size_t>> order;  // (differences, index of found)
  std::vector<CurvePair> found;
  const size_t most = std::min<size_t>(searched.size(), kMostSearched);
  for (size_t s = 0; s < most; ++s) {
    const Curve& curve = *searched[s * searched.size() / most];
    std::vector<std::string> features = curve.features;
    bool differs_so = true;
    for (size_t c = 0; differs_so && c < set.columns.size(); ++c) {
      differs_so = Transform(set.numeric[c], source.features[c],
                             target.features[c], &features[c]);
    }
    const auto other = by_features.find(features);
    if (!differs_so || other == by_features.end() ||
        other->second->family == curve.family) {
      continue;
    }
    order.emplace_back(Differences(curve, source), found.size());
    found.emplace_back(&curve, other->second);
  }
  std::sort(order.begin(), order.end());
  std::vector<CurvePair> pairs;
  for (size_t i = 0; i < std::min<size_t>(order.size(), kMostPairs); ++i) {
    pairs.push_back(found[order[i].second]);
  }
  return pairs;
}

// Features of the target that are numbers beyond those of `usable` curves.
int NumbersBeyond(const CurveSet& set, const Curve& target,
                  const std::vector<const Curve*>& usable) {
  int beyond = 0;
  for (size_t c = 0; c < set.columns.size(); ++c) {
    double number, other;
    if (!set.numeric[c] || !absl::SimpleAtod(target.features[c], &number)) {
      continue;
    }
    bool below = true;
    bool above = true;
    for (const Curve* curve : usable) {
      if (!absl::SimpleAtod(curve->features[c], &other)) continue;
      below = below && number < other;
      above = above && number > other;
    }
    beyond += below || above;
  }
  return beyond;
}

// The answer of the pairs about log(target / source) at a size.
struct Change {
  double log_ratio = 0;
  double spread = 0;
};

Change ChangeAt(const std::vector<CurvePair>& pairs, double size, double scale,
                double unknown_spread) {
  std::vector<double> ratios;
  for (const auto& [from, to] : pairs) {
    if (size > to->sizes.back() || scale * size > from->sizes.back()) continue;
    ratios.push_back(LogSecondsAt(*to, size) -
                     LogSecondsAt(*from, scale * size));
  }
  const double median = Median(ratios);
  std::vector<double> apart;
  for (const double ratio : ratios) apart.push_back(std::abs(ratio - median));
  // One pair more that says "no change" and knows nothing: a large change needs
  // many pairs, and how far it was pulled is uncertain.
  const auto count = static_cast<double>(ratios.size());
  return {.log_ratio = median * count / (count + 1),
          .spread = (Mean(apart) * count + std::abs(median) + unknown_spread) /
                    (count + 1)};
}

}  // namespace

double KnownCurve::Estimate(double size, int first, int last,
                            int left_out) const {
  const auto begin = curve_.sizes.begin();
  const auto above = static_cast<int>(
      std::lower_bound(begin + first, begin + last, size) - begin);
  Around around{.sizes = {}, .size = size};
  std::vector<double> logs;
  const int end = std::min(last, above + kWindow + (left_out == kNone ? 0 : 1));
  for (int p = std::max(first, above - kWindow); p < end; ++p) {
    if (p == left_out) continue;
    around.gap += p < above;
    around.sizes.push_back(curve_.sizes[p]);
    logs.push_back(std::log(curve_.seconds[p]));
  }
  if (around.gap < around.points() && around.sizes[around.gap] == size) {
    return logs[around.gap];
  }

  const std::vector<double> own = around.Changes(logs);
  std::vector<Weighted> corrections = {{0, around.WeightOf(own, kPlainPrior)}};
  if (!around.inside()) {
    Curve near;
    near.sizes = around.sizes;
    for (const double log : logs) near.seconds.push_back(std::exp(log));
    corrections = {{LogSecondsAt(near, size) - around.Plain(logs),
                    around.WeightOf({}, kPlainPrior)}};
  }
  for (const Sister& sister : sisters_) {
    std::vector<double> theirs;
    for (const double at : around.sizes) theirs.push_back(SisterAt(sister, at));
    const double correction = SisterAt(sister, size) - around.Plain(theirs);
    if (std::isnan(correction)) continue;
    std::vector<double> differences = around.Changes(theirs);
    for (size_t p = 0; p < own.size(); ++p) differences[p] -= own[p];
    const double unlike = 1 + sister.differences;
    corrections.push_back(
        {correction, around.WeightOf(differences, 1 / (unlike * unlike))});
  }
  return around.Plain(logs) + WeightedMedian(std::move(corrections));
}

UnseenCurve::UnseenCurve(const CurveSet& set, const Curve& target,
                         int least_differences) {
  std::vector<const Curve*> others;
  std::vector<const Curve*> usable;
  ByFeatures by_features;
  for (const Curve& curve : set.curves) {
    if (curve.family == target.family ||
        curve.size_column != target.size_column) {
      continue;
    }
    others.push_back(&curve);
    if (Differences(curve, target) >= least_differences) {
      usable.push_back(&curve);
      by_features[curve.features] = &curve;
    }
  }
  bool has_pair = false;
  for (const Sister& sister :
       FindSisters(set, target,
                   {.least_differences = least_differences,
                   .differences = static_cast<int>(set.columns.size()),
                   .sisters = 2 * kMostSources})) {
    if (!sources_.empty() && sources_.back().curve == sister.curve) continue;
    if (static_cast<int>(sources_.size()) == kMostSources) break;
    sources_.push_back(
        {.curve = sister.curve,
         .differences = sister.differences,
         .scales = ScalesOf(set, target, *sister.curve),
         .pairs = FindPairs(set, *sister.curve, target, usable, by_features)});
    has_pair = has_pair || !sources_.back().pairs.empty();
  }
  if (has_pair) {
    distance_ =
        sources_.front().differences + NumbersBeyond(set, target, others);
  }
}

double UnseenCurve::LogSeconds(double size) const {
  std::vector<Weighted> answers;
  for (const Source& source : sources_) {
    for (const double scale : source.scales) {
      const Change change = ChangeAt(source.pairs, size, scale,
                                     kUnknownSpread * source.differences);
      const double spread = change.spread + kNoise;
      answers.push_back(
          {LogSecondsAt(*source.curve, scale * size) + change.log_ratio,
           1 / (spread * spread)});
    }
  }
  return WeightedMedian(std::move(answers));
}

}  // namespace paceline

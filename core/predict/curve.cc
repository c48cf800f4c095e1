#include "core/predict/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

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

// Sister::scales.
std::vector<double> ScalesOf(const CurveSet& set, const Curve& target,
                             const Curve& of) {
  const size_t dtype =
      std::find(set.columns.begin(), set.columns.end(), "dtype") -
      set.columns.begin();
  if (target.size_column != "elements" || dtype == set.columns.size()) {
    return {1};
  }
  const double bytes = ElementBytesOf(target.features[dtype]);
  const double bytes_of = ElementBytesOf(of.features[dtype]);
  if (bytes == 0 || bytes_of == 0 || bytes == bytes_of) return {1};
  return {1, bytes / bytes_of};
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

// At most so many, the most alike first: by differences, then by how far they
// are apart, then by the set's order.
std::vector<Sister> FindSisters(const CurveSet& set, const Curve& target,
                                const ByFeatures& evidence, size_t most) {
  std::vector<std::pair<std::pair<int, double>, const Curve*>> candidates;
  for (const auto& [features, curve] : evidence) {
    candidates.emplace_back(Unlikeness(*curve, target), curve);
  }
  std::sort(candidates.begin(), candidates.end());
  if (candidates.size() > most) candidates.resize(most);
  std::vector<Sister> sisters;
  for (const auto& [unlike, curve] : candidates) {
    sisters.push_back({curve, unlike.first, ScalesOf(set, target, *curve)});
  }
  return sisters;
}

// log of the line from point a to point b.
double LogOnLine(const Curve& curve, size_t a, size_t b, double size) {
  const double part =
      (size - curve.sizes[a]) / (curve.sizes[b] - curve.sizes[a]);
  return std::log((1 - part) * curve.seconds[a] + part * curve.seconds[b]);
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
  const double number = NumberOf(value);
  return std::isnan(number) ? value : absl::StrCat(number);
}

absl::StatusOr<CurveSet> BuildCurves(const std::vector<TimingTable>& tables) {
  if (tables.empty()) return InvalidArgument("got no measurements to fit");
  CurveSet set;
  // (size column, features), and the times by size.
  std::map<std::pair<std::string, std::vector<std::string>>,
           std::map<double, std::vector<double>>>
      named;
  for (const TimingTable& table : tables) {
    if (table.measurements.empty()) {
      return InvalidArgument(table.name, ": none of its ", table.dropped_rows,
                             " times is finite and positive: nothing to fit");
    }
    set.dropped_rows += table.dropped_rows;
    for (const std::string& column : table.columns) {
      if (std::find(set.columns.begin(), set.columns.end(), column) ==
          set.columns.end()) {
        set.columns.push_back(column);
      }
    }
  }
  for (const TimingTable& table : tables) {
    for (const auto& [values, measurements] : table.measurements) {
      std::vector<std::string> features(set.columns.size());
      for (size_t c = 0; c < values.size(); ++c) {
        const auto at =
            std::find(set.columns.begin(), set.columns.end(), table.columns[c]);
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
  const size_t at =
      std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin();
  if (at < sizes.size()) {
    const bool is_point = at == 0 || sizes[at] == size;
    return is_point ? std::log(curve.seconds[at])
                    : LogOnLine(curve, at - 1, at, size);
  }
  const size_t last = at - 1;
  const double end = std::log(curve.seconds[last]);
  if (last == 0 || sizes[last - 1] <= 0) return end;
  const double slope = (end - std::log(curve.seconds[last - 1])) /
                       std::log(sizes[last] / sizes[last - 1]);
  return end + std::clamp(slope, 0.0, 1.0) * std::log(size / sizes[last]);
}

double ElementBytesOf(const std::string& dtype) {
  const size_t digit = dtype.find_first_of("0123456789");
  if (digit == std::string::npos) return 0;
  return std::strtol(dtype.c_str() + digit, nullptr, 10) / 8.0;
}

// --- predictions
// --------------------------------------------------------------

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

// log(seconds) where the curve was measured, or between: else kUnknown.
double LogSecondsWithin(const Curve& curve, double size) {
  const bool within = size >= curve.sizes.front() && size <= curve.sizes.back();
  return within ? LogSecondsAt(curve, size) : kUnknown;
}

// Curves are compared by these numbers at each point.  Inside: how far it lies
// from the line between its neighbours, which the first and the last have not.
// Outside: how far it is from the one before it.
std::vector<double> ChangesOf(const Curve& curve, bool inside) {
  std::vector<double> changes(curve.sizes.size(), kUnknown);
  for (size_t p = 1; p < changes.size(); ++p) {
    if (!inside) {
      changes[p] = std::log(curve.seconds[p] / curve.seconds[p - 1]);
    } else if (p + 1 < changes.size()) {
      changes[p] = std::log(curve.seconds[p]) -
                   LogOnLine(curve, p - 1, p + 1, curve.sizes[p]);
    }
  }
  return changes;
}

// log(seconds) by the neighbours alone: the last point's beyond the largest.
double PlainAt(const Curve& curve, int gap, double size) {
  return gap == curve.points() ? std::log(curve.seconds.back())
                               : LogSecondsAt(curve, size);
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
  std::sort(found.begin(), found.end());
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
    bool below = !std::isnan(number);
    bool above = below;
    for (const auto& [features, curve] : evidence) {
      below = below && !(NumberOf(features[c]) <= number);
      above = above && !(NumberOf(features[c]) >= number);
    }
    beyond += below || above;
  }
  return beyond;
}

// The pairs of a source say this about log(target / source) at a size, and how
// sure that is.
struct Change {
  double log_ratio = 0;
  double spread = 0;
};

Change ChangeAt(const Sister& source, double scale, double size) {
  std::vector<double> ratios;
  for (const auto& [from, to] : source.pairs) {
    if (size > to->sizes.back() || scale * size > from->sizes.back()) continue;
    ratios.push_back(LogSecondsAt(*to, size) -
                     LogSecondsAt(*from, scale * size));
  }
  const double median = Median(ratios);
  // One pair more that says "no change" and knows nothing: a large change needs
  // many pairs, and how far it was pulled is uncertain.
  const auto count = static_cast<double>(ratios.size());
  double apart = std::abs(median) + kUnknownSpread * source.differences;
  for (const double ratio : ratios) apart += std::abs(ratio - median);
  return {median * count / (count + 1), apart / (count + 1)};
}

}  // namespace

KnownCurve::KnownCurve(const CurveSet& set, const Curve& curve)
    : curve_(curve),
      sisters_(
          FindSisters(set, curve, EvidenceFor(set, curve, 0), kMostSisters)) {}

double KnownCurve::LogSeconds(double size, PointRange left_out) const {
  const auto begin = curve_.sizes.begin();
  const auto above = static_cast<int>(
      std::lower_bound(begin, curve_.sizes.end(), size) - begin);
  if (left_out.first == left_out.last) left_out = {above, above};
  Curve near;
  const auto take = [&](int first, int last) {
    for (int p = std::max(first, 0); p < std::min(last, curve_.points()); ++p) {
      near.sizes.push_back(curve_.sizes[p]);
      near.seconds.push_back(curve_.seconds[p]);
    }
  };
  take(left_out.first - kWindow, left_out.first);
  const int gap = near.points();
  take(left_out.last, left_out.last + kWindow);
  if (gap < near.points() && near.sizes[gap] == size) {
    return std::log(near.seconds[gap]);
  }

  const bool inside = gap > 0 && gap < near.points();
  const std::vector<double> own = ChangesOf(near, inside);
  const double plain = PlainAt(near, gap, size);
  std::vector<Weighted> corrections = {
      {LogSecondsAt(near, size) - plain,
       WeightOf(inside ? own : std::vector<double>(), gap, kPlainPrior)}};
  for (const Sister& sister : sisters_) {
    if (sister.differences > kMostDifferences) break;
    for (const double scale : sister.scales) {
      Curve theirs;
      theirs.sizes = near.sizes;
      for (const double at : near.sizes) {
        theirs.seconds.push_back(
            std::exp(LogSecondsWithin(*sister.curve, scale * at)));
      }
      const double correction = LogSecondsWithin(*sister.curve, scale * size) -
                                PlainAt(theirs, gap, size);
      if (std::isnan(correction)) continue;
      std::vector<double> apart = ChangesOf(theirs, inside);
      for (size_t p = 0; p < apart.size(); ++p) apart[p] -= own[p];
      const double unlike = 1 + sister.differences;
      corrections.push_back(
          {correction, WeightOf(apart, gap, 1 / (unlike * unlike))});
    }
  }
  return plain + WeightedMedian(std::move(corrections));
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
  std::vector<Weighted> answers;
  for (const Sister& source : sources_) {
    for (const double scale : source.scales) {
      const Change change = ChangeAt(source, scale, size);
      const double spread = change.spread + kNoise;
      answers.push_back(
          {LogSecondsAt(*source.curve, scale * size) + change.log_ratio,
           1 / (spread * spread)});
    }
  }
  return WeightedMedian(std::move(answers));
}

}  // namespace paceline

#include "core/predict/curve_prediction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paceline {
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

  // What logs at the sizes say of the size by themselves.
  double Plain(const std::vector<double>& logs) const {
    return inside() ? LineAt(logs, low(), high(), size) : logs[low()];
  }

  // What curves are compared by, at each size.  Inside: how far it is from the
  // line between its neighbours; NaN for the first, the last and the two
  // beside the gap, whose line would cross it.  Outside: how far it is from
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
// Of a set with more curves, pairs are looked for among these many, evenly
// taken.
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

// What the pairs say about log(target / source) at a size.
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

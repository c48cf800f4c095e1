#include "core/predict/unseen_curve.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/predict/curve.h"

namespace paceline {
namespace {

constexpr int kMostSources = 12;
constexpr int kMostPairs = 16;
// Of a set with more curves, pairs are looked for among these many, evenly
// taken.
constexpr int kMostSearched = 1024;
// Measuring noise, relative.
constexpr double kNoise = 0.01;
// Expected |log error| for a feature that differs and of which no pair tells.
constexpr double kUnknownSpread = 0.5;

using Features = std::vector<std::string>;

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

class PairFinder {
 public:
  PairFinder(const CurveSet& set, const Curve& target, int least_differences)
      : set_(set), target_(target), least_differences_(least_differences) {
    const size_t curves = set.curves.size();
    const size_t searched = std::min<size_t>(curves, kMostSearched);
    for (size_t s = 0; s < searched; ++s) {
      const Curve& curve = set.curves[s * curves / searched];
      if (Usable(curve)) searched_.push_back(&curve);
    }
    for (const Curve& curve : set.curves) {
      if (Usable(curve)) by_features_[curve.features] = &curve;
    }
  }

  // Pairs that differ as `source` and the target do; those that are most like
  // the source first.
  std::vector<std::pair<const Curve*, const Curve*>> Find(
      const Curve& source) const {
    std::vector<std::pair<int, size_t>> order;  // (differences, found index)
    std::vector<std::pair<const Curve*, const Curve*>> found;
    for (const Curve* curve : searched_) {
      const Curve* other = Partner(source, *curve);
      if (other == nullptr || other->family == curve->family) continue;
      order.emplace_back(Differences(*curve, source), found.size());
      found.emplace_back(curve, other);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::pair<const Curve*, const Curve*>> pairs;
    for (const auto& [differences, at] : order) {
      if (static_cast<int>(pairs.size()) == kMostPairs) break;
      pairs.push_back(found[at]);
    }
    return pairs;
  }

 private:
  bool Usable(const Curve& curve) const {
    return curve.family != target_.family &&
           curve.size_column == target_.size_column &&
           Differences(curve, target_) >= least_differences_;
  }

  const Curve* Partner(const Curve& source, const Curve& curve) const {
    Features features = curve.features;
    for (size_t c = 0; c < set_.columns.size(); ++c) {
      if (!Transform(set_.numeric[c], source.features[c], target_.features[c],
                     &features[c])) {
        return nullptr;
      }
    }
    const auto at = by_features_.find(features);
    return at == by_features_.end() ? nullptr : at->second;
  }

  const CurveSet& set_;
  const Curve& target_;
  const int least_differences_;
  std::vector<const Curve*> searched_;
  std::map<Features, const Curve*> by_features_;
};

// Features of the target that are numbers beyond those of the set.
int NumbersBeyond(const CurveSet& set, const Curve& target) {
  int beyond = 0;
  for (size_t c = 0; c < set.columns.size(); ++c) {
    double number;
    if (!set.numeric[c] || !absl::SimpleAtod(target.features[c], &number)) {
      continue;
    }
    bool below = true;
    bool above = true;
    for (const Curve& curve : set.curves) {
      double other;
      if (curve.family == target.family ||
          curve.size_column != target.size_column ||
          !absl::SimpleAtod(curve.features[c], &other)) {
        continue;
      }
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

Change ChangeAt(const std::vector<std::pair<const Curve*, const Curve*>>& pairs,
                double size, double scale, double unknown_spread) {
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

UnseenCurve::UnseenCurve(const CurveSet& set, const Curve& target,
                         int least_differences) {
  const auto sisters =
      FindSisters(set, target,
                  {.least_differences = least_differences,
                   .differences = static_cast<int>(set.columns.size()),
                   .sisters = 2 * kMostSources});
  const PairFinder finder(set, target, least_differences);
  for (const Sister& sister : sisters) {
    if (!sources_.empty() && sources_.back().curve == sister.curve) continue;
    if (static_cast<int>(sources_.size()) == kMostSources) break;
    sources_.push_back({.curve = sister.curve,
                        .differences = sister.differences,
                        .scales = ScalesOf(set, target, *sister.curve),
                        .pairs = finder.Find(*sister.curve)});
  }
  bool has_pair = false;
  for (const Source& source : sources_) {
    has_pair = has_pair || !source.pairs.empty();
  }
  if (has_pair) {
    distance_ = sources_.front().differences + NumbersBeyond(set, target);
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

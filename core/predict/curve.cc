#include "core/predict/curve.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

constexpr int kLeastCopiedPoints = 3;

// (size column, features), and (size, seconds).
using CurveName = std::pair<std::string, std::vector<std::string>>;
using Measurements = std::vector<std::pair<double, double>>;

// The index of `column`, which is added where it is new.
size_t IndexOf(const std::string& column, std::vector<std::string>& columns) {
  const auto at = std::find(columns.begin(), columns.end(), column);
  if (at != columns.end()) return at - columns.begin();
  columns.push_back(column);
  return columns.size() - 1;
}

Curve MakeCurve(const CurveName& name, Measurements measurements) {
  Curve curve{.size_column = name.first,
              .features = name.second,
              .sizes = {},
              .seconds = {}};
  std::sort(measurements.begin(), measurements.end());
  for (size_t first = 0; first < measurements.size();) {
    std::vector<double> repeats;
    const double size = measurements[first].first;
    for (; first < measurements.size() && measurements[first].first == size;
         ++first) {
      repeats.push_back(measurements[first].second);
    }
    curve.sizes.push_back(size);
    curve.seconds.push_back(Median(std::move(repeats)));
  }
  return curve;
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

int64_t CurveSet::points() const {
  int64_t points = 0;
  for (const Curve& curve : curves) points += curve.points();
  return points;
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
      all.insert(all.end(), measurements.begin(), measurements.end());
    }
    set.dropped_rows += table.dropped_rows;
  }
  for (auto& [name, measurements] : named) {
    set.curves.push_back(MakeCurve(name, std::move(measurements)));
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

int Differences(const Curve& a, const Curve& b) {
  int differences = 0;
  for (size_t c = 0; c < a.features.size(); ++c) {
    differences += a.features[c] != b.features[c];
  }
  return differences;
}

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

}  // namespace paceline

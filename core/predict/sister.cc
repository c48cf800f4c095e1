#include "core/predict/sister.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/numbers.h"

namespace paceline {
namespace {

// How far two numbers are apart, in powers of e; 1 for words.
double Distance(bool numeric, const std::string& a, const std::string& b) {
  double from, to;
  if (!numeric || !absl::SimpleAtod(a, &from) || !absl::SimpleAtod(b, &to) ||
      from <= 0 || to <= 0) {
    return 1;
  }
  return std::abs(std::log(to / from));
}

struct Candidate {
  int differences = 0;
  double distance = 0;
  int index = 0;

  bool operator<(const Candidate& other) const {
    return std::tie(differences, distance, index) <
           std::tie(other.differences, other.distance, other.index);
  }
};

Candidate Compare(const CurveSet& set, const Curve& target, int index) {
  const Curve& curve = set.curves[index];
  const std::vector<std::string>& features = curve.features;
  Candidate candidate{.differences = Differences(curve, target),
                      .index = index};
  for (size_t c = 0; c < set.columns.size(); ++c) {
    if (features[c] == target.features[c]) continue;
    candidate.distance +=
        Distance(set.numeric[c], target.features[c], features[c]);
  }
  return candidate;
}

}  // namespace

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
  std::vector<Candidate> candidates;
  for (size_t c = 0; c < set.curves.size(); ++c) {
    const Curve& curve = set.curves[c];
    if (curve.family == target.family ||
        curve.size_column != target.size_column) {
      continue;
    }
    const Candidate candidate = Compare(set, target, static_cast<int>(c));
    if (candidate.differences >= limits.least_differences &&
        candidate.differences <= limits.differences) {
      candidates.push_back(candidate);
    }
  }
  const auto most = std::min<size_t>(candidates.size(), limits.sisters);
  std::partial_sort(candidates.begin(), candidates.begin() + most,
                    candidates.end());
  std::vector<Sister> sisters;
  for (const Candidate& candidate : candidates) {
    const Curve& curve = set.curves[candidate.index];
    for (const double scale : ScalesOf(set, target, curve)) {
      if (static_cast<int>(sisters.size()) == limits.sisters) return sisters;
      sisters.push_back({&curve, scale, candidate.differences});
    }
  }
  return sisters;
}

}  // namespace paceline

// Measurements of what is alike, drawn towards each other.  Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace paceline {

// By how much each value is drawn to the mean of all, 0 to 1:
// 1 / (1 + (d / noise)^2), d being its relative distance to the median (the
// lower one of an even number).  0 for all where the median is not above 0.
std::vector<double> Pulls(const std::vector<double>& values, double noise);

// Draws value(members[i]), a reference to a double, by pulls[i] to the mean,
// which counts each member as much as it is pulled, so that one that is unlike
// does not move the others.
template <typename Members, typename Value>
void Pool(const Members& members, const std::vector<double>& pulls,
          Value value) {
  double sum = 0, weight = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    sum += pulls[i] * value(*members[i]);
    weight += pulls[i];
  }
  if (!(weight > 0)) return;
  const double mean = sum / weight;
  for (size_t i = 0; i < members.size(); ++i) {
    double& own = value(*members[i]);
    own += pulls[i] * (mean - own);
  }
}

}  // namespace paceline

// Measurements of what is alike, drawn towards each other, so that the luckiest
// of them is not taken for the best.  Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan/measurement.h"

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

// Two profiles of one machine differ by about this much (measured on virtual
// machines that share their cores with others; bare ones repeat better).
inline constexpr double kRepeatability = 0.1;

// profiles: of one model, micro-batch, dtype and number of threads.
//
// Profiles with equal CPU model and capability are taken to be of like
// machines: each one's times are drawn towards the mean of its kind, by
// 1 / (1 + (d / kRepeatability)^2), d being the relative distance of its sum to
// the kind's median.  So a difference of a few percent vanishes, and one of a
// half (a machine too hot, or busy) stays.  Without this a planner that looks
// for the fastest machine finds the one whose profile was luckiest, and
// promises too much: James and Stein, "Estimation with quadratic loss", 1961,
// have the estimator, with other weights.
//
// The times are those that count: CPU time where a quota stops the thread
// (cpu_share below 1), wall time elsewhere; the two are never mixed.  What
// frames cost varies more, and is the mean of the kind.  Shares and periods of
// quotas stay each machine's own.
std::vector<DeviceProfile> PoolLikeDevices(std::vector<DeviceProfile> profiles);

// Two measurements of one layer on one machine differ by about this much; less
// than two profiles do (kRepeatability), since one run measures them both.
inline constexpr double kLayerRepeatability = 0.05;

// Layers of equal kind, FLOPs and bytes (the twelve blocks of a DeiT) do the
// same work: each one's times are drawn towards the mean of its kind, by
// 1 / (1 + (d / kLayerRepeatability)^2), d being the relative distance to the
// kind's median.  So noise of a few percent vanishes, and what really takes
// longer stays.  Without this a planner that takes the best of many cuts finds
// the one whose stages were measured luckiest, and promises a balance that is
// not there.  Times of all sorts are pooled apart: wall and CPU, forward and
// backward, and of the update.
//
// Layers without FLOPs are left alone: nothing says that they do the same.
void PoolLikeLayers(DeviceProfile& profile);

}  // namespace paceline

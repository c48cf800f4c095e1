// Gives like machines and like layers one common time each, so that a planner
// does not prefer the one whose measurement was luckiest.  Pure.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "core/plan/measurement.h"

namespace paceline {

// Two profiles of one machine differ by about this much (measured on virtual
// machines that share their cores with others; bare ones repeat better).
inline constexpr double kRepeatability = 0.1;
// However far the runs of a profile lie apart, a machine that takes a third
// longer than its kind counts as slower.
inline constexpr double kMostNoise = 0.15;

// Devices of one kind whose times were pooled.
struct LikeDevices {
  std::set<std::string> devices;
  double spread = 0;  // slowest / fastest - 1
  // Their time relative to that of the first group, which is around the median
  // of the kind, minus 1; 0: this is the first group.
  double apart = 0;
};

// Pools the profiles of like machines: those of one model, micro-batch, dtype
// and number of threads with equal CPU model and capability.  Profiles whose
// sums of layer times differ by at most twice the noise get the mean of each
// time.  The noise is the median relative spread of a profile's runs, at least
// kRepeatability and at most kMostNoise.  A machine that differs by more (too
// hot, or busy) stays apart, with those that differ as much.  Without pooling,
// a planner that looks for the fastest machine finds the one whose profile was
// luckiest, and cuts equal machines unevenly (8+6+6+6 layers of a DeiT-S on
// four: 11 % slower than 7+6+6+7).
//
// The pooled times are CPU times where a quota stops the thread (cpu_share
// below 1) and wall times elsewhere; the two are never mixed.  The costs of
// frames vary more, and become the mean of the kind.  Shares and periods of
// quotas stay each machine's own.
//   like  not null: gets the groups
std::vector<DeviceProfile> PoolLikeDevices(
    std::vector<DeviceProfile> profiles,
    std::vector<LikeDevices>* like = nullptr);

// Two measurements of one layer on one machine differ by about this much.  That
// is less than for two profiles (kRepeatability), since one run measures both
// layers.
inline constexpr double kLayerRepeatability = 0.05;

// Pools the times of layers of equal kind, FLOPs and bytes (the twelve blocks
// of a DeiT), which do the same work.  Times that differ by at most 2 x
// kLayerRepeatability differ by noise and get their mean; a layer that differs
// by more keeps its time.  Without pooling, a planner that takes the best of
// many cuts finds the one whose stages were measured luckiest, and promises a
// balance that does not exist.  Wall, CPU, forward, backward and update times
// are pooled separately.
//
// Layers without FLOPs are left alone: nothing shows that they do the same
// work.
void PoolLikeLayers(DeviceProfile& profile);

}  // namespace paceline

// Gives measurements of what is alike one value, so that the luckiest of them
// is not taken for the best.  Pure.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "core/plan/measurement.h"

namespace paceline {

// Puts indices of values that differ by noise alone into groups: those within
// 2 x noise of the median (the lower one of an even number), relative to it,
// and then the same of the others.  Values are in no group where the median of
// those left is not above 0.
std::vector<std::vector<size_t>> GroupsOfLike(const std::vector<double>& values,
                                              double noise);

// Two profiles of one machine differ by about this much (measured on virtual
// machines that share their cores with others; bare ones repeat better).
inline constexpr double kRepeatability = 0.1;
// However far the runs of a profile lie apart, a machine that takes a third
// longer than its kind is slower.
inline constexpr double kMostNoise = 0.15;

// Devices of one kind that were taken as equal.
struct LikeDevices {
  std::set<std::string> devices;
  double spread =
      0;  // the slowest took so much longer, relative to the fastest
  // They take so much longer than most of their kind, relative to these; 0:
  // they are these.
  double apart = 0;
};

// Profiles of one model, micro-batch, dtype and number of threads with equal
// CPU model and capability are of like machines.  How far their sums lie apart
// is noise up to 2 x kRepeatability, or twice what the sums of a profile's runs
// lie apart where that is more, but no more than 2 x kMostNoise: all get the
// mean.  A machine that differs by more (too hot, or busy) stays apart, with
// those that differ as much.  Without this a planner that looks for the fastest
// machine finds the one whose profile was luckiest, and cuts equal machines
// unevenly (8+6+6+6 layers of a DeiT-S on four: 11 % slower than 7+6+6+7).
//
// The times are those that count: CPU time where a quota stops the thread
// (cpu_share below 1), wall time elsewhere; the two are never mixed.  What
// frames cost varies more, and is the mean of the kind.  Shares and periods of
// quotas stay each machine's own.
//   like  not null: gets the groups
std::vector<DeviceProfile> PoolLikeDevices(
    std::vector<DeviceProfile> profiles,
    std::vector<LikeDevices>* like = nullptr);

// Two measurements of one layer on one machine differ by about this much; less
// than two profiles do (kRepeatability), since one run measures them both.
inline constexpr double kLayerRepeatability = 0.05;

// Layers of equal kind, FLOPs and bytes (the twelve blocks of a DeiT) do the
// same work: up to 2 x kLayerRepeatability their times differ by noise, and all
// get the mean; what really takes longer stays.  Without this a planner that
// takes the best of many cuts finds the one whose stages were measured
// luckiest, and promises a balance that is not there.  Times of all sorts are
// pooled apart: wall and CPU, forward and backward, and of the update.
//
// Layers without FLOPs are left alone: nothing says that they do the same.
void PoolLikeLayers(DeviceProfile& profile);

}  // namespace paceline

// Layers of one kind measure each other's noise away.  Pure.
#pragma once

#include "core/plan/measurement.h"

namespace paceline {

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

// Which other curves tell something about a curve, judged by names alone.
#pragma once

#include <string>
#include <vector>

#include "core/predict/curve.h"

namespace paceline {

// A curve read at `scale * size` for the target's `size`: f16 and f32 agree at
// equal elements where latency rules and at equal bytes where bandwidth does,
// so such a pair is listed twice.
struct Sister {
  const Curve* curve = nullptr;  // borrowed from the set
  double scale = 1;
  int differences = 0;  // features that differ from the target's
};

// Factors at which sizes of `of` may equal sizes of `target`: 1, and the ratio
// of their element sizes where sizes count elements.
std::vector<double> ScalesOf(const CurveSet& set, const Curve& target,
                             const Curve& of);

// How far apart two curves are: the features in which they differ.
int Differences(const Curve& a, const Curve& b);

struct SisterLimits {
  int least_differences = 0;
  int differences = 2;  // at most
  int sisters = 32;     // at most
};

// The most alike first: by differences, then by how far their numbers are
// apart, then by the set's order.  Only curves whose sizes count the same
// thing, and none of target.family.  O(curves log curves).
std::vector<Sister> FindSisters(const CurveSet& set, const Curve& target,
                                const SisterLimits& limits);

}  // namespace paceline

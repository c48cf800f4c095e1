// What the predictors say about measured points that they have not seen.
#pragma once

#include <cstdint>
#include <vector>

#include "core/predict/curve.h"

namespace paceline {

struct LeftOutPoint {
  int curve = 0;  // index into CurveSet::curves
  int point = 0;  // of that curve
  double log_predicted = 0;
  double line_seconds = 0;  // interior only; may be negative
  double octaves = 0;       // outside only: how far from what was measured
  int distance = 0;         // unseen and remote only: UnseenCurve::distance
};

struct LeftOut {
  // Each point of a curve but its first and last, left out alone.
  std::vector<LeftOutPoint> interior;
  // All points of a curve, the whole curve left out.
  std::vector<LeftOutPoint> unseen;
  int64_t unseen_curves = 0;
  // The same without the curves that differ in fewer than 2, and than 3
  // features: how good it is when only remote ones are known.
  std::vector<LeftOutPoint> remote;
  // Points that lie 1, 2 and 4 points beyond what was left of their curve.
  std::vector<LeftOutPoint> outside;
  // Not all points were tried, evenly taken ones were.
  bool sampled = false;
};

// What is tried at most; keeps millions of rows within seconds.
struct LeaveOutLimits {
  int64_t points = 20000;           // of each kind
  int64_t comparisons = 2'000'000;  // of curves with each other
};

// Leaves out and predicts.  A left out point or curve, and any copy of it
// (Curve::family), has no influence on what is said about it; nor does any
// constant depend on the data.
LeftOut PredictLeftOut(const CurveSet& set,
                       const LeaveOutLimits& limits = LeaveOutLimits());

// Seconds at each point on the straight line of least squares through
// the other points of the curve; zeros for a curve of fewer than
// three points.  O(points).
std::vector<double> LinesWithout(const Curve& curve);

}  // namespace paceline

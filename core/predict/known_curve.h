// Times of a curve of which some sizes were measured, at other sizes.
#pragma once

#include <vector>

#include "core/predict/curve.h"

namespace paceline {

// Between two measured sizes: the straight line between them, corrected by how
// far sister curves leave their own line there.  A protocol switch or a first
// round that is never left out (`elements / group_size` is 0) shows at the
// same place in the sisters.  A sister weighs what it was worth at the
// neighbouring points of this curve.
//
// Outside: the nearest measured time, moved as the sisters move from there;
// without sisters on the line through the last two points (in log-log space).
//
// The constants in known_curve.cc are fixed; README.md says how they came
// about.
//
// Immutable; the set and the curve outlive it.
class KnownCurve {
 public:
  static constexpr int kNone = -1;

  // O(curves log curves).
  KnownCurve(const CurveSet& set, const Curve& curve);

  // log(seconds) at `size`.  The point with index `left_out` is not read: the
  // answer is that of a set that never had it.  Needs another point.
  // O(sisters * log points).
  double LogSeconds(double size, int left_out = kNone) const;

  // The same from the points [first, last) alone.  For measuring how well
  // what lies outside is foretold.
  double LogSecondsFrom(double size, int first, int last) const;

 private:
  struct Near;
  Near NearPoints(double size, int first, int last, int left_out) const;
  double Estimate(const Near& near, double size) const;
  double Inside(const Near& near, double size) const;
  double Outside(const Near& near, double size) const;

  const Curve& curve_;
  std::vector<Sister> sisters_;
};

}  // namespace paceline

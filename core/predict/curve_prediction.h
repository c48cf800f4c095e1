// Times of curves at sizes that were not measured: of a curve of which other
// sizes were, and of one of which nothing was.
#pragma once

#include <utility>
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
// The constants in curve_prediction.cc are fixed; README.md says how they came
// about.
//
// Immutable; the set and the curve outlive it.
class KnownCurve {
 public:
  static constexpr int kNone = -1;

  // O(curves log curves).
  KnownCurve(const CurveSet& set, const Curve& curve)
      : curve_(curve), sisters_(FindSisters(set, curve, SisterLimits())) {}

  // log(seconds) at `size`.  The point with index `left_out` is not read: the
  // answer is that of a set that never had it.  Needs another point.
  // O(sisters * log points).
  double LogSeconds(double size, int left_out = kNone) const {
    return Estimate(size, 0, curve_.points(), left_out);
  }

  // The same from the points [first, last) alone.  For measuring how well
  // what lies outside is foretold.
  double LogSecondsFrom(double size, int first, int last) const {
    return Estimate(size, first, last, kNone);
  }

 private:
  double Estimate(double size, int first, int last, int left_out) const;

  const Curve& curve_;
  std::vector<Sister> sisters_;
};

// By analogy: a similar curve was measured, and how a curve changes with the
// features in which the two differ is seen on other pairs of curves that
// differ in the same way (the same words, the same ratios of numbers).
// Answers of several similar curves are weighed by how well such pairs agree
// among themselves.  Without a pair the similar curve is taken as it is.
//
// Immutable; the set outlives it.
class UnseenCurve {
 public:
  // Reads features, size_column and family of `target`, none of its points;
  // curves of its family are not used, nor are those that differ from it in
  // fewer than `least_differences` features.  O(curves log curves).
  UnseenCurve(const CurveSet& set, const Curve& target,
              int least_differences = 0);

  // False if no curve counts the same sizes: then there is nothing to say.
  bool known() const { return !sources_.empty(); }

  // How little there is to go by: kNoPair when no pair tells what a difference
  // costs; otherwise in how many features the nearest curve differs, a number
  // beyond all that were measured counting once more.  Needs known().
  static constexpr int kNoPair = 0;
  int distance() const { return distance_; }

  // log(seconds) at `size`.  Needs known().  O(1), about 10^5 steps.
  double LogSeconds(double size) const;

 private:
  struct Source {
    const Curve* curve = nullptr;
    int differences = 0;
    std::vector<double> scales;
    // (differs as this curve, differs as the target)
    std::vector<std::pair<const Curve*, const Curve*>> pairs;
  };

  int distance_ = kNoPair;
  std::vector<Source> sources_;
};

}  // namespace paceline

// Times of a curve of which nothing was measured.
#pragma once

#include <utility>
#include <vector>

#include "core/predict/curve.h"

namespace paceline {

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

// How far off predictions are, learned from points that were left out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/predict/curve.h"
#include "core/predict/leave_out.h"

namespace paceline {

// The part of true times that intervals are made to hold.
constexpr double kIntervalLevel = 0.9;

// Factors on a predicted time; low <= 1 <= high.
struct IntervalFactors {
  double low = 1;
  double high = 1;
};

// Quantiles of log(measured / predicted): inside a curve by what the size
// counts and its decade, for an unseen curve also by UnseenCurve::distance,
// outside by octaves.  A decade with fewer than 20 left out points takes those
// of all decades, a distance without any those of the next nearer one, 1.5
// times as wide.  Where there is nothing to go by, the factors are a guess: 2
// inside, 4 for an unseen curve, 2 an octave outside.  Immutable.
class IntervalTable {
 public:
  // Counts only points of curves for which `counts(curve index)` holds.
  template <typename Counts>
  IntervalTable(const CurveSet& set, const LeftOut& left_out, Counts counts) {
    for (const LeftOutPoint& p : left_out.interior) {
      if (counts(p.curve)) Add(set, p, inside_);
    }
    for (const auto* points : {&left_out.unseen, &left_out.remote}) {
      for (const LeftOutPoint& p : *points) {
        if (counts(p.curve)) AddUnseen(set, p);
      }
    }
    for (const LeftOutPoint& p : left_out.outside) {
      if (counts(p.curve)) AddOutside(set, p);
    }
    Sort();
  }
  IntervalTable(const CurveSet& set, const LeftOut& left_out)
      : IntervalTable(set, left_out, [](int) { return true; }) {}

  IntervalFactors Inside(const std::string& size_column, double size) const;
  // Never narrower than for a smaller distance.
  IntervalFactors Unseen(const std::string& size_column, double size,
                         int distance) const;
  // `octaves`: doublings between the size and the nearest measured one.  Never
  // narrower than Inside at that size, wider the further away.
  IntervalFactors Outside(const std::string& size_column, double size,
                          double octaves) const;

 private:
  using Residuals = std::vector<double>;  // ascending, once built
  using ByDecade = std::map<std::pair<std::string, int>, Residuals>;

  static void Add(const CurveSet& set, const LeftOutPoint& point,
                  ByDecade& by_decade);
  void AddUnseen(const CurveSet& set, const LeftOutPoint& point);
  void AddOutside(const CurveSet& set, const LeftOutPoint& point);
  void Sort();
  // Nothing when too few were left out.
  static std::optional<IntervalFactors> Look(const ByDecade& by_decade,
                                             const std::string& size_column,
                                             double size);

  // Key decades: those of DecadeOf, and kAllDecades.
  ByDecade inside_;
  std::map<int, ByDecade> unseen_;  // by distance
  Residuals outside_;               // an octave away, scaled
};

}  // namespace paceline

// Predicts times of transfers and operations from measured ones, and learns
// from points that were left out how far off it is: the intervals that
// predictions get, and the error that people are told.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/predict/curve.h"

namespace paceline {

// --- errors ---

// A measured point that was left out, and its prediction from the others.
struct LeftOutPoint {
  const Curve* curve = nullptr;  // borrowed from the set
  int point = 0;                 // of that curve
  double seconds = 0;            // predicted; > 0
  bool unseen = false;           // the whole curve was left out
  // Distance from the evidence.  Unseen: UnseenCurve::distance.  Else 0
  // between measured sizes, 1 within an octave of them, and one more whenever
  // that distance doubles.
  int distance = 0;
  double line_seconds = 0;  // interior only; may be negative

  double size() const { return curve->sizes[point]; }
  double measured() const { return curve->seconds[point]; }
};

struct LeftOut {
  // Each point of a curve but its first and last, left out alone.
  std::vector<LeftOutPoint> interior;
  // All points of a curve, the whole curve left out.
  std::vector<LeftOutPoint> unseen;
  // The same without the curves that differ in fewer than 2, and than 3
  // features, which is how good it is when only remote ones are known; and
  // points that lie 1, 2 and 4 points beyond what was left of their curve.
  std::vector<LeftOutPoint> remote;
  // Not all points were tried, evenly taken ones were.
  bool sampled = false;
};

// These limits keep millions of rows within seconds.
struct LeaveOutLimits {
  int64_t points = 20000;           // of each kind
  int64_t comparisons = 2'000'000;  // of curves with each other
};

// Leaves out and predicts.  A left out point or curve, and any copy of it
// (Curve::family), has no influence on its prediction; no constant depends on
// the data either.  The set outlives the answer.
LeftOut PredictLeftOut(const CurveSet& set,
                       const LeaveOutLimits& limits = LeaveOutLimits());

// The part of true times that intervals are made to hold.
constexpr double kIntervalLevel = 0.9;

// Factors on a predicted time; low <= 1 <= high.
struct IntervalFactors {
  double low = 1;
  double high = 1;
};

// Quantiles of measured / predicted among left out points, by their distance,
// what the size counts and the size's decade.  A decade with fewer than 20 left
// out points takes those of all decades, a distance without any those of the
// next nearer one, 1.5 times as wide.  Where there is nothing to go by, the
// factors are a guess: 2 inside, 2 to the power of the distance outside, 4 for
// an unseen curve.  Immutable.
class IntervalTable {
 public:
  IntervalTable() = default;
  // Every second family of curves is left aside, if `left_aside` is 0 or 1.
  explicit IntervalTable(const LeftOut& left_out, int left_aside = -1);

  // Never narrower than for a smaller distance.  See LeftOutPoint.
  IntervalFactors Factors(bool unseen, int distance,
                          const std::string& size_column, double size) const;

 private:
  using Key = std::tuple<bool, int, std::string, int>;

  std::map<Key, IntervalFactors> factors_;
};

// Statistics of |predicted - measured| / measured; NaN when there was no point.
struct RelativeError {
  double mean = 0;
  double median = 0;
};

struct LeftOutErrors {
  int64_t points = 0;
  RelativeError predicted;
  RelativeError line;  // one straight line a curve; interior points only
};

// Interior points whose sizes lie in [from, to).
struct DecadeErrors {
  std::string size_column;
  double from = 0;
  double to = 0;
  LeftOutErrors errors;
};

struct Evaluation {
  int64_t curves = 0;
  int64_t copied_curves = 0;  // Curve::family
  int64_t dropped_rows = 0;   // time not finite and positive
  int64_t measured_points = 0;
  bool sampled = false;  // LeftOut::sampled

  LeftOutErrors interior;             // left out one at a time
  std::vector<DecadeErrors> decades;  // by size column, then ascending
  int64_t heldout_curves = 0;
  LeftOutErrors heldout;

  // The part of left out points that lie in their interval; NaN for none.
  // Intervals made from one half of the families are tried on the other.
  double interior_coverage = 0;
  double heldout_coverage = 0;
};

// O(left out points * log).
Evaluation Evaluate(const CurveSet& set, const LeftOut& left_out);

// --- predictions ---

enum class TimeBasis {
  kMeasured,  // this very size was measured
  kInside,    // between measured sizes of this curve
  kOutside,   // beyond them
  kUnseen,    // from other curves
};

// "measured", "inside", "outside", "unseen".
absl::string_view TimeBasisName(TimeBasis basis);

struct TimeQuery {
  std::string size_column;  // what `size` counts
  double size = 0;          // finite, >= 0
  // (column, value); columns that are not named are "", as where absent.
  std::vector<std::pair<std::string, std::string>> features;
};

struct TimePrediction {
  double seconds = 0;
  // Hold the true time in about kIntervalLevel of cases.
  double low_seconds = 0;
  double high_seconds = 0;
  TimeBasis basis = TimeBasis::kInside;
};

// Immutable.
class TimePredictor {
 public:
  // Leaves out and predicts, to know its own error: about 0.1 s for 200 curves
  // of 30 points, seconds for the largest sets.
  explicit TimePredictor(CurveSet set);

  // Errors: InvalidArgument  a column that no measurement has, named twice, or
  //                          a size that is negative or not finite
  //         NotFound         no curve counts the same sizes
  absl::StatusOr<TimePrediction> Predict(const TimeQuery& query) const;

  const Evaluation& evaluation() const { return evaluation_; }

 private:
  CurveSet set_;
  IntervalTable intervals_;
  Evaluation evaluation_;
};

}  // namespace paceline

// Curves are the times of one thing over its size.  This header says which of
// them are alike, and predicts times at sizes that were not measured, of a
// curve of which other sizes were and of one of which nothing was.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

// Measured times as comma separated text: what `paceline predict --fit` reads.
// Grammar: a header line that names the columns, then a line a measurement.
//   op,dtype,group_size,elements,seconds
//   all_reduce,f32,4,1024,2.1e-05
// One column is the size (`elements`, `bytes`, `flops` or `size`), one is
// `seconds`; all others are features, whatever their names.  Cells have no
// quotes; \r\n, a byte order mark and empty lines are fine.
struct TimingTable {
  std::string size_column;           // one of the four
  std::vector<std::string> columns;  // features, in the file's order
  // (size, seconds) by the values of `columns`; sizes >= 0, seconds finite and
  // > 0, in the file's order.
  std::map<std::vector<std::string>, std::vector<std::pair<double, double>>>
      measurements;
  int64_t dropped_rows = 0;  // time is zero, negative, infinite or NaN
};

// "elements", "bytes", "flops" or "size".
bool IsSizeColumn(absl::string_view column);

// O(bytes of text * log).  Messages begin with "NAME:LINE: ", or "NAME: ".
// Errors: InvalidArgument  the text is empty, is no text, is cut off (a row
//                          with too few cells, no line break at the end), has
//                          no or two size columns, no seconds, no row, or a
//                          cell that is no number, or a size that is negative
//                          or not finite, or no time is finite and positive
absl::StatusOr<TimingTable> ParseTimingCsv(absl::string_view name,
                                           absl::string_view text);

// Times of one combination of features.  A value.
struct Curve {
  std::string size_column;            // what sizes count
  std::vector<std::string> features;  // by CurveSet::columns; "" where absent
  std::vector<double> sizes;          // ascending, distinct, >= 0
  std::vector<double> seconds;        // by sizes; finite, > 0
  // Curves that hold the same measurements under other names (a matmul listed
  // again for each mesh) share a family.  They are never evidence for each
  // other: leaving one of them out leaves out all.
  int family = 0;

  int points() const { return static_cast<int>(sizes.size()); }
};

// Immutable once built.
struct CurveSet {
  std::vector<std::string> columns;  // features, of all tables
  std::vector<Curve> curves;         // sorted by size column and features
  int64_t dropped_rows = 0;
};

// Merges repeats of one size by their median.  O(rows log rows).
CurveSet BuildCurves(const std::vector<TimingTable>& tables);

// log(seconds) at `size`: the measured one, else on the straight line between
// the neighbours (times of transfers and kernels are a + b * size there); in
// log-log space with the last two points' slope, held within [0, 1], beyond
// the largest; the smallest point's below it.  Needs a point.  O(log points).
double LogSecondsAt(const Curve& curve, double size);

// Bytes of an element by the bits in its name: f16, bf16, float32, int8; 0 if
// the name has none.
double ElementBytesOf(const std::string& dtype);

// One spelling of a number: "8" and "8.0" are one value.  Words stay.
std::string CanonicalValue(const std::string& value);

// A curve that is like another one, the target.
struct Sister {
  const Curve* curve = nullptr;  // borrowed from the set
  int differences = 0;           // features that differ from the target's
  // The curve is read at `scale * size` for the target's `size`.  One whose
  // elements have other bytes is a sister twice, at 1 and at the ratio of the
  // bytes: f16 and f32 agree at equal elements where latency rules and at equal
  // bytes where bandwidth does.
  double scale = 1;
  // (differs as this curve, differs as the target); of UnseenCurve alone.
  std::vector<std::pair<const Curve*, const Curve*>> pairs = {};
};

// --- predictions ---

// Points of a curve by index: [first, last).
struct PointRange {
  int first = 0;
  int last = 0;
};

// Between two measured sizes: the straight line between them, corrected by how
// far the same line misses sister curves there.  A protocol switch or a first
// round that is never left out (`elements / group_size` is 0) shows at the same
// place in the sisters.  A sister weighs what it was worth at the neighbouring
// points of this curve.
//
// Outside: the nearest measured time, moved as the sisters move from there;
// without sisters on the line through the last two points (LogSecondsAt).
//
// The constants in curve.cc are fixed; README.md says how they came about.
//
// Immutable; the set and the curve outlive it.
class KnownCurve {
 public:
  // O(curves log curves).
  KnownCurve(const CurveSet& set, const Curve& curve);

  // log(seconds) at `size`.  The points `left_out`, if any, are those around
  // the size.  They are not read: the answer is that of a set that never had
  // them.  Needs another point.  O(sisters * log points).
  double LogSeconds(double size, PointRange left_out = {}) const;

 private:
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
  int distance_ = kNoPair;
  std::vector<Sister> sources_;
};

}  // namespace paceline

// Curves: the times of one thing over its size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/predict/timing_csv.h"

namespace paceline {

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
  std::vector<bool> numeric;         // by columns: all its values are numbers
  std::vector<Curve> curves;         // sorted by size column and features
  int64_t dropped_rows = 0;

  int64_t points() const;
};

// Merges repeats of one size by their median.  O(rows log rows).
// Errors: InvalidArgument  no table, or a table without a finite positive time
absl::StatusOr<CurveSet> BuildCurves(const std::vector<TimingTable>& tables);

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

// floor(log10(size)); -1 for sizes below 1.
int DecadeOf(double size);

// Doublings between two sizes; 1 is added to both, so that 0 is near 1.
double OctavesBetween(double a, double b);

}  // namespace paceline

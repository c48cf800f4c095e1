// Curves: the times of one thing over its size, which of them are alike, and
// the statistics that the predictors share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/predict/timing_csv.h"

namespace paceline {

struct Weighted {
  double value = 0;
  double weight = 0;  // > 0
};

// The least value with half the weight at or below it; 0 for none.
// O(n log n).
double WeightedMedian(std::vector<Weighted> values);

double Mean(const std::vector<double>& values);  // 0 for none
double Median(std::vector<double> values);       // 0 for none
// Between the ranks; `part` in [0, 1], `sorted` ascending and not empty.
double Quantile(const std::vector<double>& sorted, double part);

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

// Doublings between two sizes; 1 is added to both, so that 0 is near 1.
double OctavesBetween(double a, double b);

// Factors at which sizes of `of` may equal sizes of `target`: 1, and the ratio
// of their element sizes where sizes count elements.
std::vector<double> ScalesOf(const CurveSet& set, const Curve& target,
                             const Curve& of);

// How far apart two curves are: the features in which they differ.
int Differences(const Curve& a, const Curve& b);

// A curve read at `scale * size` for the target's `size`: f16 and f32 agree at
// equal elements where latency rules and at equal bytes where bandwidth does,
// so such a pair is listed twice.
struct Sister {
  const Curve* curve = nullptr;  // borrowed from the set
  double scale = 1;
  int differences = 0;  // features that differ from the target's
};

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

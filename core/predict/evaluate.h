// The error of the predictor, as people are told it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/predict/curve.h"
#include "core/predict/leave_out.h"

namespace paceline {

// Of |predicted - measured| / measured; NaN when there was no point.
struct RelativeError {
  double mean = 0;
  double median = 0;
};

// Interior points whose sizes lie in [from, to).
struct DecadeError {
  std::string size_column;
  double from = 0;
  double to = 0;
  int64_t points = 0;
  RelativeError predicted;
  RelativeError line;  // one straight line a curve
};

struct Evaluation {
  int64_t curves = 0;
  int64_t copied_curves = 0;  // Curve::family
  int64_t dropped_rows = 0;   // time not finite and positive
  int64_t measured_points = 0;
  bool sampled = false;  // LeftOut::sampled

  int64_t points = 0;  // interior, left out one at a time
  RelativeError predicted;
  RelativeError line;
  std::vector<DecadeError> decades;  // by size column, then ascending

  int64_t heldout_curves = 0;
  int64_t heldout_points = 0;
  RelativeError heldout;

  // The part of left out points that lie in their interval; NaN for none.
  // Intervals made from one half of the families are tried on the other.
  double interior_coverage = 0;
  double heldout_coverage = 0;
};

// O(left out points * log).
Evaluation Evaluate(const CurveSet& set, const LeftOut& left_out);

}  // namespace paceline

// Predicts times of transfers and operations from measured ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/predict/curve.h"
#include "core/predict/curve_error.h"

namespace paceline {

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

  const CurveSet& set() const { return set_; }
  const Evaluation& evaluation() const { return evaluation_; }

 private:
  TimePredictor(CurveSet set, const LeftOut& left_out);

  TimePrediction PredictKnown(const Curve& curve, double size) const;

  CurveSet set_;
  IntervalTable intervals_;
  Evaluation evaluation_;
};

}  // namespace paceline

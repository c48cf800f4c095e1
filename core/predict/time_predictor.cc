#include "core/predict/time_predictor.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/predict/curve_prediction.h"

namespace paceline {
namespace {

// A curve with the query's names and no points.
absl::StatusOr<Curve> Named(const CurveSet& set, const TimeQuery& query) {
  Curve curve;
  curve.size_column = query.size_column;
  curve.features.resize(set.columns.size());
  curve.family = -1;
  for (const auto& [column, value] : query.features) {
    const auto at = std::find(set.columns.begin(), set.columns.end(), column);
    if (at == set.columns.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no measurement has a column '", column, "'; there are ",
                       absl::StrJoin(set.columns, ", ")));
    }
    std::string& feature = curve.features[at - set.columns.begin()];
    if (!feature.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", column, "' is given twice"));
    }
    feature = CanonicalValue(value);
  }
  return curve;
}

TimePrediction Around(double log_seconds, const IntervalFactors& factors,
                      TimeBasis basis) {
  const double seconds = std::exp(log_seconds);
  return {.seconds = seconds,
          .low_seconds = seconds * factors.low,
          .high_seconds = seconds * factors.high,
          .basis = basis};
}

}  // namespace

absl::string_view TimeBasisName(TimeBasis basis) {
  constexpr absl::string_view kNames[] = {"measured", "inside", "outside",
                                          "unseen"};
  return kNames[static_cast<int>(basis)];
}

TimePredictor::TimePredictor(CurveSet set)
    : TimePredictor(set, PredictLeftOut(set)) {}

TimePredictor::TimePredictor(CurveSet set, const LeftOut& left_out)
    : set_(std::move(set)),
      intervals_(set_, left_out),
      evaluation_(Evaluate(set_, left_out)) {}

TimePrediction TimePredictor::PredictKnown(const Curve& curve,
                                           double size) const {
  const double log_seconds = KnownCurve(set_, curve).LogSeconds(size);
  const double least = curve.sizes.front();
  const double most = curve.sizes.back();
  if (size < least || size > most) {
    const double octaves = OctavesBetween(size, size < least ? least : most);
    return Around(log_seconds,
                  intervals_.Outside(curve.size_column, size, octaves),
                  TimeBasis::kOutside);
  }
  const bool measured =
      std::binary_search(curve.sizes.begin(), curve.sizes.end(), size);
  return Around(log_seconds, intervals_.Inside(curve.size_column, size),
                measured ? TimeBasis::kMeasured : TimeBasis::kInside);
}

absl::StatusOr<TimePrediction> TimePredictor::Predict(
    const TimeQuery& query) const {
  if (!std::isfinite(query.size) || query.size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(query.size_column, " is ", query.size,
                     ", need a finite number from 0 up"));
  }
  PACELINE_ASSIGN_OR_RETURN(const Curve named, Named(set_, query));
  for (const Curve& curve : set_.curves) {
    if (curve.size_column == named.size_column &&
        curve.features == named.features) {
      return PredictKnown(curve, query.size);
    }
  }
  const UnseenCurve unseen(set_, named);
  if (!unseen.known()) {
    return absl::NotFoundError(absl::StrCat(
        "nothing was measured over ", query.size_column, ": a time for ",
        query.size, " of them cannot be predicted"));
  }
  return Around(
      unseen.LogSeconds(query.size),
      intervals_.Unseen(named.size_column, query.size, unseen.distance()),
      TimeBasis::kUnseen);
}

}  // namespace paceline

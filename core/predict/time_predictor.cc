#include "core/predict/time_predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

// --- errors
// -------------------------------------------------------------------

constexpr int kAllDecades = std::numeric_limits<int>::max();
constexpr size_t kLeastResiduals = 20;
constexpr double kGuessInside = 2;
constexpr double kGuessUnseen = 4;
constexpr double kGuessRemoter = 1.5;  // a difference more
constexpr double kGuessOutside = 2;    // an octave

// floor(log10(size)); -1 for sizes below 1.
int DecadeOf(double size) {
  return size < 1 ? -1 : static_cast<int>(std::floor(std::log10(size)));
}

// `count` or fewer of [0, of), evenly taken.
std::vector<int> EvenlyTaken(int64_t of, int64_t count) {
  const int64_t taken = std::clamp<int64_t>(count, 0, of);
  std::vector<int> indices;
  for (int64_t i = 0; i < taken; ++i) {
    indices.push_back(static_cast<int>(i * of / taken));
  }
  return indices;
}

// Both ends: the rest predicts the last and the first point.
void LeaveOutEnds(const KnownCurve& known, const Curve& curve, int index,
                  LeftOut& left_out) {
  const std::vector<double>& sizes = curve.sizes;
  const int points = curve.points();
  for (const int cut : {1, 2, 4}) {
    if (points - cut < 2) continue;
    const auto leave_out = [&](int point, int first, int last, int nearest) {
      left_out.outside.push_back(
          {.curve = index,
           .point = point,
           .log_predicted = known.LogSecondsFrom(sizes[point], first, last),
           .octaves = OctavesBetween(sizes[point], sizes[nearest])});
    };
    leave_out(points - 1, 0, points - cut, points - 1 - cut);
    leave_out(0, cut, points, cut);
  }
}

// False when nothing is left to predict the curve from.
bool LeaveOutWhole(const CurveSet& set, int index, int least_differences,
                   int64_t most, std::vector<LeftOutPoint>& points) {
  const Curve& curve = set.curves[index];
  const UnseenCurve unseen(set, curve, least_differences);
  if (!unseen.known()) return false;
  for (const int p : EvenlyTaken(curve.points(), most)) {
    points.push_back({.curve = index,
                      .point = p,
                      .log_predicted = unseen.LogSeconds(curve.sizes[p]),
                      .distance = unseen.distance()});
  }
  return true;
}

// Errors grow with the distance about as those of a random walk do.
double Growth(double octaves) { return std::sqrt(std::max(octaves, 1.0)); }

// A new residual falls below the k-th of n with chance k / (n + 1): so many
// are left outside at each end, and not a part of the n (split conformal
// prediction: Lei et al. 2018, section 2.2).
IntervalFactors FactorsOf(const std::vector<double>& sorted, double scale) {
  const auto n = static_cast<double>(sorted.size());
  const double rank = (1 - kIntervalLevel) / 2 * (n + 1) - 1;
  const double tail = std::max(0.0, rank / (n - 1));
  return {.low = std::exp(std::min(0.0, scale * Quantile(sorted, tail))),
          .high = std::exp(std::max(0.0, scale * Quantile(sorted, 1 - tail)))};
}

double PredictedSeconds(const LeftOutPoint& point) {
  return std::exp(point.log_predicted);
}
double LineSeconds(const LeftOutPoint& point) { return point.line_seconds; }

RelativeError ErrorOf(const CurveSet& set,
                      const std::vector<LeftOutPoint>& points,
                      double (*seconds)(const LeftOutPoint&)) {
  if (points.empty()) return {.mean = std::nan(""), .median = std::nan("")};
  std::vector<double> errors;
  for (const LeftOutPoint& point : points) {
    const double measured = set.curves[point.curve].seconds[point.point];
    errors.push_back(std::abs(seconds(point) - measured) / measured);
  }
  return {.mean = Mean(errors), .median = Median(errors)};
}

std::vector<DecadeError> DecadeErrors(const CurveSet& set,
                                      const std::vector<LeftOutPoint>& points) {
  std::map<std::pair<std::string, int>, std::vector<LeftOutPoint>> by_decade;
  for (const LeftOutPoint& point : points) {
    const Curve& curve = set.curves[point.curve];
    by_decade[{curve.size_column, DecadeOf(curve.sizes[point.point])}]
        .push_back(point);
  }
  std::vector<DecadeError> errors;
  for (const auto& [key, of_decade] : by_decade) {
    const auto& [size_column, decade] = key;
    errors.push_back({.size_column = size_column,
                      .from = decade < 0 ? 0 : std::pow(10.0, decade),
                      .to = std::pow(10.0, decade + 1),
                      .points = static_cast<int64_t>(of_decade.size()),
                      .predicted = ErrorOf(set, of_decade, PredictedSeconds),
                      .line = ErrorOf(set, of_decade, LineSeconds)});
  }
  return errors;
}

// The part of `points` that lie in the intervals that the other half of the
// families makes; 0 / 0 is the NaN that is promised.
double CoverageOf(const CurveSet& set, const LeftOut& left_out,
                  const std::vector<LeftOutPoint>& points) {
  const IntervalTable tables[] = {{set, left_out, 1}, {set, left_out, 0}};
  double held = 0;
  for (const LeftOutPoint& p : points) {
    const Curve& curve = set.curves[p.curve];
    const double size = curve.sizes[p.point];
    const IntervalTable& table = tables[curve.family % 2];
    const IntervalFactors factors =
        p.distance == kInsideCurve
            ? table.Inside(curve.size_column, size)
            : table.Unseen(curve.size_column, size, p.distance);
    const double predicted = std::exp(p.log_predicted);
    held += predicted * factors.low <= curve.seconds[p.point] &&
            curve.seconds[p.point] <= predicted * factors.high;
  }
  return held / static_cast<double>(points.size());
}

}  // namespace

std::vector<double> LinesWithout(const Curve& curve) {
  const int points = curve.points();
  std::vector<double> lines(points);
  if (points < 3) return lines;
  const double mean_size = Mean(curve.sizes);
  const double mean_seconds = Mean(curve.seconds);
  double squares = 0;
  double products = 0;
  for (int p = 0; p < points; ++p) {
    const double d = curve.sizes[p] - mean_size;
    squares += d * d;
    products += d * (curve.seconds[p] - mean_seconds);
  }
  // The residual of a left out point is its residual in the fit of all points
  // over 1 - leverage: the fit without it need not be made.
  for (int p = 0; p < points; ++p) {
    const double d = curve.sizes[p] - mean_size;
    const double leverage = 1.0 / points + d * d / squares;
    const double fitted = mean_seconds + products / squares * d;
    lines[p] = curve.seconds[p] - (curve.seconds[p] - fitted) / (1 - leverage);
  }
  return lines;
}

LeftOut PredictLeftOut(const CurveSet& set, const LeaveOutLimits& limits) {
  LeftOut left_out;
  const auto curves = static_cast<int64_t>(set.curves.size());
  if (curves == 0) return left_out;
  const std::vector<int> tried =
      EvenlyTaken(curves, std::max<int64_t>(limits.comparisons / curves, 1));
  const int64_t most =
      std::max<int64_t>(limits.points / static_cast<int64_t>(tried.size()), 1);
  left_out.sampled = static_cast<int64_t>(tried.size()) < curves;
  for (const int index : tried) {
    const Curve& curve = set.curves[index];
    const KnownCurve known(set, curve);
    const std::vector<double> lines = LinesWithout(curve);
    for (const int i : EvenlyTaken(std::max(curve.points() - 2, 0), most)) {
      left_out.interior.push_back(
          {.curve = index,
           .point = i + 1,
           .log_predicted = known.LogSeconds(curve.sizes[i + 1], i + 1),
           .line_seconds = lines[i + 1]});
    }
    LeaveOutEnds(known, curve, index, left_out);
    left_out.unseen_curves +=
        LeaveOutWhole(set, index, 0, most, left_out.unseen);
    for (const int least : {2, 3}) {
      LeaveOutWhole(set, index, least, most, left_out.remote);
    }
    left_out.sampled = left_out.sampled || curve.points() > most;
  }
  return left_out;
}

IntervalTable::IntervalTable(const CurveSet& set, const LeftOut& left_out,
                             std::optional<int> half) {
  for (const auto* points : {&left_out.interior, &left_out.unseen,
                             &left_out.remote, &left_out.outside}) {
    for (const LeftOutPoint& p : *points) {
      const Curve& curve = set.curves[p.curve];
      if (half.has_value() && curve.family % 2 != *half) continue;
      const double residual =
          std::log(curve.seconds[p.point]) - p.log_predicted;
      if (p.octaves > 0) {
        outside_.push_back(residual / Growth(p.octaves));
        continue;
      }
      for (const int decade : {DecadeOf(curve.sizes[p.point]), kAllDecades}) {
        std::vector<double>& residuals =
            residuals_[{p.distance, curve.size_column, decade}];
        residuals.push_back(residual);
        // A change of which no pair tells is as likely upwards as downwards.
        if (p.distance == UnseenCurve::kNoPair) residuals.push_back(-residual);
      }
    }
  }
  for (auto& [key, residuals] : residuals_) {
    std::sort(residuals.begin(), residuals.end());
  }
  std::sort(outside_.begin(), outside_.end());
}

std::optional<IntervalFactors> IntervalTable::Find(
    int distance, const std::string& size_column, double size) const {
  for (const int decade : {DecadeOf(size), kAllDecades}) {
    const auto at = residuals_.find({distance, size_column, decade});
    if (at != residuals_.end() && at->second.size() >= kLeastResiduals) {
      return FactorsOf(at->second, 1);
    }
  }
  return std::nullopt;
}

IntervalFactors IntervalTable::Inside(const std::string& size_column,
                                      double size) const {
  return Find(kInsideCurve, size_column, size)
      .value_or(IntervalFactors{.low = 1 / kGuessInside, .high = kGuessInside});
}

IntervalFactors IntervalTable::Unseen(const std::string& size_column,
                                      double size, int distance) const {
  const IntervalFactors guess = {.low = 1 / kGuessUnseen, .high = kGuessUnseen};
  if (distance == UnseenCurve::kNoPair) {
    return Find(distance, size_column, size).value_or(guess);
  }
  std::optional<IntervalFactors> widest;
  for (int at = 1; at <= distance; ++at) {
    const auto factors = Find(at, size_column, size);
    if (factors.has_value()) {
      widest = widest.value_or(IntervalFactors());
      widest->low = std::min(widest->low, factors->low);
      widest->high = std::max(widest->high, factors->high);
    } else if (widest.has_value()) {
      widest->low /= kGuessRemoter;
      widest->high *= kGuessRemoter;
    }
  }
  return widest.value_or(guess);
}

IntervalFactors IntervalTable::Outside(const std::string& size_column,
                                       double size, double octaves) const {
  const IntervalFactors inside = Inside(size_column, size);
  const double guess = std::pow(kGuessOutside, std::max(octaves, 1.0));
  const IntervalFactors outside =
      outside_.size() < kLeastResiduals
          ? IntervalFactors{.low = 1 / guess, .high = guess}
          : FactorsOf(outside_, Growth(octaves));
  return {.low = std::min(inside.low, outside.low),
          .high = std::max(inside.high, outside.high)};
}

Evaluation Evaluate(const CurveSet& set, const LeftOut& left_out) {
  Evaluation result;
  result.curves = static_cast<int64_t>(set.curves.size());
  for (int64_t c = 0; c < result.curves; ++c) {
    result.copied_curves += set.curves[c].family != c;
    result.measured_points += set.curves[c].points();
  }
  result.dropped_rows = set.dropped_rows;
  result.sampled = left_out.sampled;
  result.points = static_cast<int64_t>(left_out.interior.size());
  result.predicted = ErrorOf(set, left_out.interior, PredictedSeconds);
  result.line = ErrorOf(set, left_out.interior, LineSeconds);
  result.decades = DecadeErrors(set, left_out.interior);
  result.heldout_curves = left_out.unseen_curves;
  result.heldout_points = static_cast<int64_t>(left_out.unseen.size());
  result.heldout = ErrorOf(set, left_out.unseen, PredictedSeconds);
  result.interior_coverage = CoverageOf(set, left_out, left_out.interior);
  result.heldout_coverage = CoverageOf(set, left_out, left_out.unseen);
  return result;
}

// --- predictions
// --------------------------------------------------------------

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

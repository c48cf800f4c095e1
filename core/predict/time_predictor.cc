#include "core/predict/time_predictor.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"

namespace paceline {
namespace {

constexpr int kAllDecades = std::numeric_limits<int>::max();
constexpr size_t kLeastResiduals = 20;
// Factors where too little was left out, and that for one distance more.
constexpr double kGuessKnown = 2;
constexpr double kGuessUnseen = 4;
constexpr double kGuessRemoter = 1.5;

// floor(log10(size)); -1 for sizes below 1.
int DecadeOf(double size) {
  return size < 1 ? -1 : static_cast<int>(std::floor(std::log10(size)));
}

// LeftOutPoint::distance of a size from the nearest that was measured; 1 is
// added to both, so that 0 is near 1.
int DistanceOf(double size, double nearest) {
  const double octaves = std::abs(std::log2((1 + size) / (1 + nearest)));
  if (octaves == 0) return 0;
  return 1 + static_cast<int>(std::ceil(std::log2(std::max(octaves, 1.0))));
}

// `most` or fewer of [first, last), evenly taken.
std::vector<int> EvenlyTaken(int first, int last, int64_t most) {
  const int64_t all = last - first;
  const int64_t taken = std::min(most, all);
  std::vector<int> indices;
  for (int64_t i = 0; i < taken; ++i) {
    indices.push_back(first + static_cast<int>(i * all / taken));
  }
  return indices;
}

// Seconds at each point on the straight line of least squares through the
// other points of the curve, which are two or more.  O(points).
std::vector<double> LinesWithout(const Curve& curve) {
  const double mean_size = Mean(curve.sizes);
  const double mean_seconds = Mean(curve.seconds);
  double squares = 0;
  double products = 0;
  for (int p = 0; p < curve.points(); ++p) {
    const double d = curve.sizes[p] - mean_size;
    squares += d * d;
    products += d * (curve.seconds[p] - mean_seconds);
  }
  // The residual of a left out point is its residual in the fit of all points
  // over 1 - leverage: the fit without it need not be made.
  std::vector<double> lines;
  for (int p = 0; p < curve.points(); ++p) {
    const double d = curve.sizes[p] - mean_size;
    const double leverage = 1.0 / curve.points() + d * d / squares;
    const double fitted = mean_seconds + products / squares * d;
    lines.push_back(curve.seconds[p] -
                    (curve.seconds[p] - fitted) / (1 - leverage));
  }
  return lines;
}

// Leaves out the points of one curve and the curve; at most `most` of a kind.
void LeaveOut(const CurveSet& set, const Curve& curve, int64_t most,
              LeftOut& into) {
  const std::vector<double>& sizes = curve.sizes;
  const int points = curve.points();
  const KnownCurve known(set, curve);
  const auto leave_out = [&](int point, PointRange left_out, int distance) {
    return LeftOutPoint{
        .curve = &curve,
        .point = point,
        .seconds = std::exp(known.LogSeconds(sizes[point], left_out)),
        .distance = distance};
  };
  const std::vector<double> lines = LinesWithout(curve);
  for (const int p : EvenlyTaken(1, points - 1, most)) {
    into.interior.push_back(leave_out(p, {p, p + 1}, 0));
    into.interior.back().line_seconds = lines[p];
  }
  // Both ends: the rest predicts the last and the first point.
  for (const int cut : {1, 2, 4}) {
    if (points - cut < 2) break;
    const int last = points - 1;
    into.remote.push_back(
        leave_out(last, {points - cut, points},
                  DistanceOf(sizes[last], sizes[last - cut])));
    into.remote.push_back(
        leave_out(0, {0, cut}, DistanceOf(sizes[0], sizes[cut])));
  }
  for (const int least_differences : {0, 2, 3}) {
    const UnseenCurve unseen(set, curve, least_differences);
    if (!unseen.known()) continue;
    for (const int p : EvenlyTaken(0, points, most)) {
      (least_differences == 0 ? into.unseen : into.remote)
          .push_back({.curve = &curve,
                      .point = p,
                      .seconds = std::exp(unseen.LogSeconds(sizes[p])),
                      .unseen = true,
                      .distance = unseen.distance()});
    }
  }
}

// A new residual falls below the k-th of n with chance k / (n + 1): this
// chance, not a part of the n, decides how many residuals lie outside at each
// end (split conformal prediction: Lei et al. 2018, section 2.2).
IntervalFactors FactorsOf(std::vector<double> residuals) {
  std::ranges::sort(residuals);
  const auto n = static_cast<double>(residuals.size());
  const double rank = (1 - kIntervalLevel) / 2 * (n + 1) - 1;
  const double tail = std::max(0.0, rank / (n - 1));
  return {.low = std::exp(std::min(0.0, Quantile(residuals, tail))),
          .high = std::exp(std::max(0.0, Quantile(residuals, 1 - tail)))};
}

RelativeError ErrorOf(const std::vector<LeftOutPoint>& points,
                      double LeftOutPoint::*seconds) {
  if (points.empty()) return {.mean = std::nan(""), .median = std::nan("")};
  std::vector<double> errors;
  for (const LeftOutPoint& p : points) {
    errors.push_back(std::abs(p.*seconds - p.measured()) / p.measured());
  }
  return {.mean = Mean(errors), .median = Median(errors)};
}

LeftOutErrors ErrorsOf(const std::vector<LeftOutPoint>& points) {
  return {.points = static_cast<int64_t>(points.size()),
          .predicted = ErrorOf(points, &LeftOutPoint::seconds),
          .line = ErrorOf(points, &LeftOutPoint::line_seconds)};
}

// The part of `points` that lie in the intervals that the other half of the
// families makes; 0 / 0 is the NaN that is promised.
double CoverageOf(const LeftOut& left_out,
                  const std::vector<LeftOutPoint>& points) {
  const IntervalTable tables[] = {IntervalTable(left_out, 0),
                                  IntervalTable(left_out, 1)};
  double held = 0;
  for (const LeftOutPoint& p : points) {
    const IntervalFactors factors = tables[p.curve->family % 2].Factors(
        p.unseen, p.distance, p.curve->size_column, p.size());
    held += p.seconds * factors.low <= p.measured() &&
            p.measured() <= p.seconds * factors.high;
  }
  return held / static_cast<double>(points.size());
}

// A curve with the query's names and no points.
absl::StatusOr<Curve> Named(const CurveSet& set, const TimeQuery& query) {
  Curve curve;
  curve.size_column = query.size_column;
  curve.features.resize(set.columns.size());
  curve.family = -1;
  for (const auto& [column, value] : query.features) {
    const auto at = std::ranges::find(set.columns, column);
    if (at == set.columns.end()) {
      return InvalidArgument("no measurement has a column '", column,
                             "'; there are ", absl::StrJoin(set.columns, ", "));
    }
    std::string& feature = curve.features[at - set.columns.begin()];
    if (!feature.empty()) {
      return InvalidArgument("'", column, "' is given twice");
    }
    feature = CanonicalValue(value);
  }
  return curve;
}

}  // namespace

absl::string_view TimeBasisName(TimeBasis basis) {
  constexpr absl::string_view kNames[] = {"measured", "inside", "outside",
                                          "unseen"};
  return kNames[static_cast<int>(basis)];
}

LeftOut PredictLeftOut(const CurveSet& set, const LeaveOutLimits& limits) {
  LeftOut left_out;
  const int64_t curves = std::ssize(set.curves);
  if (curves == 0) return left_out;
  const int64_t tried =
      std::clamp<int64_t>(limits.comparisons / curves, 1, curves);
  const int64_t most = std::max<int64_t>(limits.points / tried, 1);
  left_out.sampled = tried < curves;
  for (const int index : EvenlyTaken(0, static_cast<int>(curves), tried)) {
    const Curve& curve = set.curves[index];
    LeaveOut(set, curve, most, left_out);
    left_out.sampled = left_out.sampled || curve.points() > most;
  }
  return left_out;
}

IntervalTable::IntervalTable(const LeftOut& left_out, int left_aside) {
  // log(measured / predicted)
  std::map<Key, std::vector<double>> residuals;
  for (const auto* points :
       {&left_out.interior, &left_out.unseen, &left_out.remote}) {
    for (const LeftOutPoint& p : *points) {
      if (p.curve->family % 2 == left_aside) continue;
      const double residual = std::log(p.measured() / p.seconds);
      for (const int decade : {DecadeOf(p.size()), kAllDecades}) {
        std::vector<double>& of_key =
            residuals[{p.unseen, p.distance, p.curve->size_column, decade}];
        of_key.push_back(residual);
        // A change of which no pair tells is as likely upwards as downwards.
        const bool no_pair = p.unseen && p.distance == UnseenCurve::kNoPair;
        if (no_pair) of_key.push_back(-residual);
      }
    }
  }
  for (auto& [key, of_key] : residuals) {
    if (of_key.size() >= kLeastResiduals) {
      factors_[key] = FactorsOf(std::move(of_key));
    }
  }
}

IntervalFactors IntervalTable::Factors(bool unseen, int distance,
                                       const std::string& size_column,
                                       double size) const {
  IntervalFactors widest;
  bool found_any = false;
  for (int at = unseen && distance > 0 ? 1 : 0; at <= distance; ++at) {
    auto found = factors_.find({unseen, at, size_column, DecadeOf(size)});
    if (found == factors_.end()) {
      found = factors_.find({unseen, at, size_column, kAllDecades});
    }
    if (found != factors_.end()) {
      found_any = true;
      widest.low = std::min(widest.low, found->second.low);
      widest.high = std::max(widest.high, found->second.high);
    } else if (found_any) {
      widest.low /= kGuessRemoter;
      widest.high *= kGuessRemoter;
    }
  }
  if (found_any) return widest;
  const double guess =
      unseen ? kGuessUnseen : std::pow(kGuessKnown, std::max(distance, 1));
  return {.low = 1 / guess, .high = guess};
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
  result.interior = ErrorsOf(left_out.interior);
  std::map<std::pair<std::string, int>, std::vector<LeftOutPoint>> by_decade;
  for (const LeftOutPoint& p : left_out.interior) {
    by_decade[{p.curve->size_column, DecadeOf(p.size())}].push_back(p);
  }
  for (const auto& [key, points] : by_decade) {
    const auto& [size_column, decade] = key;
    result.decades.push_back({.size_column = size_column,
                              .from = decade < 0 ? 0 : std::pow(10.0, decade),
                              .to = std::pow(10.0, decade + 1),
                              .errors = ErrorsOf(points)});
  }
  for (const LeftOutPoint& p : left_out.unseen) {
    result.heldout_curves += p.point == 0;
  }
  result.heldout = ErrorsOf(left_out.unseen);
  result.interior_coverage = CoverageOf(left_out, left_out.interior);
  result.heldout_coverage = CoverageOf(left_out, left_out.unseen);
  return result;
}

TimePredictor::TimePredictor(CurveSet set) : set_(std::move(set)) {
  const LeftOut left_out = PredictLeftOut(set_);
  intervals_ = IntervalTable(left_out);
  evaluation_ = Evaluate(set_, left_out);
}

absl::StatusOr<TimePrediction> TimePredictor::Predict(
    const TimeQuery& query) const {
  const double size = query.size;
  if (!std::isfinite(size) || size < 0) {
    return InvalidArgument(query.size_column, " is ", size,
                           ", need a finite number from 0 up");
  }
  PACELINE_ASSIGN_OR_RETURN(const Curve named, Named(set_, query));
  const auto answer = [&](double log_seconds, TimeBasis basis, int distance) {
    const IntervalFactors factors = intervals_.Factors(
        basis == TimeBasis::kUnseen, distance, query.size_column, size);
    const double seconds = std::exp(log_seconds);
    return TimePrediction{.seconds = seconds,
                          .low_seconds = seconds * factors.low,
                          .high_seconds = seconds * factors.high,
                          .basis = basis};
  };
  for (const Curve& curve : set_.curves) {
    if (curve.size_column != named.size_column ||
        curve.features != named.features) {
      continue;
    }
    const std::vector<double>& sizes = curve.sizes;
    const double nearest = std::clamp(size, sizes.front(), sizes.back());
    const TimeBasis basis = nearest != size ? TimeBasis::kOutside
                            : std::ranges::binary_search(sizes, size)
                                ? TimeBasis::kMeasured
                                : TimeBasis::kInside;
    return answer(KnownCurve(set_, curve).LogSeconds(size), basis,
                  DistanceOf(size, nearest));
  }
  const UnseenCurve unseen(set_, named);
  if (!unseen.known()) {
    return NotFound("nothing was measured over ", query.size_column,
                    ": a time for ", size, " of them cannot be predicted");
  }
  return answer(unseen.LogSeconds(size), TimeBasis::kUnseen, unseen.distance());
}

}  // namespace paceline

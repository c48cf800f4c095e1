#include "core/predict/curve_error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/predict/curve_prediction.h"

namespace paceline {
namespace {

constexpr int kInside = -1;  // as a distance
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

// Both ends: what the rest says of the last and of the first point.
void LeaveOutEnds(const KnownCurve& known, const Curve& curve, int index,
                  LeftOut& left_out) {
  const std::vector<double>& sizes = curve.sizes;
  const int points = curve.points();
  for (const int cut : {1, 2, 4}) {
    if (points - cut < 2) continue;
    left_out.outside.push_back(
        {.curve = index,
         .point = points - 1,
         .log_predicted = known.LogSecondsFrom(sizes.back(), 0, points - cut),
         .octaves = OctavesBetween(sizes.back(), sizes[points - 1 - cut])});
    left_out.outside.push_back(
        {.curve = index,
         .point = 0,
         .log_predicted = known.LogSecondsFrom(sizes[0], cut, points),
         .octaves = OctavesBetween(sizes[cut], sizes[0])});
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

// Relative errors of predictions, and of lines.
struct Errors {
  std::vector<double> predicted;
  std::vector<double> line;

  static RelativeError Summary(const std::vector<double>& errors) {
    if (errors.empty()) return {.mean = std::nan(""), .median = std::nan("")};
    return {.mean = Mean(errors), .median = Median(errors)};
  }
};

double Relative(double predicted, double measured) {
  return std::abs(predicted - measured) / measured;
}

void Score(const CurveSet& set, const LeftOut& left_out, Evaluation& result) {
  Errors all;
  std::map<std::pair<std::string, int>, Errors> by_decade;
  for (const LeftOutPoint& point : left_out.interior) {
    const Curve& curve = set.curves[point.curve];
    const double measured = curve.seconds[point.point];
    Errors& decade =
        by_decade[{curve.size_column, DecadeOf(curve.sizes[point.point])}];
    for (Errors* errors : {&all, &decade}) {
      errors->predicted.push_back(
          Relative(std::exp(point.log_predicted), measured));
      errors->line.push_back(Relative(point.line_seconds, measured));
    }
  }
  result.points = static_cast<int64_t>(all.predicted.size());
  result.predicted = Errors::Summary(all.predicted);
  result.line = Errors::Summary(all.line);
  for (const auto& [key, errors] : by_decade) {
    const auto& [size_column, decade] = key;
    result.decades.push_back(
        {.size_column = size_column,
         .from = decade < 0 ? 0 : std::pow(10.0, decade),
         .to = std::pow(10.0, decade + 1),
         .points = static_cast<int64_t>(errors.predicted.size()),
         .predicted = Errors::Summary(errors.predicted),
         .line = Errors::Summary(errors.line)});
  }
  std::vector<double> heldout;
  for (const LeftOutPoint& point : left_out.unseen) {
    heldout.push_back(Relative(std::exp(point.log_predicted),
                               set.curves[point.curve].seconds[point.point]));
  }
  result.heldout_curves = left_out.unseen_curves;
  result.heldout_points = static_cast<int64_t>(heldout.size());
  result.heldout = Errors::Summary(heldout);
}

// The part of `points` that lie in the intervals that the other half of the
// families makes, unseen curves or not; 0 / 0 is the NaN that is promised.
double CoverageOf(const CurveSet& set, const LeftOut& left_out,
                  const std::vector<LeftOutPoint>& points, bool unseen) {
  const IntervalTable tables[] = {{set, left_out, 1}, {set, left_out, 0}};
  double held = 0;
  for (const LeftOutPoint& p : points) {
    const Curve& curve = set.curves[p.curve];
    const double size = curve.sizes[p.point];
    const IntervalTable& table = tables[curve.family % 2];
    const IntervalFactors factors =
        unseen ? table.Unseen(curve.size_column, size, p.distance)
               : table.Inside(curve.size_column, size);
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
  const auto add = [&](const std::vector<LeftOutPoint>& points,
                       const auto& add_one) {
    for (const LeftOutPoint& p : points) {
      const Curve& curve = set.curves[p.curve];
      if (half.has_value() && curve.family % 2 != *half) continue;
      add_one(p, curve, std::log(curve.seconds[p.point]) - p.log_predicted);
    }
  };
  const auto add_inside = [&](int distance, const LeftOutPoint& p,
                              const Curve& curve, double residual) {
    for (const int decade : {DecadeOf(curve.sizes[p.point]), kAllDecades}) {
      residuals_[{distance, curve.size_column, decade}].push_back(residual);
    }
  };
  const auto add_unseen = [&](const LeftOutPoint& p, const Curve& curve,
                              double residual) {
    add_inside(p.distance, p, curve, residual);
    // What nobody tells is as likely to be a change upwards as downwards.
    if (p.distance == UnseenCurve::kNoPair) {
      add_inside(p.distance, p, curve, -residual);
    }
  };
  add(left_out.interior,
      [&](const LeftOutPoint& p, const Curve& curve, double residual) {
        add_inside(kInside, p, curve, residual);
      });
  add(left_out.unseen, add_unseen);
  add(left_out.remote, add_unseen);
  add(left_out.outside,
      [&](const LeftOutPoint& p, const Curve&, double residual) {
        outside_.push_back(residual / Growth(p.octaves));
      });
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
  return Find(kInside, size_column, size)
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
  }
  result.dropped_rows = set.dropped_rows;
  result.measured_points = set.points();
  result.sampled = left_out.sampled;
  Score(set, left_out, result);
  result.interior_coverage =
      CoverageOf(set, left_out, left_out.interior, false);
  result.heldout_coverage = CoverageOf(set, left_out, left_out.unseen, true);
  return result;
}

}  // namespace paceline

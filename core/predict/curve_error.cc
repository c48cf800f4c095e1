#include "core/predict/curve_error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/predict/known_curve.h"
#include "core/predict/unseen_curve.h"

namespace paceline {
namespace {

// `count` or fewer of [0, of), evenly taken.
std::vector<int> EvenlyTaken(int64_t of, int64_t count) {
  const int64_t taken = std::clamp<int64_t>(count, 0, of);
  std::vector<int> indices;
  for (int64_t i = 0; i < taken; ++i) {
    indices.push_back(static_cast<int>(i * of / taken));
  }
  return indices;
}

void LeaveOutInterior(const KnownCurve& known, const Curve& curve, int index,
                      int64_t most, LeftOut& left_out) {
  if (curve.points() < 3) return;
  const std::vector<double> lines = LinesWithout(curve);
  for (const int i : EvenlyTaken(curve.points() - 2, most)) {
    const int p = i + 1;
    left_out.interior.push_back(
        {.curve = index,
         .point = p,
         .log_predicted = known.LogSeconds(curve.sizes[p], p),
         .line_seconds = lines[p]});
  }
}

// Both ends: what the rest says of the last and of the first point.
void LeaveOutEnds(const KnownCurve& known, const Curve& curve, int index,
                  LeftOut& left_out) {
  const int last = curve.points() - 1;
  for (const int cut : {1, 2, 4}) {
    if (last + 1 - cut < 2) continue;
    left_out.outside.push_back(
        {.curve = index,
         .point = last,
         .log_predicted =
             known.LogSecondsFrom(curve.sizes[last], 0, last + 1 - cut),
         .octaves =
             OctavesBetween(curve.sizes[last], curve.sizes[last - cut])});
    left_out.outside.push_back(
        {.curve = index,
         .point = 0,
         .log_predicted = known.LogSecondsFrom(curve.sizes[0], cut, last + 1),
         .octaves = OctavesBetween(curve.sizes[cut], curve.sizes[0])});
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

constexpr int kAllDecades = std::numeric_limits<int>::max();
constexpr size_t kLeastResiduals = 20;
constexpr double kGuessInside = 2;
constexpr double kGuessUnseen = 4;
constexpr double kGuessRemoter = 1.5;  // a difference more
constexpr double kGuessOutside = 2;    // an octave

double LogResidual(const CurveSet& set, const LeftOutPoint& point) {
  return std::log(set.curves[point.curve].seconds[point.point]) -
         point.log_predicted;
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

RelativeError Summary(const std::vector<double>& errors) {
  if (errors.empty()) return {.mean = std::nan(""), .median = std::nan("")};
  return {.mean = Mean(errors), .median = Median(errors)};
}

struct Errors {
  std::vector<double> predicted;
  std::vector<double> line;
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
  result.predicted = Summary(all.predicted);
  result.line = Summary(all.line);
  for (const auto& [key, errors] : by_decade) {
    const auto& [size_column, decade] = key;
    result.decades.push_back(
        {.size_column = size_column,
         .from = decade < 0 ? 0 : std::pow(10.0, decade),
         .to = std::pow(10.0, decade + 1),
         .points = static_cast<int64_t>(errors.predicted.size()),
         .predicted = Summary(errors.predicted),
         .line = Summary(errors.line)});
  }
}

void ScoreUnseen(const CurveSet& set, const LeftOut& left_out,
                 Evaluation& result) {
  std::vector<double> errors;
  for (const LeftOutPoint& point : left_out.unseen) {
    errors.push_back(Relative(std::exp(point.log_predicted),
                              set.curves[point.curve].seconds[point.point]));
  }
  result.heldout_curves = left_out.unseen_curves;
  result.heldout_points = static_cast<int64_t>(errors.size());
  result.heldout = Summary(errors);
}

bool Holds(const IntervalFactors& factors, double log_predicted,
           double seconds) {
  const double predicted = std::exp(log_predicted);
  return predicted * factors.low <= seconds &&
         seconds <= predicted * factors.high;
}

void Cover(const CurveSet& set, const LeftOut& left_out, Evaluation& result) {
  double interior = 0;
  double unseen = 0;
  for (const int half : {0, 1}) {
    const auto is_other = [&](int c) {
      return set.curves[c].family % 2 != half;
    };
    const IntervalTable table(set, left_out, is_other);
    for (const LeftOutPoint& p : left_out.interior) {
      if (is_other(p.curve)) continue;
      const Curve& curve = set.curves[p.curve];
      interior += Holds(table.Inside(curve.size_column, curve.sizes[p.point]),
                        p.log_predicted, curve.seconds[p.point]);
    }
    for (const LeftOutPoint& p : left_out.unseen) {
      if (is_other(p.curve)) continue;
      const Curve& curve = set.curves[p.curve];
      unseen += Holds(
          table.Unseen(curve.size_column, curve.sizes[p.point], p.distance),
          p.log_predicted, curve.seconds[p.point]);
    }
  }
  // 0 / 0 is the NaN that is promised.
  result.interior_coverage =
      interior / static_cast<double>(left_out.interior.size());
  result.heldout_coverage =
      unseen / static_cast<double>(left_out.unseen.size());
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
    LeaveOutInterior(known, curve, index, most, left_out);
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

void IntervalTable::Add(const CurveSet& set, const LeftOutPoint& point,
                        ByDecade& by_decade) {
  const Curve& curve = set.curves[point.curve];
  const double residual = LogResidual(set, point);
  const int decade = DecadeOf(curve.sizes[point.point]);
  by_decade[{curve.size_column, decade}].push_back(residual);
  by_decade[{curve.size_column, kAllDecades}].push_back(residual);
}

void IntervalTable::AddOutside(const CurveSet& set, const LeftOutPoint& point) {
  outside_.push_back(LogResidual(set, point) / Growth(point.octaves));
}

void IntervalTable::AddUnseen(const CurveSet& set, const LeftOutPoint& point) {
  ByDecade& by_decade = unseen_[point.distance];
  Add(set, point, by_decade);
  if (point.distance != UnseenCurve::kNoPair) return;
  // What nobody tells is as likely to be a change upwards as downwards.
  LeftOutPoint mirrored = point;
  mirrored.log_predicted += 2 * LogResidual(set, point);
  Add(set, mirrored, by_decade);
}

void IntervalTable::Sort() {
  std::vector<ByDecade*> tables = {&inside_};
  for (auto& [distance, table] : unseen_) tables.push_back(&table);
  for (ByDecade* table : tables) {
    for (auto& [key, residuals] : *table) {
      std::sort(residuals.begin(), residuals.end());
    }
  }
  std::sort(outside_.begin(), outside_.end());
}

std::optional<IntervalFactors> IntervalTable::Look(
    const ByDecade& by_decade, const std::string& size_column, double size) {
  auto at = by_decade.find({size_column, DecadeOf(size)});
  if (at == by_decade.end() || at->second.size() < kLeastResiduals) {
    at = by_decade.find({size_column, kAllDecades});
  }
  if (at == by_decade.end() || at->second.size() < kLeastResiduals) {
    return std::nullopt;
  }
  return FactorsOf(at->second, 1);
}

IntervalFactors IntervalTable::Inside(const std::string& size_column,
                                      double size) const {
  return Look(inside_, size_column, size)
      .value_or(IntervalFactors{.low = 1 / kGuessInside, .high = kGuessInside});
}

IntervalFactors IntervalTable::Unseen(const std::string& size_column,
                                      double size, int distance) const {
  const IntervalFactors guess = {.low = 1 / kGuessUnseen, .high = kGuessUnseen};
  const auto found = [&](int at) -> std::optional<IntervalFactors> {
    const auto table = unseen_.find(at);
    if (table == unseen_.end()) return std::nullopt;
    return Look(table->second, size_column, size);
  };
  if (distance == UnseenCurve::kNoPair) return found(distance).value_or(guess);
  std::optional<IntervalFactors> widest;
  for (int at = 1; at <= distance; ++at) {
    const auto factors = found(at);
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
  const double growth = Growth(octaves);
  const double guess = std::pow(kGuessOutside, std::max(octaves, 1.0));
  const IntervalFactors outside =
      outside_.size() < kLeastResiduals
          ? IntervalFactors{.low = 1 / guess, .high = guess}
          : FactorsOf(outside_, growth);
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
  ScoreUnseen(set, left_out, result);
  Cover(set, left_out, result);
  return result;
}

}  // namespace paceline

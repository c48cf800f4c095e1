#include "core/predict/leave_out.h"

#include <algorithm>
#include <cmath>

#include "core/predict/known_curve.h"
#include "core/predict/unseen_curve.h"
#include "core/predict/weighted.h"

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

}  // namespace paceline

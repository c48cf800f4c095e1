#include "core/predict/evaluate.h"

#include <cmath>
#include <map>
#include <utility>

#include "core/predict/interval.h"
#include "core/predict/weighted.h"

namespace paceline {
namespace {

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

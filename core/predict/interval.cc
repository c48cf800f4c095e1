#include "core/predict/interval.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/predict/unseen_curve.h"
#include "core/predict/weighted.h"

namespace paceline {
namespace {

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

}  // namespace

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

}  // namespace paceline

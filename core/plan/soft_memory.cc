// What memory costs in the relaxation: its formula is that of stage_memory.h,
// in fractions of devices and with slopes.
#include <algorithm>

#include "core/plan/soft_relaxation.h"
#include "core/plan/stage_memory.h"

namespace paceline {
namespace {

// A number with its slopes by the devices of a stage, before it and after it.
// What InFlightOf() needs of one: fractions of devices are not rounded.
struct Sloped {
  explicit Sloped(double number) : value(number) {}

  double value = 0;
  double by_replicas = 0;
  double by_earlier = 0;
  double by_later = 0;
};

Sloped Combined(double value, const Sloped& a, double of_a, const Sloped& b,
                double of_b) {
  Sloped sum(value);
  sum.by_replicas = of_a * a.by_replicas + of_b * b.by_replicas;
  sum.by_earlier = of_a * a.by_earlier + of_b * b.by_earlier;
  sum.by_later = of_a * a.by_later + of_b * b.by_later;
  return sum;
}

Sloped operator+(const Sloped& a, const Sloped& b) {
  return Combined(a.value + b.value, a, 1, b, 1);
}
Sloped operator-(const Sloped& a, const Sloped& b) {
  return Combined(a.value - b.value, a, 1, b, -1);
}
Sloped operator*(const Sloped& a, const Sloped& b) {
  return Combined(a.value * b.value, a, b.value, b, a.value);
}
Sloped operator/(const Sloped& a, const Sloped& b) {
  const double ratio = a.value / b.value;
  return Combined(ratio, a, 1 / b.value, b, -ratio / b.value);
}
bool operator<(const Sloped& a, const Sloped& b) { return a.value < b.value; }
Sloped WholeBelow(const Sloped& number) { return number; }
Sloped WholeAbove(const Sloped& number) { return number; }

}  // namespace

void Relaxation::MemoryPenalty() {
  const PlanProblem& problem = tables_.problem();
  double all = 0;
  for (const double count : count_) all += count;
  double after = 0;  // sum of z in later stages
  Vector to_count(count_.size(), 0);
  Vector to_earlier(count_.size(), 0);  // of the sum before each stage
  Vector to_later(count_.size(), 0);    // of the sum behind each stage
  for (int s = stages_ - 1; s >= 0; --s) {
    const auto between = [&](int feature) {
      return cuts_.Mean(feature, s + 1) - cuts_.Mean(feature, s);
    };
    Sloped replicas(std::max(count_[s], 1.0));
    replicas.by_replicas = count_[s] > 1 ? 1 : 0;
    Sloped earlier(std::max(all - after - count_[s], 0.0));
    earlier.by_earlier = 1;
    Sloped later(after);
    later.by_later = 1;
    const InFlight<Sloped> in_flight =
        InFlightOf(problem, replicas, earlier, later);
    const StageAmounts amounts = {
        between(cuts_.FixedFeature()), between(cuts_.ParametersFeature()),
        between(cuts_.KeptFeature()), between(cuts_.OutputsFeature()),
        cuts_.Mean(cuts_.BytesFeature(), s) +
            cuts_.Mean(cuts_.BytesFeature(), s + 1)};
    const Sloped need = BytesOf(problem, amounts, in_flight);
    double to_need = 0;
    for (int d = 0; d < devices_; ++d) {
      const double there = problem.devices[d].memory_bytes;
      if (there == 0 || need.value <= there) continue;
      const double excess = need.value / there - 1;
      const double charge = soft_.penalty * (excess + excess * excess);
      loss_ += charge * z_[At(d, s)];
      to_z_[At(d, s)] += charge;
      to_need += soft_.penalty * z_[At(d, s)] * (1 + 2 * excess) / there;
    }
    const auto add = [&](int feature, double copies) {
      to_mean_[cuts_.At(feature, s)] -= to_need * copies;
      to_mean_[cuts_.At(feature, s + 1)] += to_need * copies;
    };
    add(cuts_.FixedFeature(), 1);
    add(cuts_.ParametersFeature(), in_flight.stashed.value);
    add(cuts_.KeptFeature(), in_flight.kept.value);
    add(cuts_.OutputsFeature(), in_flight.split.value);
    for (const int cut : {s, s + 1}) {
      to_mean_[cuts_.At(cuts_.BytesFeature(), cut)] +=
          kFramesOfABoundary * to_need;
    }
    to_count[s] = to_need * need.by_replicas;
    to_earlier[s] = to_need * need.by_earlier;
    to_later[s] = to_need * need.by_later;
    after += count_[s];
  }
  double before = 0;  // of what stages before say of those behind them
  double behind = 0;
  for (const double slope : to_earlier) behind += slope;
  for (int s = 0; s < stages_; ++s) {
    behind -= to_earlier[s];
    for (int d = 0; d < devices_; ++d) {
      to_z_[At(d, s)] += to_count[s] + before + behind;
    }
    before += to_later[s];
  }
}

}  // namespace paceline

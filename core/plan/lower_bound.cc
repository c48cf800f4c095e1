#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/policy.h"

namespace paceline {
namespace {

// The objective is sum_weight x (sum of stages and transfers) + pace_weight x
// bottleneck.
struct Weights {
  double sum = 0;
  double pace = 1;
};

Weights WeightsOf(const PlanProblem& problem) {
  if (problem.micro_batches == 0) return {0, 1};
  return {1, static_cast<double>(problem.micro_batches - 1)};
}

// [devices][layers] seconds.
using Table = std::vector<std::vector<double>>;

Table SecondsTable(const PlanProblem& problem) {
  Table table(problem.devices.size());
  for (size_t d = 0; d < table.size(); ++d) {
    for (size_t l = 0; l < problem.layers.size(); ++l) {
      const int layer = static_cast<int>(l);
      table[d].push_back(
          LayerSeconds(problem, {layer, layer + 1}, static_cast<int>(d)));
    }
  }
  return table;
}

// Per layer: on the fastest device, or on all of them at once, the work split
// so that they end together.
std::vector<double> LeastSeconds(const PlanProblem& problem,
                                 const Table& seconds) {
  std::vector<double> least(problem.layers.size(), HUGE_VAL);
  for (size_t l = 0; l < least.size(); ++l) {
    double rate = 0;
    for (const std::vector<double>& device : seconds) {
      least[l] = std::min(least[l], device[l]);
      rate += 1 / device[l];
    }
    if (problem.replicas) least[l] = 1 / rate;
  }
  return least;
}

// The dual of: give each layer to devices in fractions so that the weighted
// sum of all loads and the largest load is least.  Any prices >= 0 of the
// devices that sum to weights.pace are a bound:
//   without replicas  sum over layers of min over d of (sum + price_d) seconds
//   with              sum over layers of sum x least + min over d of price_d
//                     seconds: the loads of a stage's devices count once
// since q_d W_d <= t of the stage <= bottleneck on each of its devices.
struct Priced {
  double bound = 0;
  std::vector<double> loads;  // [devices] seconds at these prices
};

Priced BoundAt(const PlanProblem& problem, const Table& seconds,
               double sum_weight, const std::vector<double>& prices) {
  Priced priced;
  priced.loads.assign(prices.size(), 0);
  const double own = problem.replicas ? 0 : sum_weight;
  for (size_t l = 0; l < problem.layers.size(); ++l) {
    size_t cheapest = 0;
    double least = HUGE_VAL;
    for (size_t d = 0; d < prices.size(); ++d) {
      const double cost = (own + prices[d]) * seconds[d][l];
      if (cost >= least) continue;
      least = cost;
      cheapest = d;
    }
    priced.bound += least;
    priced.loads[cheapest] += seconds[cheapest][l];
  }
  return priced;
}

// Starts at prices proportional to speed, which is the optimum with replicas
// when devices differ by a factor only, and raises the price of whoever is
// loaded most (subgradient ascent in the logarithm).
double WorkBound(const PlanProblem& problem, const Table& seconds,
                 const Weights& weights, std::vector<double> prices) {
  constexpr int kSteps = 60;
  double best = 0;
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    for (const double price : prices) total += price;
    if (!(total > 0) || !std::isfinite(total)) break;
    for (double& price : prices) price *= weights.pace / total;
    const Priced priced = BoundAt(problem, seconds, weights.sum, prices);
    best = std::max(best, priced.bound);
    const double most =
        *std::max_element(priced.loads.begin(), priced.loads.end());
    if (!(most > 0)) break;
    const double rate = 1.0 / (1 + step);
    for (size_t d = 0; d < prices.size(); ++d) {
      prices[d] *= std::exp(rate * (priced.loads[d] / most - 0.5));
    }
  }
  return best;
}

}  // namespace

double LowerBoundSeconds(const PlanProblem& problem) {
  const Weights weights = WeightsOf(problem);
  const Table seconds = SecondsTable(problem);
  const std::vector<double> least = LeastSeconds(problem, seconds);
  double sum = 0;
  double largest = 0;
  for (const double layer : least) {
    sum += layer;
    largest = std::max(largest, layer);
  }
  std::vector<double> prices;
  for (const std::vector<double>& device : seconds) {
    double total = 0;
    for (const double layer : device) total += layer;
    prices.push_back(1 / total);
  }
  double work = WorkBound(problem, seconds, weights, prices);
  if (problem.replicas) work += weights.sum * sum;
  return std::max(work, weights.sum * sum + weights.pace * largest);
}

}  // namespace paceline

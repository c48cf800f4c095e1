#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/dp_table.h"
#include "core/plan/packing_bound.h"
#include "core/plan/policy.h"

namespace paceline {
namespace {

// What the layers cost at least, whoever holds them.
struct LayerBounds {
  std::vector<double> alone;     // [layers] s on the fastest device
  std::vector<double> together;  // [layers] s on all devices at once
  std::vector<double> sync;      // [layers] s between the two nearest devices
};

// A ring of more replicas has a slower link and moves more (cost.h).
double LeastSyncPerByte(const DpTable& table) {
  double least = HUGE_VAL;
  for (int u = 0; u < table.devices(); ++u) {
    for (int v = u + 1; v < table.devices(); ++v) {
      least = std::min(least, table.SyncOf({u, v}).seconds_per_byte);
    }
  }
  return least;
}

LayerBounds BoundsOf(const DpTable& table) {
  LayerBounds bounds;
  const bool replicas = table.problem().replicas && table.devices() > 1;
  const double per_byte = replicas ? LeastSyncPerByte(table) : 0;
  for (int layer = 0; layer < table.layers(); ++layer) {
    double alone = HUGE_VAL;
    double rate = 0;
    for (int device = 0; device < table.devices(); ++device) {
      const double seconds = table.ComputeOnly(layer, layer + 1, device);
      alone = std::min(alone, seconds);
      rate += 1 / seconds;
    }
    bounds.alone.push_back(alone);
    bounds.together.push_back(replicas ? 1 / rate : alone);
    bounds.sync.push_back(per_byte * table.ParameterBytes(layer, layer + 1));
  }
  return bounds;
}

// A replicated stage's t is at least `mix` of its compute and 1 - mix of its
// synchronisation; without overlap it is both.
struct Mix {
  double compute = 1;
  double sync = 0;
};

// The dual of: give each layer to devices in fractions so that the weighted
// sum of all stages and the largest load is least.  Any prices >= 0 of the
// devices that sum to weights.pace are a bound, because q_d W_d <= t of the
// stage <= bottleneck on each of its devices:
//   a layer alone on d   (sum + price_d) seconds_d
//   replicated           sum x together + min over d of price_d seconds_d, and
//                        (sum + the two lowest prices) x sync
struct Priced {
  double bound = 0;
  std::vector<double> loads;  // [devices] seconds at these prices
};

Priced BoundAt(const DpTable& table, const LayerBounds& bounds, const Mix& mix,
               const std::vector<double>& prices) {
  Priced priced;
  priced.loads.assign(prices.size(), 0);
  const double sum_weight = table.weights().sum;
  const bool replicas = table.problem().replicas && prices.size() > 1;
  double two_lowest = 0;
  if (replicas) {
    std::vector<double> lowest = prices;
    std::nth_element(lowest.begin(), lowest.begin() + 1, lowest.end());
    two_lowest = lowest[0] + lowest[1];
  }
  for (int l = 0; l < table.layers(); ++l) {
    int cheapest = 0;
    double alone = HUGE_VAL;
    double priced_load = HUGE_VAL;
    for (int d = 0; d < table.devices(); ++d) {
      const double seconds = table.ComputeOnly(l, l + 1, d);
      priced_load = std::min(priced_load, prices[d] * seconds);
      const double cost = (sum_weight + prices[d]) * seconds;
      if (cost >= alone) continue;
      alone = cost;
      cheapest = d;
    }
    double least = alone;
    if (replicas) {
      least = std::min(
          least, mix.compute * (sum_weight * bounds.together[l] + priced_load) +
                     mix.sync * (sum_weight + two_lowest) * bounds.sync[l]);
    }
    priced.bound += least;
    priced.loads[cheapest] += table.ComputeOnly(l, l + 1, cheapest);
  }
  return priced;
}

// Starts at prices proportional to speed, which is the optimum with replicas
// when devices differ by a factor only, and raises the price of whoever is
// loaded most (subgradient ascent in the logarithm).
double WorkBound(const DpTable& table, const LayerBounds& bounds,
                 const Mix& mix) {
  constexpr int kSteps = 16;
  std::vector<double> prices;
  for (int device = 0; device < table.devices(); ++device) {
    prices.push_back(1 / table.ComputeOnly(0, table.layers(), device));
  }
  double best = 0;
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    for (const double price : prices) total += price;
    if (!(total > 0) || !std::isfinite(total)) break;
    for (double& price : prices) price *= table.weights().pace / total;
    const Priced priced = BoundAt(table, bounds, mix, prices);
    best = std::max(best, priced.bound);
    const double most =
        *std::max_element(priced.loads.begin(), priced.loads.end());
    if (!(most > 0) || table.weights().pace == 0) break;
    const double rate = 1.0 / (1 + step);
    for (size_t d = 0; d < prices.size(); ++d) {
      prices[d] *= std::exp(rate * (priced.loads[d] / most - 0.5));
    }
  }
  return best;
}

// The fill and the pace apart: the largest layer is part of some stage.
double LayerBound(const DpTable& table, const LayerBounds& bounds,
                  const Mix& mix) {
  double sum = 0;
  double largest = 0;
  for (int l = 0; l < table.layers(); ++l) {
    const double together =
        mix.compute * bounds.together[l] + mix.sync * bounds.sync[l];
    sum += std::min(bounds.alone[l], together);
    const double both = table.problem().overlap
                            ? std::max(bounds.together[l], bounds.sync[l])
                            : bounds.together[l] + bounds.sync[l];
    largest = std::max(largest, std::min(bounds.alone[l], both));
  }
  return table.weights().sum * sum + table.weights().pace * largest;
}

}  // namespace

double LowerBoundSeconds(const PlanProblem& problem) {
  const DpTable table(problem);
  const LayerBounds bounds = BoundsOf(table);
  const bool replicas = problem.replicas && table.devices() > 1;
  std::vector<Mix> mixes = {{1, 0}};
  if (replicas && problem.training) {
    mixes = problem.overlap ? std::vector<Mix>{{1, 0},
                                               {0.75, 0.25},
                                               {0.5, 0.5},
                                               {0.25, 0.75},
                                               {0, 1}}
                            : std::vector<Mix>{{1, 1}};
  }
  double best = 0;
  for (const Mix& mix : mixes) {
    best = std::max(
        {best, WorkBound(table, bounds, mix), LayerBound(table, bounds, mix)});
  }
  if (!replicas) best = std::max(best, PackingBoundSeconds(table));
  // Sums that were formed in another order than CostOf's.
  constexpr double kRounding = 1e-12;
  return best * (1 - kRounding);
}

}  // namespace paceline

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "core/plan/search/policies.h"

namespace paceline {
namespace {

// --- stages with replicas ---------------------------------------------------

// Returns a layer's seconds on the fastest device, and on all devices at once.
std::pair<double, double> LeastOf(const CostTable& table, int layer) {
  double alone = HUGE_VAL;
  double rate = 0;
  for (int device = 0; device < table.devices(); ++device) {
    const double seconds = table.ComputeOnly(layer, layer + 1, device);
    alone = std::min(alone, seconds);
    rate += 1 / seconds;
  }
  return {alone, 1 / rate};
}

// The least cost of each layer on any devices.
struct LayerBounds {
  std::vector<double> alone;     // [layers] s on the fastest device
  std::vector<double> together;  // [layers] s on all devices at once
  std::vector<double> sync;      // [layers] s between the two nearest devices
};

// Two replicas cost least: a larger ring has a slower link and moves more
// (cost.h).
double LeastSyncPerByte(const CostTable& table) {
  double least = HUGE_VAL;
  for (int u = 0; u < table.devices(); ++u) {
    for (int v = u + 1; v < table.devices(); ++v) {
      least = std::min(least, table.SyncOf({u, v}).seconds_per_byte);
    }
  }
  return least;
}

LayerBounds BoundsOf(const CostTable& table) {
  LayerBounds bounds;
  const bool replicas = table.problem().replicas && table.devices() > 1;
  const double per_byte = replicas ? LeastSyncPerByte(table) : 0;
  for (int layer = 0; layer < table.layers(); ++layer) {
    const auto [alone, together] = LeastOf(table, layer);
    bounds.alone.push_back(alone);
    bounds.together.push_back(replicas ? together : alone);
    bounds.sync.push_back(per_byte * table.ParameterBytes({layer, layer + 1}));
  }
  return bounds;
}

// With overlap, t of a replicated stage is at least compute x its compute +
// sync x its synchronisation, with weights that sum to 1.  Without overlap both
// weights are 1.
struct Mix {
  double compute = 1;
  double sync = 0;
};

// The dual of this problem: give each layer to devices in fractions so that the
// weighted sum of all stages and the largest load is least.  Any prices >= 0 of
// the devices that sum to weights.pace give a bound, because q_d W_d <= t of
// the stage <= bottleneck on each of its devices:
//   a layer alone on d   (sum + price_d) seconds_d
//   replicated           sum x together + min over d of price_d seconds_d, and
//                        (sum + the two lowest prices) x sync
struct Priced {
  double bound = 0;
  std::vector<double> loads;  // [devices] seconds at these prices
};

Priced BoundAt(const CostTable& table, const LayerBounds& bounds,
               const Mix& mix, const std::vector<double>& prices) {
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

// Starts at prices proportional to speed, which are optimal with replicas when
// devices differ only by a factor.  Each step raises the price of the most
// loaded device (subgradient ascent in the logarithm).
double WorkBound(const CostTable& table, const LayerBounds& bounds,
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

// Bounds the sum and the pace separately: some stage has the largest layer.
double LayerBound(const CostTable& table, const LayerBounds& bounds,
                  const Mix& mix) {
  double sum = 0;
  double largest = 0;
  for (int l = 0; l < table.layers(); ++l) {
    const double together =
        mix.compute * bounds.together[l] + mix.sync * bounds.sync[l];
    sum += std::min(bounds.alone[l], together);
    const double both = SyncOverlaps(table.problem())
                            ? std::max(bounds.together[l], bounds.sync[l])
                            : bounds.together[l] + bounds.sync[l];
    largest = std::max(largest, std::min(bounds.alone[l], both));
  }
  return table.weights().sum * sum + table.weights().pace * largest;
}

// --- stages of one device ---------------------------------------------------

// The least costs that a boundary adds on one side of a stage on a device.
struct Ends {
  double before = 0;
  double after = 0;
  double in_sum = 0;  // of a boundary, in the sum of the step
};

class Packing {
 public:
  explicit Packing(const CostTable& table)
      : table_(table), work_(LeastSecondsOf(table).together) {
    for (int device = 0; device < table.devices(); ++device) {
      ends_.push_back(EndsOf(device));
      rates_.push_back(RateOf(device));
      by_rate_.push_back(device);
    }
    std::ranges::stable_sort(by_rate_, {}, [&](int d) { return rates_[d]; });
  }

  // Returns a lower bound of the sum of stages and transfers at a pace of at
  // most `pace_seconds`; infinity: no placement is that fast.
  double SumAt(double pace_seconds) const;

 private:
  Ends EndsOf(int device) const;
  double RateOf(int device) const;
  double Run(int device, double pace_seconds, const Ends& ends) const;
  double FromStart(int device, double budget) const;
  double ToEnd(int device, double budget) const;
  bool Fits(int device, int first, int last) const;

  double work() const { return work_.back(); }

  const CostTable& table_;
  // [layers + 1]: of layers [0, l); no device is faster than its rate.
  std::vector<double> work_;
  std::vector<Ends> ends_;     // [devices]
  std::vector<double> rates_;  // [devices]: least seconds per work
  std::vector<int> by_rate_;
};

Ends Packing::EndsOf(int device) const {
  const PlanProblem& problem = table_.problem();
  const Device& on = problem.devices[device];
  double bytes = HUGE_VAL;
  for (int cut = 1; cut < table_.layers(); ++cut) {
    bytes = std::min(bytes, table_.BytesBefore(cut));
  }
  Ends ends;
  if (bytes == HUGE_VAL) return ends;  // a single layer
  const double frame = (problem.training ? 2 : 1) *
                       (on.frame_seconds + bytes * on.frame_seconds_per_byte);
  double before = HUGE_VAL;
  double after = HUGE_VAL;
  for (int other = 0; other < table_.devices(); ++other) {
    if (other == device) continue;
    const WireCost& in = table_.Wire(other, device);
    const WireCost& out = table_.Wire(device, other);
    before = std::min(before, bytes * in.seconds_per_byte + in.latency_seconds);
    after = std::min(after, bytes * out.seconds_per_byte + out.latency_seconds);
  }
  ends.in_sum = frame + std::min(before, after) / 2;
  ends.before = problem.overlap ? frame : frame + before;
  ends.after = problem.overlap ? frame : frame + after;
  return ends;
}

double Packing::RateOf(int device) const {
  double rate = HUGE_VAL;
  for (int layer = 0; layer < table_.layers(); ++layer) {
    const double work = work_[layer + 1] - work_[layer];
    if (!(work > 0)) continue;
    rate = std::min(rate, table_.ComputeOnly(layer, layer + 1, device) / work);
  }
  return rate == HUGE_VAL ? 0 : rate;
}

bool Packing::Fits(int device, int first, int last) const {
  const double bound = table_.problem().devices[device].memory_bytes;
  if (bound == 0) return true;
  // The boundaries' frames do not count, since a longer run might not have
  // them.
  return table_.LeastBytes({first, last}) <= bound * (1 + 1e-9);
}

// Returns the most work of a run between two others.
double Packing::Run(int device, double pace_seconds, const Ends& ends) const {
  const double budget = pace_seconds - ends.before - ends.after;
  double most = 0;
  int first = 0;
  for (int last = 1; last <= table_.layers(); ++last) {
    while (first < last && (table_.ComputeOnly(first, last, device) > budget ||
                            !Fits(device, first, last))) {
      ++first;
    }
    most = std::max(most, work_[last] - work_[first]);
  }
  return most;
}

double Packing::FromStart(int device, double budget) const {
  int last = 0;
  while (last < table_.layers() &&
         table_.ComputeOnly(0, last + 1, device) <= budget &&
         Fits(device, 0, last + 1)) {
    ++last;
  }
  return work_[last];
}

double Packing::ToEnd(int device, double budget) const {
  int first = table_.layers();
  while (first > 0 &&
         table_.ComputeOnly(first - 1, table_.layers(), device) <= budget &&
         Fits(device, first - 1, table_.layers())) {
    --first;
  }
  return work() - work_[first];
}

double Packing::SumAt(double pace_seconds) const {
  constexpr double kRounding = 1e-9;
  const double pace = pace_seconds * (1 + kRounding);
  const int most_stages =
      table_.problem().stages > 0 ? table_.problem().stages : table_.devices();
  double alone = HUGE_VAL;  // one stage of everything
  double at_start = 0;      // excess over a run between two others
  double at_end = 0;
  std::vector<double> runs(table_.devices());
  for (const int device : by_rate_) {
    const Ends& ends = ends_[device];
    runs[device] = Run(device, pace, ends);
    at_start =
        std::max(at_start, FromStart(device, pace - ends.after) - runs[device]);
    at_end = std::max(at_end, ToEnd(device, pace - ends.before) - runs[device]);
    const double seconds = table_.ComputeOnly(0, table_.layers(), device);
    if (table_.problem().stages <= 1 && seconds <= pace &&
        Fits(device, 0, table_.layers())) {
      alone = std::min(alone, seconds);
    }
  }
  if (most_stages == 1) return alone;
  // The largest runs give the fewest stages.
  std::vector<double> largest = runs;
  std::sort(largest.begin(), largest.end(), std::greater<>());
  const double needed = work() * (1 - kRounding) - at_start - at_end;
  double held = 0;
  int stages = 0;
  while (stages < most_stages && held < needed) held += largest[stages++];
  if (held < needed) return alone;
  stages = std::max({stages, 2, table_.problem().stages});
  double least_end = HUGE_VAL;
  for (const Ends& ends : ends_) least_end = std::min(least_end, ends.in_sum);
  double sum = 2 * (stages - 1) * least_end;
  double rest = work();
  // Runs at the ends hold more; count the excess at the cheapest rate.
  const double extra = std::min(rest, at_start + at_end);
  sum += extra * rates_[by_rate_[0]];
  rest -= extra;
  for (const int device : by_rate_) {
    const double taken = std::min(rest, runs[device]);
    sum += taken * rates_[device];
    rest -= taken;
  }
  return std::min(alone, sum);
}

}  // namespace

LeastSeconds LeastSecondsOf(const CostTable& table) {
  LeastSeconds least;
  for (int layer = 0; layer < table.layers(); ++layer) {
    const auto [alone, together] = LeastOf(table, layer);
    least.alone.push_back(least.alone.back() + alone);
    least.together.push_back(least.together.back() + together);
  }
  return least;
}

double PackingBoundSeconds(const CostTable& table) {
  const Packing packing(table);
  const ObjectiveWeights& weights = table.weights();
  double high = 0;  // a pace at which one device can hold all layers
  for (int device = 0; device < table.devices(); ++device) {
    high = std::max(high, table.ComputeOnly(0, table.layers(), device));
  }
  high *= 2;
  while (packing.SumAt(high) == HUGE_VAL) {
    // Memory alone forbids it, or boundaries cost more than all compute.
    if (high == 0 || !std::isfinite(high)) return 0;
    high *= 16;
  }
  constexpr int kHalvings = 40;
  double low = 0;
  double top = high;
  for (int i = 0; i < kHalvings && top - low > 1e-7 * top; ++i) {
    const double middle = (low + top) / 2;
    (packing.SumAt(middle) == HUGE_VAL ? low : top) = middle;
  }
  if (weights.sum == 0) return weights.pace * low;
  // (bound, from, to): the bound of an interval takes the sum at its slower end
  // and the pace at its faster end.
  using Interval = std::tuple<double, double, double>;
  std::priority_queue<Interval, std::vector<Interval>, std::greater<>> open;
  const auto push = [&](double from, double to) {
    open.emplace(packing.SumAt(to) + weights.pace * from, from, to);
  };
  push(low, high);
  constexpr int kSplits = 40;
  for (int i = 0; i < kSplits; ++i) {
    const auto [bound, from, to] = open.top();
    if (to - from <= 1e-6 * to) break;
    open.pop();
    push(from, (from + to) / 2);
    push((from + to) / 2, to);
  }
  // At paces slower than `high` the sum is at least its value at an unlimited
  // pace.
  return std::min(std::get<0>(open.top()),
                  packing.SumAt(HUGE_VAL) + weights.pace * high);
}

double LowerBoundSeconds(const PlanProblem& problem) {
  const CostTable table(problem);
  const LayerBounds bounds = BoundsOf(table);
  const bool replicas = problem.replicas && table.devices() > 1;
  std::vector<Mix> mixes = {{1, 0}};
  if (replicas && problem.training) {
    mixes = SyncOverlaps(problem) ? std::vector<Mix>{{1, 0},
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
  // CostOf forms its sums in another order, which rounds differently.
  constexpr double kRounding = 1e-12;
  return best * (1 - kRounding);
}

}  // namespace paceline

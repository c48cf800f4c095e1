#include "core/plan/packing_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

namespace paceline {
namespace {

// The least that a boundary adds on one side of a stage on a device.
struct Ends {
  double before = 0;
  double after = 0;
  double in_sum = 0;  // of a boundary, in the sum of the step
};

class Packing {
 public:
  explicit Packing(const DpTable& table)
      : table_(table), work_(table.layers() + 1, 0) {
    for (int layer = 0; layer < table.layers(); ++layer) {
      double rate = 0;
      for (int device = 0; device < table.devices(); ++device) {
        rate += 1 / table.ComputeOnly(layer, layer + 1, device);
      }
      work_[layer + 1] = work_[layer] + 1 / rate;
    }
    for (int device = 0; device < table.devices(); ++device) {
      ends_.push_back(EndsOf(device));
      rates_.push_back(RateOf(device));
      by_rate_.push_back(device);
    }
    std::stable_sort(by_rate_.begin(), by_rate_.end(),
                     [&](int a, int b) { return rates_[a] < rates_[b]; });
  }

  // A lower bound of the sum of stages and transfers at a pace of at most
  // `pace_seconds`; infinity: no placement is that fast.
  double SumAt(double pace_seconds) const;

 private:
  Ends EndsOf(int device) const;
  double RateOf(int device) const;
  double Run(int device, double pace_seconds, const Ends& ends) const;
  double FromStart(int device, double budget) const;
  double ToEnd(int device, double budget) const;
  bool Fits(int device, int first, int last) const;

  double work() const { return work_.back(); }

  const DpTable& table_;
  // [layers + 1]: of layers [0, l), so that no device is faster than its rate
  std::vector<double> work_;
  std::vector<Ends> ends_;     // [devices]
  std::vector<double> rates_;  // [devices]: at least so many seconds per work
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
  // Without its boundaries' frames, which a longer run might not have.
  return table_.LeastBytes({first, last}) <= bound * (1 + 1e-9);
}

// The most work of a run between two others.
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
  double at_start = 0;      // more than a run between two others
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
  // The fewest stages: by the largest runs.
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
  // The ends hold more than their runs; on whichever device that is cheapest.
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

double PackingBoundSeconds(const DpTable& table) {
  const Packing packing(table);
  const ObjectiveWeights& weights = table.weights();
  double high = 0;  // a pace at which one device can do it all
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
  // Intervals of paces by their bound: the sum at the slower end, the pace of
  // the faster one.
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
  // Slower than `high` is not better: the sum there is the least there is.
  return std::min(std::get<0>(open.top()),
                  packing.SumAt(HUGE_VAL) + weights.pace * high);
}

}  // namespace paceline

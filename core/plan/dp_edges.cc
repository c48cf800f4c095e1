#include "core/plan/dp_edges.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace paceline {
namespace {

// Between shares that are the same but for their last digits.
constexpr double kRounding = 1e-12;

// The cheapest wire from a device outside a set to each class of it, and back.
struct Nearest {
  std::vector<WireCost> before;  // [counts of the set]
  std::vector<WireCost> after;
};

void TakeLess(const WireCost& wire, WireCost& least) {
  least.seconds_per_byte =
      std::min(least.seconds_per_byte, wire.seconds_per_byte);
  least.latency_seconds = std::min(least.latency_seconds, wire.latency_seconds);
}

Nearest NearestOf(const DpSets& sets, const ClassSet& set) {
  std::vector<int> outside;
  for (const std::vector<int>& members : sets.classes()) {
    outside.push_back(static_cast<int>(members.size()));
  }
  for (const auto& [of_class, count] : set.counts) outside[of_class] -= count;
  Nearest nearest;
  for (const auto& [of_class, count] : set.counts) {
    WireCost before = {HUGE_VAL, HUGE_VAL};
    WireCost after = before;
    for (size_t other = 0; other < outside.size(); ++other) {
      if (outside[other] == 0) continue;
      TakeLess(sets.Wire(static_cast<int>(other), of_class), before);
      TakeLess(sets.Wire(of_class, static_cast<int>(other)), after);
    }
    nearest.before.push_back(before);
    nearest.after.push_back(after);
  }
  return nearest;
}

// A port of the set is busy for its share of the bytes at the cheapest wire.
TransferCost LeastTransfer(const ClassSet& set, const double* shares,
                           const std::vector<WireCost>& wires, double bytes) {
  TransferCost least;
  for (size_t i = 0; i < set.counts.size(); ++i) {
    const double seconds = bytes * wires[i].seconds_per_byte;
    least.occupied = std::max(least.occupied, shares[i] * seconds);
    least.delay +=
        set.counts[i].count * shares[i] * (seconds + wires[i].latency_seconds);
  }
  return least;
}

double MemoryBound(const PlanProblem& problem, const ClassSet& set) {
  double bound = HUGE_VAL;
  for (const int device : set.devices) {
    const double bytes = problem.devices[device].memory_bytes;
    if (bytes > 0) bound = std::min(bound, bytes);
  }
  return bound;
}

// With how many devices in later stages the stage fits; false: with none.  What
// is kept grows with them, or falls, so that what fits has no gaps.
bool PutLater(const DpTable& table, LayerRange layers, int replicas,
              double bound, DpEdge& edge) {
  edge.max_later = table.devices() - replicas;
  if (bound == HUGE_VAL) return true;
  const auto fits = [&](int later) {
    return table.StageBytes(layers, replicas, later) <= bound;
  };
  while (edge.max_later >= 0 && !fits(edge.max_later)) --edge.max_later;
  if (edge.max_later < 0) return false;
  while (!fits(edge.min_later)) ++edge.min_later;
  return true;
}

}  // namespace

DpEdges::DpEdges(const DpTable& table, const DpSets& sets, const DpLimit& limit)
    : sets_(sets.size()) {
  const int layers = table.layers();
  const ObjectiveWeights& weights = table.weights();
  std::vector<Nearest> nearest;
  std::vector<double> bounds;
  for (int code = 0; code < sets_; ++code) {
    nearest.push_back(NearestOf(sets, sets.set(code)));
    bounds.push_back(MemoryBound(table.problem(), sets.set(code)));
  }
  std::vector<double> fixed(static_cast<size_t>(sets_) * sets.classes().size(),
                            -1);  // [sets][classes]
  std::vector<double> device_shares;
  std::vector<double> shares;
  begins_.assign(static_cast<size_t>(layers + 1) * sets_ + 1, 0);
  std::vector<char> holds_stage(sets_, false);
  for (const int code : sets.StageSetsIn(sets.full())) holds_stage[code] = true;
  for (int last = 0; last <= layers; ++last) {
    for (int code = 0; code < sets_; ++code) {
      begins_[static_cast<size_t>(last) * sets_ + code] =
          static_cast<int>(edges_.size());
      if (!holds_stage[code]) continue;
      const ClassSet& set = sets.set(code);
      for (int first = last - 1; first >= 0; --first) {
        const bool whole = first == 0 && last == layers;
        if (code == sets.full() && !whole) continue;
        DpEdge edge;
        edge.first = first;
        if (!PutLater(table, {first, last}, set.size, bounds[code], edge)) {
          continue;
        }
        edge.seconds = table.StageSeconds({first, last}, set.devices, set.sync,
                                          device_shares);
        shares.clear();
        size_t device = 0;
        for (size_t i = 0; i < set.counts.size(); ++i) {
          shares.push_back(device_shares[device]);
          device += set.counts[i].count;
          double& known = fixed[code * sets.classes().size() + i];
          if (known < 0) known = shares.back();
          shares_are_fixed_ &=
              std::abs(known - shares.back()) <= kRounding * known;
        }
        if (first > 0) {
          edge.before = LeastTransfer(set, shares.data(), nearest[code].before,
                                      table.BytesBefore(first));
        }
        if (last < layers) {
          edge.after = LeastTransfer(set, shares.data(), nearest[code].after,
                                     table.BytesBefore(last));
        }
        double pace =
            std::max({edge.seconds, edge.before.occupied, edge.after.occupied});
        if (!table.problem().overlap) {
          pace = edge.seconds + edge.before.delay + edge.after.delay;
        }
        const double others = limit.least_sum[first] + limit.least_sum[layers] -
                              limit.least_sum[last];
        const double sum =
            edge.seconds + edge.before.delay + edge.after.delay + others;
        if (weights.sum * sum + weights.pace * pace >= limit.seconds) continue;
        edge.shares = static_cast<int>(shares_.size());
        shares_.insert(shares_.end(), shares.begin(), shares.end());
        edges_.push_back(edge);
      }
    }
  }
  begins_.back() = static_cast<int>(edges_.size());
}

TransferCost TransferOf(const DpTable& table, const DpSets& sets, int cut,
                        const ClassSet& left, const double* left_shares,
                        const ClassSet& right, const double* right_shares) {
  const double bytes = table.BytesBefore(cut);
  TransferCost cost;
  for (size_t u = 0; u < left.counts.size(); ++u) {
    double port = 0;
    for (size_t v = 0; v < right.counts.size(); ++v) {
      const WireCost& wire =
          sets.Wire(left.counts[u].of_class, right.counts[v].of_class);
      const double share = right.counts[v].count * right_shares[v];
      const double seconds = share * bytes * wire.seconds_per_byte;
      port += seconds;
      cost.delay += left.counts[u].count * left_shares[u] *
                    (seconds + share * wire.latency_seconds);
    }
    cost.occupied = std::max(cost.occupied, left_shares[u] * port);
  }
  for (size_t v = 0; v < right.counts.size(); ++v) {
    double port = 0;
    for (size_t u = 0; u < left.counts.size(); ++u) {
      const WireCost& wire =
          sets.Wire(left.counts[u].of_class, right.counts[v].of_class);
      port += left.counts[u].count * left_shares[u] * wire.seconds_per_byte;
    }
    cost.occupied = std::max(cost.occupied, right_shares[v] * bytes * port);
  }
  return cost;
}

}  // namespace paceline

#include "core/plan/dp_orders.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace paceline {
namespace {

double MeanBoundaryBytes(const DpTable& table) {
  double bytes = 0;
  for (int cut = 1; cut < table.layers(); ++cut)
    bytes += table.BytesBefore(cut);
  return bytes / std::max(1, table.layers() - 1);
}

double WireSeconds(const DpTable& table, int left, int right, double bytes) {
  const WireCost& wire = table.Wire(left, right);
  return bytes * wire.seconds_per_byte + wire.latency_seconds;
}

std::vector<int> CheapestPath(const DpTable& table, int start, double bytes) {
  std::vector<int> path = {start};
  std::vector<bool> taken(table.devices(), false);
  taken[start] = true;
  while (static_cast<int>(path.size()) < table.devices()) {
    int nearest = -1;
    double least = HUGE_VAL;
    for (int device = 0; device < table.devices(); ++device) {
      if (taken[device]) continue;
      const double seconds = WireSeconds(table, device, path.back(), bytes);
      if (nearest >= 0 && seconds >= least) continue;
      nearest = device;
      least = seconds;
    }
    path.push_back(nearest);
    taken[nearest] = true;
  }
  return path;
}

int BestConnected(const DpTable& table, double bytes) {
  int best = 0;
  double least = HUGE_VAL;
  for (int device = 0; device < table.devices(); ++device) {
    double seconds = 0;
    for (int other = 0; other < table.devices(); ++other) {
      if (other == device) continue;
      seconds += WireSeconds(table, device, other, bytes);
    }
    if (seconds >= least) continue;
    best = device;
    least = seconds;
  }
  return best;
}

}  // namespace

std::vector<int> BySpeed(const DpTable& table) {
  std::vector<int> order(table.devices());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return table.ComputeOnly(0, table.layers(), a) <
           table.ComputeOnly(0, table.layers(), b);
  });
  return order;
}

std::vector<std::vector<int>> DeviceOrders(const DpTable& table) {
  const double bytes = MeanBoundaryBytes(table);
  std::vector<int> as_given(table.devices());
  std::iota(as_given.begin(), as_given.end(), 0);
  // Packing goes from the last stage to the first.
  std::reverse(as_given.begin(), as_given.end());
  const std::vector<int> by_speed = BySpeed(table);
  std::vector<std::vector<int>> orders;
  const auto add = [&](std::vector<int> order) {
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) {
      orders.push_back(std::move(order));
    }
  };
  add(as_given);
  add(by_speed);
  add({by_speed.rbegin(), by_speed.rend()});
  add(CheapestPath(table, by_speed[0], bytes));
  add(CheapestPath(table, BestConnected(table, bytes), bytes));
  return orders;
}

std::vector<std::vector<int>> Joined(const std::vector<int>& order, int size) {
  std::vector<std::vector<int>> groups;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % size == 0) groups.emplace_back();
    groups.back().push_back(order[i]);
  }
  return groups;
}

}  // namespace paceline

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/plan/search/optimal_pack.h"
#include "core/plan/search/policies.h"
#include "core/plan/search/walk.h"

namespace paceline {
namespace {

double MeanBoundaryBytes(const CostTable& table) {
  double bytes = 0;
  for (int cut = 1; cut < table.layers(); ++cut) {
    bytes += table.BytesBefore(cut);
  }
  return bytes / std::max(1, table.layers() - 1);
}

double WireSeconds(const CostTable& table, int left, int right, double bytes) {
  const WireCost& wire = table.Wire(left, right);
  return bytes * wire.seconds_per_byte + wire.latency_seconds;
}

std::vector<int> CheapestPath(const CostTable& table, int start, double bytes) {
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

int BestConnected(const CostTable& table, double bytes) {
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

// Returns orders of all devices without repetitions: as given, by speed both
// ways, and two paths that always follow the cheapest wire for the model's mean
// boundary, from the fastest device and from the best connected one.
// O(devices^2).
std::vector<std::vector<int>> DeviceOrders(const CostTable& table) {
  const double bytes = MeanBoundaryBytes(table);
  std::vector<int> as_given(table.devices());
  std::iota(as_given.begin(), as_given.end(), 0);
  // Packing goes from the last stage to the first.
  std::reverse(as_given.begin(), as_given.end());
  const std::vector<int> by_speed = QuickestFirst(table);
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

// Joins neighbours of an order to groups of `size`; the last one may be
// smaller.
std::vector<std::vector<int>> Joined(const std::vector<int>& order, int size) {
  std::vector<std::vector<int>> groups;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % size == 0) groups.emplace_back();
    groups.back().push_back(order[i]);
  }
  return groups;
}

// An order, and the results of packing it.
struct Candidate {
  GroupOrder order;
  double pace_seconds = HUGE_VAL;
  double objective = HUGE_VAL;
};

// Returns the steps of packing that take as long as ObjectiveOf.
double JudgingSteps(const Placement& placement) {
  double steps = 0;
  double left = 0;
  for (const PlacedStage& stage : placement) {
    const double replicas = static_cast<double>(stage.devices.size());
    // Pairs in the stage and over the boundary before it.
    steps += 2 + (replicas * replicas + replicas * left) / 16;
    left = replicas;
  }
  return steps;
}

class LocalSearch {
 public:
  LocalSearch(const CostTable& table, double most_steps)
      : table_(table),
        packer_(table),
        most_steps_(most_steps),
        random_(MixSeed({static_cast<uint64_t>(table.layers()),
                         static_cast<uint64_t>(table.devices())})) {}

  Placement Run() {
    StartOrders();
    if (by_pace_.order.empty()) FindAny();
    if (by_pace_.order.empty()) return {};
    if (table_.weights().pace > 0) Tighten(most_steps_ * 0.6);
    Descend(most_steps_);
    PolishCuts(table_, best_);
    return std::move(best_);
  }

 private:
  void StartOrders();
  void Start(const std::vector<std::vector<int>>& groups);
  double LeastPace(const GroupOrder& order);
  void FindAny();
  void Tighten(double most_steps);
  void Descend(double most_steps);
  bool Change(GroupOrder& order);
  bool ChangeReplicas(GroupOrder& order);

  // Returns the objective of `order` packed at `pace_seconds`; infinity:
  // incomplete.
  double Judge(const GroupOrder& order, double pace_seconds) {
    packer_.Pack(order, pace_seconds, packed_);
    if (!packed_.complete()) return HUGE_VAL;
    Placement placement = packer_.PlacementOf(packed_);
    const double objective = ObjectiveOf(table_, placement);
    packer_.Spend(JudgingSteps(placement));
    if (objective < best_objective_) {
      best_objective_ = objective;
      best_ = std::move(placement);
    }
    return objective;
  }

  double Offer(const GroupOrder& order);

  // Long walks compare with earlier moves.
  size_t HistorySize(double most_steps) const {
    const double moves =
        std::max(0.0, most_steps - packer_.steps()) / table_.devices();
    return static_cast<size_t>(std::clamp(moves / 400, 20.0, 500.0));
  }

  size_t Below(size_t bound) { return random_.Below(bound); }

  const CostTable& table_;
  GroupPacker packer_;
  const double most_steps_;
  SplitMix64 random_;
  Packed packed_;
  std::vector<GroupOrder> starts_;
  Candidate by_pace_;       // packed at the least pace that completes it
  Candidate by_objective_;  // packed at its best pace
  Placement best_;
  double best_objective_ = HUGE_VAL;
};

// Returns the least pace at which `order` packs completely; infinity: none.
double LocalSearch::LeastPace(const GroupOrder& order) {
  // The whole objective is checked, since a slower pace may complete where no
  // faster one does: a stage that recomputes may need less memory when it
  // grows.
  double high = Judge(order, HUGE_VAL);
  if (high == HUGE_VAL) return HUGE_VAL;
  if (table_.weights().sum > 0 && table_.weights().pace > 0) {
    high /= table_.weights().pace;
  }
  packer_.Pack(order, high, packed_);
  if (!packed_.complete()) high *= 2;
  double low = 0;
  for (int halving = 0; halving < 30 && high - low > 1e-4 * high; ++halving) {
    const double middle = (low + high) / 2;
    packer_.Pack(order, middle, packed_);
    (packed_.complete() ? high : low) = middle;
  }
  return high;
}

// Remembers `order` where it is better than the best known one.  Returns the
// least pace at which it is complete.
//
// It also tries slower paces: when steps are short, fewer and faster devices at
// a slower pace may be better.
double LocalSearch::Offer(const GroupOrder& order) {
  const double least_pace = LeastPace(order);
  if (least_pace == HUGE_VAL) return least_pace;
  Candidate best = {order, least_pace, HUGE_VAL};
  for (const double factor :
       {1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0, 5.0, 9.0, 20.0}) {
    const double objective = Judge(order, least_pace * factor);
    if (objective < best.objective) {
      best = {order, least_pace * factor, objective};
    }
    if (table_.weights().sum == 0) break;
  }
  if (least_pace < by_pace_.pace_seconds) {
    by_pace_ = {order, least_pace, best.objective};
  }
  if (best.objective < by_objective_.objective || by_objective_.order.empty()) {
    by_objective_ = std::move(best);
  }
  return least_pace;
}

void LocalSearch::Start(const std::vector<std::vector<int>>& groups) {
  if (static_cast<int>(groups.size()) < table_.problem().stages) return;
  GroupOrder order;
  for (const std::vector<int>& devices : groups) {
    order.push_back(packer_.AddGroup(devices));
  }
  Offer(order);
  starts_.push_back(std::move(order));
}

void LocalSearch::StartOrders() {
  const int devices = table_.devices();
  for (const std::vector<int>& order : DeviceOrders(table_)) {
    for (int size = 1; size <= devices; size *= 2) {
      // The first start is always made.
      if (packer_.steps() > most_steps_) break;
      Start(Joined(order, size));
      if (!table_.problem().replicas) break;
    }
  }
  // Starts with one stage: on the fastest device, on the two fastest, ...
  const std::vector<int> by_speed = QuickestFirst(table_);
  for (int used = 1; used <= devices; used += std::max(1, used / 4)) {
    std::vector<std::vector<int>> groups;
    groups.emplace_back(by_speed.begin(), by_speed.begin() + used);
    for (int i = used; i < devices; ++i) groups.push_back({by_speed[i]});
    Start(groups);
    if (!table_.problem().replicas) break;
  }
}

// No start was complete, so this walk places as much as possible at any pace.
void LocalSearch::FindAny() {
  if (starts_.empty()) return;
  GroupOrder current;
  double left = HUGE_VAL;
  for (const GroupOrder& order : starts_) {
    packer_.Pack(order, HUGE_VAL, packed_);
    if (packed_.left < left) {
      left = packed_.left;
      current = order;
    }
  }
  while (packer_.steps() < most_steps_) {
    GroupOrder order = current;
    if (!Change(order)) return;
    packer_.Pack(order, HUGE_VAL, packed_);
    if (packed_.left > left) continue;
    left = packed_.left;
    current = std::move(order);
    if (left > 0) continue;
    Offer(current);
    return;
  }
}

// Walks at a pace just below the best one, and minimises the unplaced compute.
// When nothing is left unplaced, it lowers the pace.
void LocalSearch::Tighten(double most_steps) {
  constexpr double kFaster = 1 - 1e-4;
  const size_t history_size = HistorySize(most_steps);
  GroupOrder current = by_pace_.order;
  double pace = by_pace_.pace_seconds * kFaster;
  packer_.Pack(current, pace, packed_);
  double left = packed_.left;
  // Late acceptance (Burke and Bykov 2017): a move is taken when it is no worse
  // than the state some moves ago.
  std::vector<double> history(history_size, left);
  for (size_t move = 0; packer_.steps() < most_steps; ++move) {
    GroupOrder order = current;
    if (!Change(order)) return;
    packer_.Pack(order, pace, packed_);
    double& before = history[move % history_size];
    if (packed_.left <= left || packed_.left <= before) {
      left = packed_.left;
      current = std::move(order);
    }
    before = left;
    if (left > 0) continue;
    pace = Offer(current) * kFaster;
    packer_.Pack(current, pace, packed_);
    left = packed_.left;
    std::fill(history.begin(), history.end(), left);
  }
}

// Walks by the objective, at paces around the best one's.
void LocalSearch::Descend(double most_steps) {
  constexpr double kPaces[] = {1.0, 0.999, 0.99, 1.01, 0.95, 1.05, 0.8, 1.3};
  const size_t history_size = HistorySize(most_steps);
  GroupOrder current = by_objective_.order;
  double pace = by_objective_.pace_seconds;
  double objective = by_objective_.objective;
  std::vector<double> history(history_size, objective);
  for (size_t move = 0; packer_.steps() < most_steps; ++move) {
    GroupOrder order = current;
    if (!Change(order)) return;
    const double tried = pace * kPaces[Below(std::size(kPaces))];
    const double found = Judge(order, tried);
    double& before = history[move % history_size];
    if (found <= objective || found <= before) {
      objective = found;
      pace = tried;
      current = std::move(order);
    }
    before = objective;
  }
}

// Takes one random step to a neighbour; false: there is none.
bool LocalSearch::Change(GroupOrder& order) {
  const size_t size = order.size();
  const bool replicas = table_.problem().replicas && table_.devices() > 1;
  if (replicas && (size < 2 || Below(2) == 0)) return ChangeReplicas(order);
  if (size < 2) return false;
  const size_t from = Below(size);
  const size_t to = Below(size);
  switch (Below(3)) {
    case 0:
      std::swap(order[from], order[to]);
      break;
    case 1: {
      const int group = order[from];
      order.erase(order.begin() + from);
      order.insert(order.begin() + to, group);
      break;
    }
    default:
      std::reverse(order.begin() + std::min(from, to),
                   order.begin() + std::max(from, to) + 1);
      break;
  }
  return true;
}

bool LocalSearch::ChangeReplicas(GroupOrder& order) {
  const size_t a = Below(order.size());
  std::vector<int> from = packer_.group(order[a]).devices;
  const size_t taken = Below(from.size());
  const int device = from[taken];
  const size_t b = Below(order.size());
  if (a == b || Below(4) == 0) {
    // Gives the device a group of its own, next to its old one or anywhere.
    if (from.size() < 2) return true;
    from.erase(from.begin() + taken);
    order[a] = packer_.AddGroup(std::move(from));
    const size_t at = Below(2) == 0 ? a : Below(order.size() + 1);
    order.insert(order.begin() + at, packer_.AddGroup({device}));
    return true;
  }
  std::vector<int> to = packer_.group(order[b]).devices;
  if (Below(3) == 0) {
    std::swap(from[taken], to[Below(to.size())]);
    order[a] = packer_.AddGroup(std::move(from));
    order[b] = packer_.AddGroup(std::move(to));
    return true;
  }
  const bool empties = from.size() == 1;
  if (empties && static_cast<int>(order.size()) <= table_.problem().stages) {
    return true;  // one group less would be too few
  }
  to.push_back(device);
  order[b] = packer_.AddGroup(std::move(to));
  if (empties) {
    order.erase(order.begin() + a);
    return true;
  }
  from.erase(from.begin() + taken);
  order[a] = packer_.AddGroup(std::move(from));
  return true;
}

}  // namespace

Placement SearchPlacement(const CostTable& table, double most_steps) {
  return LocalSearch(table, most_steps).Run();
}

}  // namespace paceline

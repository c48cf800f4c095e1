#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "core/plan/policies/dp_pack.h"
#include "core/plan/policies/policies.h"

namespace paceline {
namespace {

constexpr double kInnerSearchSteps = 2000;
constexpr double kInnerExactSteps = 2e5;
// With more pairs, building the exact search's tables costs more than it gains.
constexpr double kMostInnerPairs = 250;
constexpr int kMostInnerCuts = 25;

using Machine = std::vector<int>;  // its devices, ascending

std::vector<Machine> MachinesOf(const PlanProblem& problem) {
  std::map<int, Machine> by_id;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    by_id[problem.devices[i].machine].push_back(static_cast<int>(i));
  }
  std::vector<Machine> machines;
  for (auto& [id, devices] : by_id) machines.push_back(std::move(devices));
  return machines;
}

LayerCost Joined(const PlanProblem& problem, int first, int last) {
  LayerCost joined;
  double largest = 0;
  joined.name = problem.layers[first].name;
  for (int layer = first; layer < last; ++layer) {
    const LayerCost& each = problem.layers[layer];
    joined.forward_seconds += each.forward_seconds;
    joined.backward_seconds += each.backward_seconds;
    joined.parameter_bytes += each.parameter_bytes;
    joined.borrowed_bytes += each.borrowed_bytes;
    joined.frozen_bytes += each.frozen_bytes;
    joined.kept_bytes += each.kept_bytes;
    largest = std::max(largest, SegmentBytes(problem, each));
  }
  joined.output_bytes = problem.layers[last - 1].output_bytes;
  joined.decoded_bytes = problem.layers[last - 1].decoded_bytes;
  // Inference has the activations of one layer at a time.
  if (!problem.training) joined.kept_bytes = largest - DecodedBytes(joined);
  return joined;
}

// Returns stages of one range inside one machine, with shares by the whole
// problem.
std::vector<Placement> InnerPlans(const CostTable& table, LayerRange layers,
                                  const Machine& machine) {
  const PlanProblem& problem = table.problem();
  const std::vector<int> cuts = GoodCuts(table, layers, kMostInnerCuts);
  PlanProblem part = PartOf(problem, cuts, machine);
  std::vector<int> counts = {0};
  if (problem.stages > 0) {
    counts.resize(std::min(part.layers.size(), machine.size()));
    std::iota(counts.begin(), counts.end(), 1);
  }
  std::vector<Placement> plans;
  for (const int stages : counts) {
    part.stages = stages;
    const CostTable inner(part);
    Placement plan = SearchPlacement(inner, kInnerSearchSteps);
    if (CountPairs(InterchangeableDevices(part), part.replicas) <=
        kMostInnerPairs) {
      const double known = plan.empty() ? HUGE_VAL : ObjectiveOf(inner, plan);
      Solved exact = SolveExactly(inner, known, kInnerExactSteps);
      if (!exact.placement.empty()) plan = std::move(exact.placement);
    }
    if (plan.empty()) continue;
    for (PlacedStage& stage : plan) {
      stage.layers = {cuts[stage.layers.first], cuts[stage.layers.last]};
      for (int& device : stage.devices) device = machine[device];
      stage.shares = SharesFor(problem, stage.layers, stage.devices);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

// Stages from a cut to the last layer.
struct Chain {
  double sum = 0;
  double pace = 0;  // of complete stages: without overlap not the first
  double open = 0;  // without overlap: busy time of the first stage so far
  int devices = 0;
  Placement stages;
};

class MachineChain {
 public:
  MachineChain(const CostTable& table, const std::vector<Machine>& machines)
      : table_(table), machines_(machines), cuts_(OuterCuts()) {}

  // Offers the best chain over machines in `order`, last stages first.
  void Lay(const std::vector<int>& order);

  Placement Best() { return std::move(best_); }

 private:
  // As many cuts as keep all ranges inside all machines affordable.
  std::vector<int> OuterCuts() const {
    constexpr double kMostRanges = 1200;
    const int machines = static_cast<int>(machines_.size());
    const int affordable =
        static_cast<int>(std::sqrt(2 * kMostRanges / machines));
    return GoodCuts(table_, {0, table_.layers()},
                    std::max(affordable, 2 * machines) + 1);
  }

  const std::vector<Placement>& Inner(int machine, size_t from, size_t to);
  bool Before(const Placement& plan, const Chain& behind, Chain& chain) const;
  double Objective(const Chain& chain) const {
    const double pace = std::max(chain.pace, chain.open);
    return table_.weights().sum * chain.sum + table_.weights().pace * pace;
  }
  void Offer(size_t from, size_t used, Chain chain);

  const CostTable& table_;
  const std::vector<Machine>& machines_;
  const std::vector<int> cuts_;
  std::map<std::vector<int>, std::vector<Placement>> inner_;
  // [cuts][machines used in order + 1][stages laid]
  std::vector<std::vector<std::map<size_t, Chain>>> chains_;
  Placement best_;
  double best_objective_ = HUGE_VAL;
};

const std::vector<Placement>& MachineChain::Inner(int machine, size_t from,
                                                  size_t to) {
  const auto [found, is_new] = inner_.try_emplace(
      {machine, static_cast<int>(from), static_cast<int>(to)});
  if (is_new) {
    found->second =
        InnerPlans(table_, {cuts_[from], cuts_[to]}, machines_[machine]);
  }
  return found->second;
}

// Lays `plan` before `behind`; false: some stage does not fit.
bool MachineChain::Before(const Placement& plan, const Chain& behind,
                          Chain& chain) const {
  const bool overlap = table_.problem().overlap;
  chain = behind;
  std::vector<double> scratch;
  for (size_t s = plan.size(); s-- > 0;) {
    const PlacedStage& stage = plan[s];
    const int replicas = static_cast<int>(stage.devices.size());
    const double bytes =
        table_.StageBytes(stage.layers, replicas, chain.devices);
    for (const int device : stage.devices) {
      const double bound = table_.problem().devices[device].memory_bytes;
      if (bound > 0 && bytes > bound) return false;
    }
    const double seconds = table_.StageSeconds(
        stage.layers, stage.devices, table_.SyncOf(stage.devices), scratch);
    TransferCost after;
    if (!chain.stages.empty()) {
      after = table_.TransferOf(stage.layers.last, stage, chain.stages.front());
    }
    chain.sum += seconds + after.delay;
    chain.pace = overlap ? std::max({chain.pace, seconds, after.occupied})
                         : std::max(chain.pace, chain.open + after.delay);
    chain.open = overlap ? 0 : seconds + after.delay;
    chain.devices += replicas;
    chain.stages.insert(chain.stages.begin(), stage);
  }
  return true;
}

void MachineChain::Offer(size_t from, size_t used, Chain chain) {
  const size_t exactly = table_.problem().stages;
  const size_t stages = exactly > 0 ? chain.stages.size() : 0;
  if (stages > exactly) return;
  const double objective = Objective(chain);
  if (from == 0) {
    if (stages != exactly || objective >= best_objective_) return;
    best_objective_ = objective;
    best_ = std::move(chain.stages);
    return;
  }
  auto [known, is_new] = chains_[from][used].try_emplace(stages, chain);
  if (!is_new && objective < Objective(known->second)) {
    known->second = std::move(chain);
  }
}

void MachineChain::Lay(const std::vector<int>& order) {
  const size_t machines = order.size();
  chains_.assign(cuts_.size(),
                 std::vector<std::map<size_t, Chain>>(machines + 1));
  chains_.back()[0][0] = {};
  Chain chain;
  for (size_t to = cuts_.size() - 1; to > 0; --to) {
    for (size_t used = 0; used < machines; ++used) {
      for (const auto& [stages, behind] : chains_[to][used]) {
        // Machine `next` alone holds the next range and those before it are
        // left out, or all of them hold it together.
        for (size_t next = used; next < machines; ++next) {
          for (size_t from = 0; from < to; ++from) {
            for (const Placement& plan : Inner(order[next], from, to)) {
              if (Before(plan, behind, chain)) Offer(from, next + 1, chain);
            }
            if (!table_.problem().replicas) continue;
            PlacedStage together;
            together.layers = {cuts_[from], cuts_[to]};
            for (size_t last = used; last <= next; ++last) {
              const Machine& machine = machines_[order[last]];
              together.devices.insert(together.devices.end(), machine.begin(),
                                      machine.end());
            }
            std::sort(together.devices.begin(), together.devices.end());
            together.shares =
                SharesFor(table_.problem(), together.layers, together.devices);
            if (Before({together}, behind, chain)) {
              Offer(from, next + 1, chain);
            }
          }
        }
      }
    }
  }
}

std::vector<std::vector<int>> MachineOrders(
    const CostTable& table, const std::vector<Machine>& machines) {
  constexpr size_t kMostPermuted = 4;
  std::vector<int> order(machines.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> orders;
  if (machines.size() <= kMostPermuted) {
    do {
      orders.push_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
    return orders;
  }
  const auto rate = [&](int machine) {
    double rates = 0;
    for (const int device : machines[machine]) {
      rates += 1 / table.ComputeOnly(0, table.layers(), device);
    }
    return rates;
  };
  std::vector<int> by_speed = order;
  std::stable_sort(by_speed.begin(), by_speed.end(),
                   [&](int a, int b) { return rate(a) > rate(b); });
  for (const std::vector<int>& each : {order, by_speed}) {
    orders.emplace_back(each.rbegin(), each.rend());
    orders.push_back(each);
  }
  return orders;
}

}  // namespace

PlanProblem PartOf(const PlanProblem& problem, const std::vector<int>& cuts,
                   const std::vector<int>& devices) {
  PlanProblem part = problem;
  part.stages = 0;
  part.input_bytes = InputBytes(problem, cuts.front());
  part.layers.clear();
  part.devices.clear();
  part.links.clear();
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    part.layers.push_back(Joined(problem, cuts[i], cuts[i + 1]));
  }
  for (const int device : devices) {
    part.devices.push_back(problem.devices[device]);
    std::vector<double>& seconds = part.devices.back().layer_seconds;
    if (!seconds.empty()) {
      seconds.clear();
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        seconds.push_back(
            LayerSeconds(problem, {cuts[i], cuts[i + 1]}, device));
      }
    }
    std::vector<LinkCost> row;
    for (const int other : devices) row.push_back(problem.links[device][other]);
    part.links.push_back(std::move(row));
  }
  return part;
}

std::vector<int> GoodCuts(const CostTable& table, LayerRange layers, int most) {
  std::vector<int> cuts = {layers.first};
  const int count = layers.last - layers.first;
  if (count <= most - 1) {
    for (int cut = layers.first + 1; cut <= layers.last; ++cut) {
      cuts.push_back(cut);
    }
    return cuts;
  }
  // Work and layers both count, so that neither piles up in one part.
  const double whole = table.ComputeOnly(layers.first, layers.last, 0);
  const auto reached = [&](int cut) {
    const double even = static_cast<double>(cut - layers.first) / count;
    const double work =
        whole > 0 ? table.ComputeOnly(layers.first, cut, 0) / whole : even;
    return (work + even) / 2;
  };
  const int parts = most - 1;
  int cut = layers.first + 1;
  for (int part = 1; part < parts; ++part) {
    // Take the cut of the fewest bytes among those nearest to part / parts.
    int best = -1;
    for (; cut < layers.last && reached(cut) * parts < part + 0.5; ++cut) {
      if (reached(cut) * parts < part - 0.5) continue;
      if (best < 0 || table.BytesBefore(cut) < table.BytesBefore(best)) {
        best = cut;
      }
    }
    if (best >= 0) cuts.push_back(best);
  }
  cuts.push_back(layers.last);
  return cuts;
}

absl::StatusOr<Solved> SolveTwoLevels(const PlanProblem& problem) {
  const std::vector<Machine> machines = MachinesOf(problem);
  if (machines.size() == 1) return SolveDp(problem);
  const CostTable table(problem);
  MachineChain chain(table, machines);
  for (const std::vector<int>& order : MachineOrders(table, machines)) {
    chain.Lay(order);
  }
  Solved answer;
  answer.placement = chain.Best();
  if (answer.placement.empty()) return SolveDp(problem);
  PolishCuts(table, answer.placement);
  return answer;
}

}  // namespace paceline

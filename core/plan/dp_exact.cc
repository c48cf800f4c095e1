#include "core/plan/dp_exact.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/plan/dp_classes.h"
#include "core/plan/dp_edges.h"
#include "core/plan/dp_rest.h"

namespace paceline {
namespace {

// Of the tables; beyond, the exact search is not affordable anyway.
constexpr double kMostEdges = 4e6;
constexpr double kMostPairs = 4e6;
constexpr double kMostRests = 4e6;
constexpr double kMostLabels = 2e6;

// Stages laid from `edge` to the last layer.
struct Label {
  double sum = 0;
  double pace = 0;  // of what is complete: without overlap not the first stage
  double open = 0;  // without overlap: what the first stage is busy for so far
  const DpEdge* edge = nullptr;
  int last = 0;  // of the edge
  int set = 0;   // of the edge
  int used = 0;
  int stages = 0;
  int behind = -1;  // the label it was laid before
  int next = -1;    // in its state
  bool dropped = false;
};

class Search {
 public:
  Search(const DpTable& table, const DpSets& sets, const DpEdges& edges,
         const DpRest& rest, double limit, double most_steps)
      : table_(table),
        sets_(sets),
        edges_(edges),
        rest_(rest),
        limit_(limit),
        steps_(most_steps),
        counted_(table.problem().stages > 0),
        overlap_(table.problem().overlap),
        at_(table.layers() + 1),
        states_(table.layers() + 1) {}

  // False: gave up.
  bool Run() {
    LayLast();
    for (int cut = table_.layers() - 1; cut > 0; --cut) {
      states_[cut] = {};
      // Laying adds labels before smaller cuts only.
      for (const int label : at_[cut]) {
        if (!labels_[label].dropped) LayBefore(label, cut);
        if (steps_ < 0 || labels_.size() > kMostLabels) return false;
      }
    }
    return true;
  }

  Placement Best() const;

 private:
  void LayLast() {
    const int layers = table_.layers();
    for (const int set : sets_.StageSetsIn(sets_.full())) {
      for (const DpEdge& edge : edges_.At(layers, set)) {
        if (!edge.FitsBefore(0)) continue;
        Label label;
        label.sum = edge.seconds;
        label.pace = overlap_ ? edge.seconds : 0;
        label.open = edge.seconds;
        label.edge = &edge;
        label.last = layers;
        label.set = set;
        label.used = set;
        label.stages = counted_;
        Offer(label);
      }
    }
  }

  void LayBefore(int behind_index, int cut);

  // What can become of `label` at best.
  double Promise(const Label& label) const {
    const ObjectiveWeights& weights = table_.weights();
    const DpEdge& edge = *label.edge;
    double pace = std::max(label.pace, edge.before.occupied);
    if (!overlap_) pace = std::max(label.pace, label.open + edge.before.delay);
    if (edge.first == 0) {
      if (label.stages != table_.problem().stages) return HUGE_VAL;
      return weights.sum * label.sum + weights.pace * pace;
    }
    double best = HUGE_VAL;
    const double sum = label.sum + edge.before.delay / 2;
    const int stages = counted_ ? table_.problem().stages - label.stages : 0;
    for (const RestCost& rest : rest_.At(edge.first, label.used, stages)) {
      best = std::min(best, weights.sum * (sum + rest.sum) +
                                weights.pace * std::max(pace, rest.pace));
    }
    return best;
  }

  bool NoWorse(const Label& a, const Label& b) const {
    const ObjectiveWeights& weights = table_.weights();
    return (weights.sum == 0 || a.sum <= b.sum) &&
           (weights.pace == 0 ||
            (a.pace <= b.pace && (overlap_ || a.open <= b.open)));
  }

  uint64_t StateOf(const Label& label) const {
    uint64_t state = static_cast<uint64_t>(label.used) * sets_.size() +
                     static_cast<uint64_t>(label.set);
    state = state * (table_.devices() + 1) + label.stages;
    // The stage's shares decide what crosses to the one before it.
    const bool by_range =
        !edges_.shares_are_fixed() && sets_.set(label.set).size > 1;
    return state * (table_.layers() + 1) + (by_range ? label.last : 0);
  }

  // Keeps `label` unless it cannot become the best.
  void Offer(const Label& label) {
    const double promise = Promise(label);
    if (!(promise < limit_)) return;
    if (label.edge->first == 0) {
      limit_ = promise;
      best_ = label;
      return;
    }
    const int index = static_cast<int>(labels_.size());
    int& head = states_[label.edge->first]
                    .try_emplace(StateOf(label), -1)
                    .first->second;
    int* link = &head;
    while (*link >= 0) {
      --steps_;
      Label& other = labels_[*link];
      if (NoWorse(other, label)) return;
      if (NoWorse(label, other)) {
        other.dropped = true;
        *link = other.next;
      } else {
        link = &other.next;
      }
    }
    labels_.push_back(label);
    labels_.back().next = head;
    head = index;
    at_[label.edge->first].push_back(index);
  }

  PlacedStage StageOf(const Label& label, std::vector<int>& taken) const;

  const DpTable& table_;
  const DpSets& sets_;
  const DpEdges& edges_;
  const DpRest& rest_;
  double limit_;
  double steps_;
  const bool counted_;
  const bool overlap_;
  std::vector<Label> labels_;
  std::vector<std::vector<int>> at_;  // [layers + 1]: labels by first layer
  // [layers + 1]: the newest label of each state
  std::vector<absl::flat_hash_map<uint64_t, int>> states_;
  Label best_;
};

void Search::LayBefore(int behind_index, int cut) {
  // By value: laying may move the labels.
  const Label behind = labels_[behind_index];
  if (!(Promise(behind) < limit_)) return;
  const ClassSet& right = sets_.set(behind.set);
  const double* right_shares = edges_.Shares(*behind.edge);
  const int later = sets_.set(behind.used).size;
  const int free = sets_.full() - behind.used;
  Label label;
  label.last = cut;
  label.stages = behind.stages + counted_;
  label.behind = behind_index;
  if (label.stages > table_.problem().stages) return;
  for (const int set : sets_.StageSetsIn(free)) {
    const ClassSet& left = sets_.set(set);
    label.set = set;
    label.used = behind.used + set;
    for (const DpEdge& edge : edges_.At(cut, set)) {
      --steps_;
      if (!edge.FitsBefore(later)) continue;
      label.edge = &edge;
      TransferCost transfer = {
          std::max(edge.after.occupied, behind.edge->before.occupied),
          std::max(edge.after.delay, behind.edge->before.delay)};
      // First by what is known without looking at the pair.
      for (const bool exactly : {false, true}) {
        if (exactly) {
          transfer = TransferOf(table_, sets_, cut, left, edges_.Shares(edge),
                                right, right_shares);
        }
        label.sum = behind.sum + edge.seconds + transfer.delay;
        label.open = edge.seconds + transfer.delay;
        label.pace =
            overlap_ ? std::max({behind.pace, edge.seconds, transfer.occupied})
                     : std::max(behind.pace, behind.open + transfer.delay);
        if (exactly) {
          Offer(label);
        } else if (!(Promise(label) < limit_)) {
          break;
        }
      }
    }
  }
}

PlacedStage Search::StageOf(const Label& label, std::vector<int>& taken) const {
  PlacedStage stage;
  stage.layers = {label.edge->first, label.last};
  for (const auto& [of_class, count] : sets_.set(label.set).counts) {
    const std::vector<int>& members = sets_.classes()[of_class];
    for (int i = 0; i < count; ++i) {
      stage.devices.push_back(members[taken[of_class]++]);
    }
  }
  std::sort(stage.devices.begin(), stage.devices.end());
  stage.shares = SharesFor(table_.problem(), stage.layers, stage.devices);
  return stage;
}

Placement Search::Best() const {
  Placement placement;
  if (best_.edge == nullptr) return placement;
  std::vector<int> taken(sets_.classes().size(), 0);
  for (const Label* label = &best_;; label = &labels_[label->behind]) {
    placement.push_back(StageOf(*label, taken));
    if (label->behind < 0) break;
  }
  return placement;
}

// Of each layer: on the fastest device, or on all of them at once.
std::vector<double> LeastSums(const DpTable& table) {
  std::vector<double> sums = {0};
  for (int layer = 0; layer < table.layers(); ++layer) {
    double least = HUGE_VAL;
    double rate = 0;
    for (int device = 0; device < table.devices(); ++device) {
      const double seconds = table.ComputeOnly(layer, layer + 1, device);
      least = std::min(least, seconds);
      rate += 1 / seconds;
    }
    sums.push_back(sums.back() + (table.problem().replicas ? 1 / rate : least));
  }
  return sums;
}

bool IsAffordable(const DpTable& table,
                  const std::vector<std::vector<int>>& classes) {
  const double layers = table.layers();
  const double sets = DpSets::CountSets(classes);
  const bool replicas = table.problem().replicas;
  const double stage_sets =
      replicas ? sets : static_cast<double>(classes.size());
  return layers * layers / 2 * stage_sets <= kMostEdges &&
         DpSets::CountPairs(classes, replicas) <= kMostPairs &&
         layers * sets * (table.problem().stages + 1) <= kMostRests;
}

}  // namespace

DpExactAnswer SolveExactly(const DpTable& table,
                           const DpExactOptions& options) {
  DpExactAnswer answer;
  std::vector<std::vector<int>> classes =
      InterchangeableDevices(table.problem());
  if (!IsAffordable(table, classes)) return answer;
  // What rounds differently here and in CostOf is not an improvement.
  constexpr double kRounding = 1e-12;
  const DpLimit limit = {options.incumbent_seconds * (1 - kRounding),
                         LeastSums(table)};
  const DpSets sets(table, std::move(classes));
  const DpEdges edges(table, sets, limit);
  double steps = options.most_steps;
  const DpRest rest(table, sets, edges, limit, steps);
  if (steps < 0) return answer;
  Search search(table, sets, edges, rest, limit.seconds, steps);
  answer.finished = search.Run();
  answer.placement = search.Best();
  return answer;
}

}  // namespace paceline

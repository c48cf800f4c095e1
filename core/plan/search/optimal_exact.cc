#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/plan/search/policies.h"

namespace paceline {
namespace {

// Beyond these table sizes the exact search would take too long anyway.
constexpr double kMostEdges = 4e6;
constexpr double kMostPairs = 4e6;
constexpr double kMostRests = 4e6;
constexpr double kMostLabels = 2e6;
// More pairs of costs give a better bound, but every label compares with each.
constexpr size_t kMostRestCosts = 8;
// Numbers this close differ by rounding only.
constexpr double kRounding = 1e-12;

using Classes = std::vector<std::vector<int>>;  // [classes][members]

// --- sets of devices --------------------------------------------------------

bool SameDevice(const Device& a, const Device& b) {
  return a.speed == b.speed && a.layer_seconds == b.layer_seconds &&
         a.memory_bytes == b.memory_bytes &&
         a.frame_seconds == b.frame_seconds &&
         a.frame_seconds_per_byte == b.frame_seconds_per_byte;
}

bool SwapKeepsLinks(const PlanProblem& problem, int a, int b) {
  const auto& links = problem.links;
  if (!(links[a][b] == links[b][a])) return false;
  for (int other = 0; other < static_cast<int>(links.size()); ++other) {
    if (other == a || other == b) continue;
    if (!(links[a][other] == links[b][other]) ||
        !(links[other][a] == links[other][b])) {
      return false;
    }
  }
  return true;
}

// Counts all sets, the empty one too.
double CountSets(const Classes& classes) {
  double sets = 1;
  for (const std::vector<int>& members : classes) {
    sets *= static_cast<double>(members.size() + 1);
  }
  return sets;
}

struct ClassCount {
  int of_class = 0;
  int count = 0;
};

// A set, as the number of its devices of each class.  `code` is the set in
// mixed radix: codes of disjoint sets add up to the code of their union.
struct ClassSet {
  int code = 0;
  int size = 0;
  std::vector<ClassCount> counts;  // those above 0
  std::vector<int> devices;        // the first `count` members of each
  SyncCost sync;
};

// All sets.  Immutable after construction.
class Sets {
 public:
  // O(sets x devices^2 + pairs).
  Sets(const CostTable& table, Classes classes) : classes_(std::move(classes)) {
    for (const std::vector<int>& a : classes_) {
      std::vector<WireCost> row;
      for (const std::vector<int>& b : classes_) {
        // Within a class: the wire between two of its members, if it has two.
        row.push_back(table.Wire(a[0], &a == &b ? b.back() : b[0]));
      }
      wires_.push_back(std::move(row));
    }
    AddSetsOf(table);
    AddPairs(table.problem().replicas);
  }

  const ClassSet& set(int code) const { return sets_[code]; }
  int size() const { return static_cast<int>(sets_.size()); }
  int full() const { return size() - 1; }
  const Classes& classes() const { return classes_; }

  // Returns the codes of the sets inside `free` that can hold a stage,
  // ascending.
  const std::vector<int>& StageSetsIn(int free) const { return inside_[free]; }

  // Returns the wire from a device of class a to another device of class b.
  const WireCost& Wire(int a, int b) const { return wires_[a][b]; }

 private:
  void AddSetsOf(const CostTable& table) {
    const int sets = static_cast<int>(CountSets(classes_));
    sets_.resize(sets);
    for (int code = 0; code < sets; ++code) {
      ClassSet& set = sets_[code];
      set.code = code;
      int rest = code;
      for (size_t c = 0; c < classes_.size(); ++c) {
        const int radix = static_cast<int>(classes_[c].size()) + 1;
        const int count = rest % radix;
        rest /= radix;
        if (count == 0) continue;
        set.size += count;
        set.counts.push_back({static_cast<int>(c), count});
        set.devices.insert(set.devices.end(), classes_[c].begin(),
                           classes_[c].begin() + count);
      }
      set.sync = table.SyncOf(set.devices);
    }
  }

  void AddPairs(bool replicas) {
    inside_.resize(sets_.size());
    for (int free = 0; free < size(); ++free) {
      std::vector<int> codes = {0};
      int radix = 1;
      size_t next = 0;  // among the counts of `free`
      const std::vector<ClassCount>& counts = sets_[free].counts;
      for (size_t c = 0; c < classes_.size(); ++c) {
        if (next < counts.size() &&
            counts[next].of_class == static_cast<int>(c)) {
          const size_t before = codes.size();
          const int most = replicas ? counts[next].count : 1;
          for (int count = 1; count <= most; ++count) {
            // Without replicas a set has one device, so only the empty set is
            // extended.
            const size_t extended = replicas ? before : 1;
            for (size_t i = 0; i < extended; ++i) {
              codes.push_back(codes[i] + count * radix);
            }
          }
          ++next;
        }
        radix *= static_cast<int>(classes_[c].size()) + 1;
      }
      codes.erase(codes.begin());
      std::sort(codes.begin(), codes.end());
      inside_[free] = std::move(codes);
    }
  }

  Classes classes_;
  std::vector<ClassSet> sets_;                // [code]
  std::vector<std::vector<int>> inside_;      // [code]
  std::vector<std::vector<WireCost>> wires_;  // [classes][classes]
};

// --- stages -----------------------------------------------------------------

// A stage of layers [first, last) on a set; its list has the same `last`.
struct Edge {
  int first = 0;
  int min_later = 0;   // fewest devices in later stages with which it fits
  int max_later = 0;   // most of them
  int shares = 0;      // index of its first share
  double seconds = 0;  // t
  // The least costs of its boundaries, over all sets on the other side.
  TransferCost before;
  TransferCost after;

  bool FitsBefore(int later) const {
    return min_later <= later && later <= max_later;
  }
};

// A pair of least costs: no placement of the remaining layers is below it in
// both.
struct RestCost {
  double sum = 0;
  double pace = 0;

  friend auto operator<=>(const RestCost&, const RestCost&) = default;
};

// Returns the least cost of an edge with its share of the transfers: each side
// of a boundary counts one half.
RestCost LeastOf(const PlanProblem& problem, const Edge& edge) {
  const double sum = edge.seconds + (edge.before.delay + edge.after.delay) / 2;
  if (!problem.overlap) {
    return {sum, edge.seconds + edge.before.delay + edge.after.delay};
  }
  return {sum,
          std::max({edge.seconds, edge.before.occupied, edge.after.occupied})};
}

// The search keeps only placements cheaper than `seconds`; least_sum bounds the
// layers that are still to be laid.
struct Limit {
  double seconds = 0;
  std::vector<double> least_sum;  // [layers + 1]: of layers [0, l)
};

// The cheapest wire from a device outside a set to each class of it, and from
// each class to such a device.
struct Nearest {
  std::vector<WireCost> before;  // [counts of the set]
  std::vector<WireCost> after;
};

void TakeLess(const WireCost& wire, WireCost& least) {
  least.seconds_per_byte =
      std::min(least.seconds_per_byte, wire.seconds_per_byte);
  least.latency_seconds = std::min(least.latency_seconds, wire.latency_seconds);
}

Nearest NearestOf(const Sets& sets, const ClassSet& set) {
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

// Returns the least transfer of a set: each port is busy for its share of the
// bytes at its cheapest wire.
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

// Sets the numbers of devices in later stages with which the stage fits; false:
// there is none.  A stage's memory only grows or only falls with this number,
// so the numbers have no gaps.
bool PutLater(const CostTable& table, LayerRange layers, int replicas,
              double bound, Edge& edge) {
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

// Every range on every set of devices, with the costs that do not depend on the
// neighbours.  Immutable after construction.
class Edges {
 public:
  // Keeps the edges that fit and with which a placement can stay below the
  // limit.
  // O(layers^2 x sets x classes).
  Edges(const CostTable& table, const Sets& sets, const Limit& limit);

  // Returns the edges that end at `last` on `set`, the shortest first.
  std::span<const Edge> At(int last, int set) const {
    const size_t at = static_cast<size_t>(last) * sets_ + set;
    return {edges_.data() + begins_[at], edges_.data() + begins_[at + 1]};
  }
  // Returns the share of one device of each class: [counts of the set].
  const double* Shares(const Edge& edge) const {
    return shares_.data() + edge.shares;
  }
  // True: a set has the same shares on every range.
  bool shares_are_fixed() const { return shares_are_fixed_; }

 private:
  int sets_ = 0;
  bool shares_are_fixed_ = true;
  std::vector<Edge> edges_;
  std::vector<int> begins_;  // [layers + 1][sets], and the end
  std::vector<double> shares_;
};

Edges::Edges(const CostTable& table, const Sets& sets, const Limit& limit)
    : sets_(sets.size()) {
  const int layers = table.layers();
  const ObjectiveWeights& weights = table.weights();
  std::vector<Nearest> nearest;
  std::vector<double> bounds;
  for (int code = 0; code < sets_; ++code) {
    nearest.push_back(NearestOf(sets, sets.set(code)));
    bounds.push_back(table.MemoryOf(sets.set(code).devices));
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
        Edge edge;
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
        const double others = limit.least_sum[first] + limit.least_sum[layers] -
                              limit.least_sum[last];
        const double sum =
            edge.seconds + edge.before.delay + edge.after.delay + others;
        if (weights.sum * sum +
                weights.pace * LeastOf(table.problem(), edge).pace >=
            limit.seconds) {
          continue;
        }
        edge.shares = static_cast<int>(shares_.size());
        shares_.insert(shares_.end(), shares.begin(), shares.end());
        edges_.push_back(edge);
      }
    }
  }
  begins_.back() = static_cast<int>(edges_.size());
}

// Returns the transfer between stages on `left` and `right`, cut before layer
// `cut`.  O(classes^2).
TransferCost TransferOf(const CostTable& table, const Sets& sets, int cut,
                        const ClassSet& left, const double* left_shares,
                        const ClassSet& right, const double* right_shares) {
  const ClassSet* const set_of[] = {&left, &right};
  const double* const shares_of[] = {left_shares, right_shares};
  const TransferRate rate = RateBetween(
      left.counts.size(), right.counts.size(),
      [&](int side, size_t i) { return shares_of[side][i]; },
      [&](int side, size_t i) { return set_of[side]->counts[i].count; },
      [&](size_t u, size_t v) -> const WireCost& {
        return sets.Wire(left.counts[u].of_class, right.counts[v].of_class);
      });
  return rate.Of(table.BytesBefore(cut));
}

// --- the layers before a cut -------------------------------------------------

// Keeps the pairs none of which is better in both; if too many remain, joins
// neighbours to a pair below both.
void Reduce(std::vector<RestCost>& costs) {
  std::sort(costs.begin(), costs.end());
  size_t kept = 0;
  for (const RestCost& cost : costs) {
    if (kept > 0 && cost.pace >= costs[kept - 1].pace) continue;
    costs[kept++] = cost;
  }
  costs.resize(kept);
  if (kept <= kMostRestCosts) return;
  std::vector<RestCost> joined;
  for (size_t group = 0; group < kMostRestCosts; ++group) {
    // Ascending sums, descending paces.
    joined.push_back({costs[group * kept / kMostRestCosts].sum,
                      costs[(group + 1) * kept / kMostRestCosts - 1].pace});
  }
  costs = std::move(joined);
}

// Lower bounds of the cost of the stages before a cut, for every cut and set of
// devices used behind it.  They come from the search's recursion, with each
// transfer replaced by the cheapest one that either end allows.  Immutable
// after construction.
class Rest {
 public:
  // Subtracts its own steps from `steps`; below 0 it stopped in the middle and
  // must not be used.
  Rest(const CostTable& table, const Sets& sets, const Edges& edges,
       const Limit& limit, double& steps)
      : sets_(sets.size()), stage_counts_(table.problem().stages + 1) {
    const int layers = table.layers();
    const bool counted = table.problem().stages > 0;
    const ObjectiveWeights& weights = table.weights();
    begins_.assign(layers * sets_ * stage_counts_, 0);
    ends_ = begins_;
    costs_.push_back({0, 0});
    for (int used = 0; used < static_cast<int>(sets_); ++used) {
      ends_[Index(0, used, 0)] = 1;
    }
    std::vector<RestCost> found;
    for (int cut = 1; cut < layers; ++cut) {
      const double laid = limit.least_sum[layers] - limit.least_sum[cut];
      for (int used = 1; used < static_cast<int>(sets_); ++used) {
        const std::vector<int>& inside = sets.StageSetsIn(sets.full() - used);
        for (size_t stages = counted ? 1 : 0; stages < stage_counts_;
             ++stages) {
          found.clear();
          for (const int code : inside) {
            for (const Edge& edge : edges.At(cut, code)) {
              --steps;
              if (!edge.FitsBefore(sets.set(used).size)) continue;
              const RestCost least = LeastOf(table.problem(), edge);
              for (const RestCost& rest :
                   At(edge.first, used + code, stages - counted)) {
                const RestCost cost = {rest.sum + least.sum,
                                       std::max(rest.pace, least.pace)};
                if (weights.sum * (cost.sum + laid) +
                        weights.pace * cost.pace >=
                    limit.seconds) {
                  continue;
                }
                found.push_back(cost);
              }
            }
          }
          steps -= static_cast<double>(found.size());
          if (steps < 0) return;
          Reduce(found);
          begins_[Index(cut, used, stages)] = costs_.size();
          costs_.insert(costs_.end(), found.begin(), found.end());
          ends_[Index(cut, used, stages)] = costs_.size();
        }
      }
    }
  }

  // Returns the bounds of layers [0, cut) without the devices in `used`, in
  // `stages` stages (0 when any number is allowed).  Empty: impossible, or not
  // below the limit.
  std::span<const RestCost> At(int cut, int used, int stages) const {
    const size_t at = Index(cut, used, stages);
    return {costs_.data() + begins_[at], costs_.data() + ends_[at]};
  }

 private:
  size_t Index(int cut, int used, int stages) const {
    return (static_cast<size_t>(cut) * sets_ + used) * stage_counts_ + stages;
  }

  size_t sets_;
  size_t stage_counts_;
  std::vector<RestCost> costs_;
  std::vector<size_t> begins_;  // [layers][sets][stage counts]
  std::vector<size_t> ends_;
};

// --- the search -------------------------------------------------------------

// Stages laid from `edge` to the last layer.
struct Label {
  double sum = 0;
  double pace = 0;  // of complete stages: without overlap not the first
  double open = 0;  // without overlap: busy time of the first stage so far
  const Edge* edge = nullptr;
  int last = 0;  // of the edge
  int set = 0;   // of the edge
  int used = 0;
  int stages = 0;
  int behind = -1;  // the label of the stages behind
  int next = -1;    // the next label of the same state
  bool dropped = false;
};

class Search {
 public:
  Search(const CostTable& table, const Sets& sets, const Edges& edges,
         const Rest& rest, double limit, double most_steps)
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

  // False: it gave up.
  bool Run() {
    LayLast();
    for (int cut = table_.layers() - 1; cut > 0; --cut) {
      states_[cut] = {};
      // LayBefore adds labels only at smaller cuts.
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
      for (const Edge& edge : edges_.At(layers, set)) {
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

  // Returns a lower bound of the cost of all placements that extend `label`.
  double Promise(const Label& label) const {
    const ObjectiveWeights& weights = table_.weights();
    const Edge& edge = *label.edge;
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
    // The transfer to the stage before depends on this stage's shares.
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

  const CostTable& table_;
  const Sets& sets_;
  const Edges& edges_;
  const Rest& rest_;
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
  // A copy: adding labels may move the vector.
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
    for (const Edge& edge : edges_.At(cut, set)) {
      --steps_;
      if (!edge.FitsBefore(later)) continue;
      label.edge = &edge;
      TransferCost transfer = {
          std::max(edge.after.occupied, behind.edge->before.occupied),
          std::max(edge.after.delay, behind.edge->before.delay)};
      // Check first with the bound, which is cheaper than the exact transfer.
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
  stage.shares = SharesFor(table_, stage.layers, stage.devices);
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

// Returns the number of pairs (set of devices, a set inside it that can hold a
// stage), which is the size of the search's tables.
double CountPairs(const Classes& classes, bool replicas) {
  if (!replicas) {
    return CountSets(classes) * static_cast<double>(classes.size());
  }
  double pairs = 1;
  for (const std::vector<int>& members : classes) {
    const double n = static_cast<double>(members.size());
    pairs *= (n + 1) * (n + 2) / 2;
  }
  return pairs;
}

bool IsAffordable(const CostTable& table, const Classes& classes) {
  const double layers = table.layers();
  const double sets = CountSets(classes);
  const bool replicas = table.problem().replicas;
  const double stage_sets =
      replicas ? sets : static_cast<double>(classes.size());
  return layers * layers / 2 * stage_sets <= kMostEdges &&
         CountPairs(classes, replicas) <= kMostPairs &&
         layers * sets * (table.problem().stages + 1) <= kMostRests;
}

}  // namespace

std::vector<std::vector<int>> InterchangeableDevices(
    const PlanProblem& problem) {
  std::vector<std::vector<int>> classes;
  for (int device = 0; device < static_cast<int>(problem.devices.size());
       ++device) {
    // Swaps that change nothing are closed under composition, so comparing with
    // one member suffices.
    const auto home = std::find_if(
        classes.begin(), classes.end(), [&](const std::vector<int>& members) {
          return SameDevice(problem.devices[members[0]],
                            problem.devices[device]) &&
                 SwapKeepsLinks(problem, members[0], device);
        });
    if (home == classes.end()) {
      classes.push_back({device});
    } else {
      home->push_back(device);
    }
  }
  return classes;
}

Solved SolveExactly(const CostTable& table, double incumbent_seconds,
                    double most_steps) {
  Solved answer;
  Classes classes = InterchangeableDevices(table.problem());
  if (!IsAffordable(table, classes)) return answer;
  const LeastSeconds least = LeastSecondsOf(table);
  // A placement whose cost differs from CostOf only by rounding is no
  // improvement.
  const Limit limit = {incumbent_seconds * (1 - kRounding),
                       table.problem().replicas ? least.together : least.alone};
  const Sets sets(table, std::move(classes));
  const Edges edges(table, sets, limit);
  const Rest rest(table, sets, edges, limit, most_steps);
  if (most_steps < 0) return answer;
  Search search(table, sets, edges, rest, limit.seconds, most_steps);
  answer.exact = search.Run();
  answer.placement = search.Best();
  return answer;
}

}  // namespace paceline

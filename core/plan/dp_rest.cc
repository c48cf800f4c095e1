#include "core/plan/dp_rest.h"

#include <algorithm>

namespace paceline {
namespace {

// More pairs bound better, but each costs at every label.
constexpr size_t kMostPairs = 8;

// What an edge costs at least, its share of the transfers included: of a
// boundary each side counts one half.
RestCost LeastOf(const PlanProblem& problem, const DpEdge& edge) {
  const double sum = edge.seconds + (edge.before.delay + edge.after.delay) / 2;
  if (!problem.overlap) {
    return {sum, edge.seconds + edge.before.delay + edge.after.delay};
  }
  return {sum,
          std::max({edge.seconds, edge.before.occupied, edge.after.occupied})};
}

// Leaves the pairs of which none is better in both; of too many, neighbours
// are joined to a pair below both.
void Reduce(std::vector<RestCost>& costs) {
  std::sort(costs.begin(), costs.end(),
            [](const RestCost& a, const RestCost& b) {
              return a.sum != b.sum ? a.sum < b.sum : a.pace < b.pace;
            });
  size_t kept = 0;
  for (const RestCost& cost : costs) {
    if (kept > 0 && cost.pace >= costs[kept - 1].pace) continue;
    costs[kept++] = cost;
  }
  costs.resize(kept);
  if (kept <= kMostPairs) return;
  std::vector<RestCost> joined;
  for (size_t group = 0; group < kMostPairs; ++group) {
    // Ascending sums, descending paces.
    joined.push_back({costs[group * kept / kMostPairs].sum,
                      costs[(group + 1) * kept / kMostPairs - 1].pace});
  }
  costs = std::move(joined);
}

}  // namespace

DpRest::DpRest(const DpTable& table, const DpSets& sets, const DpEdges& edges,
               const DpLimit& limit, double& steps)
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
      for (size_t stages = counted ? 1 : 0; stages < stage_counts_; ++stages) {
        found.clear();
        for (const int code : inside) {
          for (const DpEdge& edge : edges.At(cut, code)) {
            --steps;
            if (!edge.FitsBefore(sets.set(used).size)) continue;
            const RestCost least = LeastOf(table.problem(), edge);
            for (const RestCost& rest :
                 At(edge.first, used + code, stages - counted)) {
              const RestCost cost = {rest.sum + least.sum,
                                     std::max(rest.pace, least.pace)};
              if (weights.sum * (cost.sum + laid) + weights.pace * cost.pace >=
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

}  // namespace paceline

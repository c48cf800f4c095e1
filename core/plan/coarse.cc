#include "core/plan/coarse.h"

#include <algorithm>
#include <cstddef>

namespace paceline {
namespace {

LayerCost Joined(const PlanProblem& problem, int first, int last) {
  LayerCost joined;
  joined.name = problem.layers[first].name;
  for (int layer = first; layer < last; ++layer) {
    const LayerCost& each = problem.layers[layer];
    joined.forward_seconds += each.forward_seconds;
    joined.backward_seconds += each.backward_seconds;
    joined.parameter_bytes += each.parameter_bytes;
    joined.borrowed_bytes += each.borrowed_bytes;
    joined.kept_bytes += each.kept_bytes;
  }
  joined.output_bytes = problem.layers[last - 1].output_bytes;
  return joined;
}

}  // namespace

std::vector<int> GoodCuts(const DpTable& table, LayerRange layers, int most) {
  std::vector<int> cuts = {layers.first};
  const int count = layers.last - layers.first;
  if (count <= most - 1) {
    for (int cut = layers.first + 1; cut <= layers.last; ++cut) {
      cuts.push_back(cut);
    }
    return cuts;
  }
  // Work and layers both count: neither may pile up in one part.
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
    // Of the layers nearest to part / parts the one of the fewest bytes.
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

PlanProblem PartOf(const PlanProblem& problem, const std::vector<int>& cuts,
                   const std::vector<int>& devices) {
  PlanProblem part = problem;
  part.stages = 0;
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

}  // namespace paceline

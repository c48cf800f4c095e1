// The least bottleneck of all plans of a profile under the pipedream cost
// model: all closed parts of the graph, all numbers of devices and machines,
// one after the other, without a bound.  Shares no line and no structure with
// core/plan/pipedream: written from the formulas in their headers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <vector>

#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/pipedream/optimizer.h"

namespace paceline {

class PipedreamOracle {
 public:
  PipedreamOracle(const GraphProfile& graph, const PipedreamRequest& request)
      : graph_(graph),
        request_(request),
        devices_(request.machines.sizes[0]),
        machines_(request.machines.levels() == 1 ? 1
                                                 : request.machines.sizes[1]),
        near_(request.machines.bytes_per_second[0]),
        far_(request.machines.bytes_per_second.back()) {
    FindClosedParts();
    for (const Part part : closed_) {
      seconds_.push_back(Sum(part, &ProfileNode::forward_seconds) +
                         Sum(part, &ProfileNode::backward_seconds));
      output_bytes_.push_back(Sum(part, &ProfileNode::output_bytes));
      parameter_bytes_.push_back(Sum(part, &ProfileNode::parameter_bytes));
      boundary_bytes_.push_back(BoundaryBytes(part));
    }
  }

  double Least() const {
    // [machines][part]: of the runs behind a part, on just so many machines.
    std::vector<std::vector<double>> best(
        machines_ + 1, std::vector<double>(closed_.size(), HUGE_VAL));
    best[0].back() = 0;
    for (size_t last = closed_.size() - 1; last > 0; --last) {
      for (int later = 0; later < machines_; ++later) {
        if (best[later][last] == HUGE_VAL) continue;
        const int most = request_.replicas ? machines_ - later : 1;
        for (int m = 1; m <= most; ++m) AddRuns(last, m, later, best);
      }
    }
    double least = HUGE_VAL;
    for (const auto& each : best) least = std::min(least, each[0]);
    return least;
  }

 private:
  // Nodes of the graph, a bit each.
  using Part = unsigned;

  // Parts are named by their places in closed_.
  struct Stage {
    size_t first;
    size_t last;
    int replicas;
    int after;  // devices of its row that come after it
  };

  // Parts that hold all that their nodes need, smaller ones first.
  void FindClosedParts() {
    std::vector<Part> needs(graph_.nodes.size(), 0);
    for (const auto& [from, to] : graph_.edges) needs[to] |= 1u << from;
    std::set<Part> known = {0};
    closed_ = {0};
    for (size_t i = 0; i < closed_.size(); ++i) {
      const Part part = closed_[i];
      for (size_t node = 0; node < needs.size(); ++node) {
        const Part more = part | 1u << node;
        if (more == part || (needs[node] & ~part) != 0) continue;
        if (known.insert(more).second) closed_.push_back(more);
      }
    }
  }

  bool IsInside(size_t part, size_t other) const {
    return part != other && (closed_[part] & ~closed_[other]) == 0;
  }

  double Sum(Part part, double ProfileNode::*what) const {
    double sum = 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (part >> i & 1) sum += graph_.nodes[i].*what;
    }
    return sum;
  }

  double BoundaryBytes(Part part) const {
    Part leaving = 0;
    for (const auto& [from, to] : graph_.edges) {
      if ((part >> from & 1) && !(part >> to & 1)) leaving |= 1u << from;
    }
    return request_.count_transfers ? Sum(leaving, &ProfileNode::output_bytes)
                                    : 0;
  }

  double SentSeconds(size_t first, size_t last, double bytes_per_second) const {
    return 2 * std::max(boundary_bytes_[first], boundary_bytes_[last]) /
           bytes_per_second;
  }

  bool Fits(const Stage& stage, int machines, int later) const {
    if (request_.machines.memory_bytes == 0) return true;
    const double bytes =
        output_bytes_[stage.last] - output_bytes_[stage.first] +
        parameter_bytes_[stage.last] - parameter_bytes_[stage.first];
    const double own = machines * stage.replicas;
    const double after = machines * stage.after + devices_ * later;
    return bytes * (std::ceil(after / own) + 1) <=
           request_.machines.memory_bytes * (1 + 1e-12);
  }

  // Without what it sends and receives.
  double StageSeconds(const Stage& stage) const {
    const double m = stage.replicas;
    const double bytes =
        parameter_bytes_[stage.last] - parameter_bytes_[stage.first];
    const double sync = 4 * (m - 1) / m * bytes / near_;
    return (seconds_[stage.last] - seconds_[stage.first] + sync) / m;
  }

  // [part]: of rows of stages from it to `last`, inside each of `machines`.
  std::vector<double> Rows(size_t last, int machines, int later) const {
    std::vector<double> least(closed_.size(), HUGE_VAL);
    // On just so many devices, behind another stage.
    std::vector<std::vector<double>> behind(devices_ + 1, least);
    behind[0][last] = 0;
    for (size_t first = last; first-- > 0;) {
      if (!IsInside(first, last)) continue;
      for (size_t end = first + 1; end <= last; ++end) {
        if (!IsInside(first, end)) continue;
        for (int after = 0; after < devices_; ++after) {
          const double rest = behind[after][end];
          if (rest == HUGE_VAL) continue;
          const int most = request_.replicas ? devices_ - after : 1;
          for (int m = 1; m <= most; ++m) {
            const Stage stage{first, end, m, after};
            if (!Fits(stage, machines, later)) continue;
            const double alone = std::max(rest, StageSeconds(stage));
            least[first] = std::min(least[first], alone);
            double& here = behind[after + m][first];
            here = std::min(
                here, std::max(alone, SentSeconds(first, end, near_) / m));
          }
        }
      }
    }
    return least;
  }

  // Takes runs into `best` that end at `last`, on `machines` before `later`
  // others.
  void AddRuns(size_t last, int machines, int later,
               std::vector<std::vector<double>>& best) const {
    const std::vector<double> rows = Rows(last, machines, later);
    const double m = machines;
    for (size_t first = 0; first < last; ++first) {
      const double bytes = parameter_bytes_[last] - parameter_bytes_[first];
      double sync = 4 * (m - 1) / m * bytes / far_;
      if (first == 0) sync /= devices_;
      double seconds = (rows[first] + sync) / m;
      if (first > 0) {
        seconds = std::max(seconds, SentSeconds(first, last, far_) / m);
      }
      double& here = best[later + machines][first];
      here = std::min(here, std::max(seconds, best[later][last]));
    }
  }

  const GraphProfile& graph_;
  const PipedreamRequest& request_;
  const int devices_;
  const int machines_;
  const double near_;
  const double far_;
  std::vector<Part> closed_;
  // [place in closed_]
  std::vector<double> seconds_;
  std::vector<double> output_bytes_;
  std::vector<double> parameter_bytes_;
  std::vector<double> boundary_bytes_;
};

// Infinite when nothing fits.  Graphs of one source, at most 32 nodes and a few
// dozen closed parts.
inline double LeastPipedreamSeconds(const GraphProfile& graph,
                                    const PipedreamRequest& request) {
  return PipedreamOracle(graph, request).Least();
}

}  // namespace paceline

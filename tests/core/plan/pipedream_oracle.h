// All plans of a small profile under the pipedream cost model, tried one by
// one.  Shares no line and no structure with core/plan/pipedream: written
// from the formulas in their headers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/pipedream/optimizer.h"

namespace paceline {

class PipedreamOracle {
 public:
  PipedreamOracle(const GraphProfile& graph, const PipedreamRequest& request)
      : graph_(graph), request_(request), all_((1u << graph.nodes.size()) - 1) {
    const Machines& machines = request.machines;
    in_machine_ = machines.sizes[0];
    machines_ = machines.levels() == 1 ? 1 : machines.sizes[1];
    near_ = machines.bytes_per_second[0];
    far_ = machines.bytes_per_second.back();
    for (Part part = 1; part <= all_; ++part) {
      if (IsClosed(part)) closed_.push_back(part);
    }
  }

  double Least() {
    TryRuns(0, machines_);
    return least_;
  }

 private:
  // Nodes of a part of the graph, a bit each.
  using Part = unsigned;

  struct Stage {
    Part before;  // all that comes before it
    Part until;   // that and the stage
    int replicas;
  };

  struct Run {
    Part before;
    Part until;
    int machines;
  };

  bool IsClosed(Part part) const {
    return std::all_of(
        graph_.edges.begin(), graph_.edges.end(), [&](const auto& edge) {
          return !(part >> edge.second & 1) || (part >> edge.first & 1);
        });
  }

  double Sum(Part part, double ProfileNode::*what) const {
    double sum = 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (part >> i & 1) sum += graph_.nodes[i].*what;
    }
    return sum;
  }

  double Boundary(Part part) const {
    if (part == all_ || !request_.count_transfers) return 0;
    Part leaving = 0;
    for (const auto& [from, to] : graph_.edges) {
      if ((part >> from & 1) && !(part >> to & 1)) leaving |= 1u << from;
    }
    return Sum(leaving, &ProfileNode::output_bytes);
  }

  bool Fits(const Stage& stage, int rest, int machines, int later) const {
    if (request_.machines.memory_bytes == 0) return true;
    const Part part = stage.until & ~stage.before;
    const double own = machines * stage.replicas;
    const double after = machines * rest + in_machine_ * later;
    return (Sum(part, &ProfileNode::output_bytes) +
            Sum(part, &ProfileNode::parameter_bytes)) *
               (std::ceil(after / own) + 1) <=
           request_.machines.memory_bytes;
  }

  double RowSeconds(const std::vector<Stage>& row, int machines,
                    int later) const {
    int rest = 0;
    for (const Stage& stage : row) rest += stage.replicas;
    double slowest = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const Stage& stage = row[i];
      const Part part = stage.until & ~stage.before;
      const double m = stage.replicas;
      rest -= stage.replicas;
      if (!Fits(stage, rest, machines, later)) return HUGE_VAL;
      const double compute = Sum(part, &ProfileNode::forward_seconds) +
                             Sum(part, &ProfileNode::backward_seconds);
      const double sync =
          4 * (m - 1) / m * Sum(part, &ProfileNode::parameter_bytes) / near_;
      slowest = std::max(slowest, (compute + sync) / m);
      if (i == 0) continue;
      slowest = std::max({slowest, 2 * Boundary(stage.before) / (near_ * m),
                          2 * Boundary(stage.until) / (near_ * m)});
    }
    return slowest;
  }

  void TryRows(const Run& run, int later, std::vector<Stage>& row, int devices,
               double& least) const {
    const Part done = row.empty() ? run.before : row.back().until;
    if (done == run.until) {
      least = std::min(least, RowSeconds(row, run.machines, later));
      return;
    }
    for (const Part until : closed_) {
      if (until == done || (done & ~until) != 0 || (until & ~run.until) != 0) {
        continue;
      }
      for (int m = 1; m <= (request_.replicas ? devices : std::min(devices, 1));
           ++m) {
        row.push_back({done, until, m});
        TryRows(run, later, row, devices - m, least);
        row.pop_back();
      }
    }
  }

  double LeastRow(const Run& run, int later) {
    const auto key = std::tuple(run.before, run.until, run.machines, later);
    const auto known = rows_.find(key);
    if (known != rows_.end()) return known->second;
    double least = HUGE_VAL;
    std::vector<Stage> row;
    TryRows(run, later, row, in_machine_, least);
    return rows_[key] = least;
  }

  double RunsSeconds() {
    int later = 0;
    for (const Run& run : runs_) later += run.machines;
    double slowest = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const Run& run = runs_[i];
      const double m = run.machines;
      later -= run.machines;
      double sync =
          4 * (m - 1) / m *
          Sum(run.until & ~run.before, &ProfileNode::parameter_bytes) / far_;
      if (i == 0) sync /= in_machine_;
      slowest = std::max(slowest, (LeastRow(run, later) + sync) / m);
      if (i == 0) continue;
      slowest = std::max({slowest, 2 * Boundary(run.before) / (far_ * m),
                          2 * Boundary(run.until) / (far_ * m)});
    }
    return slowest;
  }

  void TryRuns(Part done, int machines) {
    if (done == all_) {
      least_ = std::min(least_, RunsSeconds());
      return;
    }
    for (const Part until : closed_) {
      if (until == done || (done & ~until) != 0) continue;
      for (int m = 1;
           m <= (request_.replicas ? machines : std::min(machines, 1)); ++m) {
        runs_.push_back({done, until, m});
        TryRuns(until, machines - m);
        runs_.pop_back();
      }
    }
  }

  const GraphProfile& graph_;
  const PipedreamRequest& request_;
  const Part all_;
  int in_machine_ = 0;
  int machines_ = 0;
  double near_ = 0;
  double far_ = 0;
  std::vector<Part> closed_;
  std::vector<Run> runs_;
  std::map<std::tuple<Part, Part, int, int>, double> rows_;
  double least_ = HUGE_VAL;
};

// The least bottleneck in seconds; infinite when nothing fits.  One source and
// at most 10 nodes; exponential in all sizes.
inline double LeastPipedreamSeconds(const GraphProfile& graph,
                                    const PipedreamRequest& request) {
  return PipedreamOracle(graph, request).Least();
}

}  // namespace paceline

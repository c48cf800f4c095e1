// The optimizer against the same tables filled plainly: all states, all numbers
// of devices and machines, one after the other, without a bound.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/random.h"
#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/pipedream/optimizer.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

constexpr double kTablesRounding = 1e-12;

class PlainTables {
 public:
  PlainTables(const StateSpace& space, const PipedreamRequest& request)
      : space_(space),
        replicas_(request.replicas),
        transfers_(request.count_transfers),
        memory_(request.machines.memory_bytes),
        devices_(request.machines.sizes[0]),
        machines_(request.machines.sizes[1]),
        near_(request.machines.bytes_per_second[0]),
        far_(request.machines.bytes_per_second[1]) {}

  // The least seconds; infinite when nothing fits.
  double Least() const {
    std::vector<std::vector<double>> best(
        machines_ + 1, std::vector<double>(space_.states, HUGE_VAL));
    best[0][space_.last] = 0;
    for (int i = space_.states - 1; i > 0; --i) {
      const int last = space_.in_order[i];
      for (int rest = 0; rest < machines_; ++rest) {
        if (best[rest][last] == HUGE_VAL) continue;
        const int most = replicas_ ? machines_ - rest : 1;
        for (int m = 1; m <= most; ++m) Extend(last, m, rest, best);
      }
    }
    double least = HUGE_VAL;
    for (const std::vector<double>& each : best) {
      least = std::min(least, each[0]);
    }
    return least;
  }

 private:
  struct Stage {
    int first;
    int last;
    int replicas;
    int after;  // devices of the row
  };

  double Sent(int state, double bytes_per_second) const {
    if (!transfers_ || state == space_.last) return 0;
    return 2 * space_.boundary_bytes[state] / bytes_per_second;
  }

  double SecondsOf(const Stage& stage, int machines, int rest,
                   bool is_first) const {
    const auto between = [&](const std::vector<double>& sums) {
      return sums[stage.last] - sums[stage.first];
    };
    const double m = stage.replicas;
    const double bytes =
        between(space_.output_bytes) + between(space_.parameter_bytes);
    const double versions =
        std::ceil((machines * stage.after + rest * devices_) / (machines * m)) +
        1;
    if (memory_ > 0 && bytes * versions > memory_ * (1 + kTablesRounding)) {
      return HUGE_VAL;
    }
    const double sync =
        4 * (m - 1) / m * between(space_.parameter_bytes) / near_;
    const double seconds = (between(space_.seconds) + sync) / m;
    if (is_first) return seconds;
    return std::max(
        {seconds, Sent(stage.first, near_) / m, Sent(stage.last, near_) / m});
  }

  // [states]: of rows that end at `last`.
  std::vector<double> Row(int last, int machines, int rest) const {
    std::vector<double> least(space_.states, HUGE_VAL);
    // On just so many devices, behind another stage.
    std::vector<std::vector<double>> behind(devices_ + 1, least);
    behind[0][last] = 0;
    for (int i = space_.states - 1; i >= 0; --i) {
      const int first = space_.in_order[i];
      if (!space_.IsInside(first, last)) continue;
      for (int end = 0; end < space_.states; ++end) {
        if (!space_.IsInside(first, end)) continue;
        for (int after = 0; after < devices_; ++after) {
          const double later = behind[after][end];
          if (later == HUGE_VAL) continue;
          const int most = replicas_ ? devices_ - after : 1;
          for (int m = 1; m <= most; ++m) {
            const Stage stage{first, end, m, after};
            double& here = behind[after + m][first];
            here = std::min(
                here, std::max(later, SecondsOf(stage, machines, rest, false)));
            least[first] = std::min(
                least[first],
                std::max(later, SecondsOf(stage, machines, rest, true)));
          }
        }
      }
    }
    return least;
  }

  void Extend(int last, int machines, int rest,
              std::vector<std::vector<double>>& best) const {
    const std::vector<double> row = Row(last, machines, rest);
    const double m = machines;
    for (int s = 0; s < space_.states; ++s) {
      const double bytes =
          space_.parameter_bytes[last] - space_.parameter_bytes[s];
      const double sync =
          4 * (m - 1) / m * bytes / far_ / (s == 0 ? devices_ : 1);
      double seconds = (row[s] + sync) / m;
      if (s != 0) {
        seconds = std::max({seconds, Sent(s, far_) / m, Sent(last, far_) / m});
      }
      double& here = best[rest + machines][s];
      here = std::min(here, std::max(seconds, best[rest][last]));
    }
  }

  const StateSpace& space_;
  const bool replicas_;
  const bool transfers_;
  const double memory_;
  const int devices_;
  const int machines_;
  const double near_;
  const double far_;
};

// Blocks of branches after one another: 10 to 40 states.
GraphProfile Blocks(SplitMix64& random) {
  const double output_bytes = std::pow(10, 6 + 3 * random.Unit());
  const double parameter_bytes = std::pow(10, 5 + 3 * random.Unit());
  GraphProfile graph;
  const auto add = [&](const std::vector<int>& from) {
    const int node = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back({absl::StrCat("n", node), "L", random.Unit() * 5e-3,
                           random.Unit() * 8e-3, random.Unit() * output_bytes,
                           random.Unit() * parameter_bytes, node + 1});
    for (const int each : from) graph.edges.emplace_back(each, node);
    return node;
  };
  const int branches = 1 + static_cast<int>(random.Below(3));
  const int nodes = 1 + static_cast<int>(random.Below(2));
  const int blocks = branches == 3 ? 1 : 2 + static_cast<int>(random.Below(4));
  int end = add({});
  for (int block = 0; block < blocks; ++block) {
    std::vector<int> ends;
    for (int branch = 0; branch < branches; ++branch) {
      int at = end;
      for (int i = 0; i < nodes; ++i) at = add({at});
      ends.push_back(at);
    }
    end = add(ends);
  }
  return graph;
}

PipedreamRequest RequestFor(SplitMix64& random, const StateSpace& space) {
  PipedreamRequest request;
  const int devices = 1 + static_cast<int>(random.Below(4));
  const int machines = 2 + static_cast<int>(random.Below(4));
  request.machines.sizes = {devices, machines};
  request.machines.bytes_per_second = {std::pow(10, 8 + 5 * random.Unit())};
  request.machines.bytes_per_second.push_back(
      std::pow(10, 7 + 5 * random.Unit()));
  request.replicas = random.Below(5) != 0;
  request.count_transfers = random.Below(2) == 0;
  if (random.Below(2) == 0) {
    const double bytes =
        space.output_bytes[space.last] + space.parameter_bytes[space.last];
    request.machines.memory_bytes =
        bytes * std::pow(devices * machines, -random.Unit()) *
        (0.5 + 2 * random.Unit());
  }
  return request;
}

std::string Text(const PipedreamRequest& request) {
  const Machines& machines = request.machines;
  return absl::StrCat(absl::StrJoin(machines.sizes, "x"), " at ",
                      absl::StrJoin(machines.bytes_per_second, ", "),
                      " memory ", machines.memory_bytes, " replicas ",
                      request.replicas, " transfers ", request.count_transfers);
}

TEST(PlanPipedream, IsAsGoodAsPlainTables) {
  SplitMix64 random(7);
  int bounded = 0;
  int none = 0;
  for (int i = 0; i < 400; ++i) {
    const GraphProfile graph = Blocks(random);
    const StateSpace space = *StatesOf(graph);
    const PipedreamRequest request = RequestFor(random, space);

    const double least = PlainTables(space, request).Least();
    const auto answer = PlanPipedream(graph, space, request);

    ASSERT_EQ(answer.ok(), std::isfinite(least)) << i << " " << Text(request);
    if (request.machines.memory_bytes > 0) ++bounded;
    if (!answer.ok()) {
      ++none;
      continue;
    }
    ASSERT_NEAR(answer->bottleneck_seconds / least, 1, kTablesRounding)
        << i << " " << Text(request);
    ASSERT_FALSE(answer->stages.empty());
    EXPECT_EQ(answer->stages.front().nodes.first, 0);
    EXPECT_EQ(answer->stages.back().nodes.last,
              static_cast<int>(graph.nodes.size()));
  }
  EXPECT_GT(bounded, 100);
  EXPECT_GT(none, 10);
}

// Versions depend on the machines after a run; 270 devices do not fit a byte.
TEST(PlanPipedream, CountsMoreDevicesThanAByteHolds) {
  GraphProfile graph;
  for (int i = 0; i < 16; ++i) {
    graph.nodes.push_back({absl::StrCat("n", i), "L", 1, 0, 1, 1, i + 1});
    if (i > 0) graph.edges.emplace_back(i - 1, i);
  }
  const StateSpace space = *StatesOf(graph);
  for (const double memory : {10.0, 13.0, 20.0, 40.0}) {
    const PipedreamRequest request{{{10, 27}, {1e9, 1e9}, memory}, true, true};

    const double least = PlainTables(space, request).Least();

    ASSERT_TRUE(std::isfinite(least)) << memory;
    EXPECT_NEAR(
        Value(PlanPipedream(graph, space, request)).bottleneck_seconds / least,
        1, kTablesRounding)
        << memory;
  }
}

}  // namespace
}  // namespace paceline

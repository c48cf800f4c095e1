// Plans over machines against the same tables filled plainly: all states, all
// numbers of devices and machines, one after the other.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/plan/pipedream/fits.h"
#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/pipedream/levels.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr double kLevelRounding = 1e-12;

class PlainLevels {
 public:
  PlainLevels(const StateSpace& space, const LevelOptions& options)
      : space_(space), options_(options) {}

  // The least seconds; infinite when nothing fits.
  double Least() const {
    const int all = options_.machines;
    std::vector<std::vector<double>> best(
        all + 1, std::vector<double>(space_.states, HUGE_VAL));
    best[0][space_.last] = 0;
    for (int i = space_.states - 1; i > 0; --i) {
      const int last = space_.in_order[i];
      for (int rest = 0; rest < all; ++rest) {
        if (best[rest][last] == HUGE_VAL) continue;
        const int most = options_.row.replicas ? all - rest : 1;
        for (int m = 1; m <= most; ++m) {
          Extend(last, m, rest, best);
        }
      }
    }
    double least = HUGE_VAL;
    for (const std::vector<double>& each : best) {
      least = std::min(least, each[0]);
    }
    return least;
  }

 private:
  double Near(int state) const {
    if (!options_.row.count_transfers || state == space_.last) return 0;
    return 2 * space_.boundary_bytes[state] / options_.row.bytes_per_second;
  }

  double Stage(const RowStage& stage, const RowPlace& place,
               bool is_first) const {
    const auto between = [&](const std::vector<double>& sums) {
      return sums[stage.last] - sums[stage.first];
    };
    const double memory = options_.row.memory_bytes;
    const double bytes =
        between(space_.output_bytes) + between(space_.parameter_bytes);
    const auto versions = static_cast<double>(
        VersionsOf(place, stage.replicas, stage.rest_devices));
    if (memory > 0 && bytes * versions > memory * (1 + kLevelRounding)) {
      return HUGE_VAL;
    }
    const double m = stage.replicas;
    const double sync = 4 * (m - 1) / m * between(space_.parameter_bytes) /
                        options_.row.bytes_per_second;
    const double seconds = (between(space_.seconds) + sync) / m;
    if (is_first) return seconds;
    return std::max({seconds, Near(stage.first) / m, Near(stage.last) / m});
  }

  // [states]: of rows that end at `last`.
  std::vector<double> Row(int last, const RowPlace& place) const {
    const int all = options_.row.devices;
    std::vector<double> least(space_.states, HUGE_VAL);
    // On just so many devices, behind another stage.
    std::vector<std::vector<double>> rest(all + 1, least);
    rest[0][last] = 0;
    for (int i = space_.states - 1; i >= 0; --i) {
      const int first = space_.in_order[i];
      if (!space_.IsInside(first, last)) continue;
      for (int end = 0; end < space_.states; ++end) {
        if (!space_.IsInside(first, end)) continue;
        for (int after = 0; after < all; ++after) {
          if (rest[after][end] == HUGE_VAL) continue;
          const int most = options_.row.replicas ? all - after : 1;
          for (int m = 1; m <= most; ++m) {
            const RowStage stage{first, end, m, after};
            const double behind = rest[after][end];
            double& here = rest[after + m][first];
            here = std::min(here, std::max(behind, Stage(stage, place, false)));
            least[first] = std::min(
                least[first], std::max(behind, Stage(stage, place, true)));
          }
        }
      }
    }
    return least;
  }

  void Extend(int last, int machines, int rest,
              std::vector<std::vector<double>>& best) const {
    const std::vector<double> row =
        Row(last, {machines, rest * options_.row.devices});
    const double m = machines;
    for (int s = 0; s < space_.states; ++s) {
      double seconds =
          (row[s] + RunSyncSeconds(options_, space_, s, last, machines)) / m;
      if (s != 0) {
        seconds =
            std::max({seconds, RunTransferSeconds(options_, space_, s) / m,
                      RunTransferSeconds(options_, space_, last) / m});
      }
      double& here = best[rest + machines][s];
      here = std::min(here, std::max(seconds, best[rest][last]));
    }
  }

  const StateSpace& space_;
  const LevelOptions& options_;
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

LevelOptions RandomOptions(SplitMix64& random, const StateSpace& space) {
  LevelOptions options;
  options.row.devices = 1 + static_cast<int>(random.Below(4));
  options.machines = 2 + static_cast<int>(random.Below(4));
  options.row.bytes_per_second = std::pow(10, 8 + 5 * random.Unit());
  options.bytes_per_second = std::pow(10, 7 + 5 * random.Unit());
  options.row.replicas = random.Below(5) != 0;
  options.row.count_transfers = random.Below(2) == 0;
  if (random.Below(2) == 0) {
    const double bytes =
        space.output_bytes[space.last] + space.parameter_bytes[space.last];
    const int devices = options.machines * options.row.devices;
    options.row.memory_bytes =
        bytes * std::pow(devices, -random.Unit()) * (0.5 + 2 * random.Unit());
  }
  return options;
}

std::string Text(const LevelOptions& options) {
  return absl::StrCat(
      options.row.devices, "x", options.machines, " at ",
      options.row.bytes_per_second, ", ", options.bytes_per_second, " memory ",
      options.row.memory_bytes, " replicas ", options.row.replicas,
      " transfers ", options.row.count_transfers);
}

TEST(PipedreamLevels, AreAsGoodAsPlainTables) {
  SplitMix64 random(7);
  int bounded = 0;
  int none = 0;
  for (int i = 0; i < 400; ++i) {
    const GraphProfile graph = Blocks(random);
    const StateSpace space = *StatesOf(graph);
    const LevelOptions options = RandomOptions(random, space);

    const double least = PlainLevels(space, options).Least();
    const LevelAnswer answer = PipedreamLevels(space, options).Solve();

    ASSERT_EQ(std::isfinite(answer.seconds), std::isfinite(least))
        << i << " " << Text(options);
    if (options.row.memory_bytes > 0) ++bounded;
    if (!std::isfinite(least)) {
      ++none;
      EXPECT_TRUE(answer.runs.empty());
      continue;
    }
    ASSERT_NEAR(answer.seconds / least, 1, kLevelRounding)
        << i << " " << Text(options);
    ASSERT_FALSE(answer.runs.empty());
    EXPECT_EQ(answer.runs.front().first, 0);
    EXPECT_EQ(answer.runs.back().last, space.last);
  }
  EXPECT_GT(bounded, 100);
  EXPECT_GT(none, 10);
}

// Versions depend on the machines after a run; 270 devices do not fit a byte.
TEST(PipedreamLevels, CountMoreDevicesThanAByteHolds) {
  GraphProfile graph;
  for (int i = 0; i < 16; ++i) {
    graph.nodes.push_back({absl::StrCat("n", i), "L", 1, 0, 1, 1, i + 1});
    if (i > 0) graph.edges.emplace_back(i - 1, i);
  }
  const StateSpace space = *StatesOf(graph);
  LevelOptions options;
  options.row.devices = 10;
  options.row.bytes_per_second = 1e9;
  options.row.count_transfers = true;
  options.machines = 27;
  options.bytes_per_second = 1e9;
  for (const double memory : {10.0, 13.0, 20.0, 40.0}) {
    options.row.memory_bytes = memory;

    const double least = PlainLevels(space, options).Least();

    ASSERT_TRUE(std::isfinite(least)) << memory;
    EXPECT_NEAR(PipedreamLevels(space, options).Solve().seconds / least, 1,
                kLevelRounding)
        << memory;
  }
}

TEST(PipedreamFits, FindsNoPlanBelowTheLeastSecondsAndOneFromThere) {
  SplitMix64 random(8);
  for (int i = 0; i < 50; ++i) {
    const GraphProfile graph = Blocks(random);
    const StateSpace space = *StatesOf(graph);
    LevelOptions options = RandomOptions(random, space);
    options.bytes_per_second = HUGE_VAL;  // nothing to synchronise: exact
    const double least = PlainLevels(space, options).Least();
    if (!std::isfinite(least)) continue;
    PipedreamFits fits(space, options);

    EXPECT_TRUE(fits.Solve(2 * least));
    fits.Narrow();
    EXPECT_TRUE(fits.Solve(least * (1 + kLevelRounding))) << Text(options);
    EXPECT_FALSE(fits.Solve(least * (1 - kLevelRounding))) << Text(options);
  }
}

}  // namespace
}  // namespace paceline

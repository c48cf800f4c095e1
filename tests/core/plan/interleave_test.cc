#include "core/plan/interleave.h"

#include <algorithm>
#include <vector>

#include "core/plan/cost.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::pair<int, int> Dealt(int stages, int workers, int micro_batches = 12,
                          int layers = 24) {
  const auto dealing = DealStages({stages, workers, layers, micro_batches});
  EXPECT_TRUE(dealing.ok()) << dealing.status();
  return {dealing->stages, dealing->workers};
}

TEST(DealStages, GivesEachWorkerAsManyAndAtLeastTwo) {
  EXPECT_THAT(Dealt(8, 4), Pair(8, 4));
  EXPECT_THAT(Dealt(8, 8), Pair(8, 4));
  EXPECT_THAT(Dealt(8, 3), Pair(8, 2));
  EXPECT_THAT(Dealt(6, 4), Pair(6, 3));
  EXPECT_THAT(Dealt(5, 4), Pair(5, 1));
  EXPECT_THAT(Dealt(2, 4), Pair(2, 1));
  EXPECT_THAT(Dealt(1, 4), Pair(1, 1));
}

TEST(DealStages, ChoosesTwoEachWhereTheJobLeavesItOpen) {
  EXPECT_THAT(Dealt(0, 4), Pair(8, 4));
  EXPECT_THAT(Dealt(0, 4, /*micro_batches=*/9), Pair(6, 3));
  EXPECT_THAT(Dealt(0, 4, /*micro_batches=*/7), Pair(2, 1));
  EXPECT_THAT(Dealt(0, 4, 12, /*layers=*/5), Pair(4, 2));
  EXPECT_THAT(Dealt(0, 4, 12, /*layers=*/1), Pair(1, 1));
}

TEST(DealStages, RefusesMicroBatchesThatAreNoMultipleOfTheWorkers) {
  const auto dealing = DealStages({8, 4, 24, 6});

  ExpectError(dealing.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr("8 stages on 4 workers needs the micro-batches of a "
                        "batch to be a multiple of 4, train.batch and "
                        "train.micro_batch make 6"));
}

PlanProblem Layers(const std::vector<double>& seconds, int devices) {
  PlanProblem problem;
  for (const double forward : seconds) {
    problem.layers.push_back({.name = "layer", .forward_seconds = forward});
  }
  problem.devices.resize(devices);
  return problem;
}

TEST(CutForDealing, MakesTheLongestStageShortest) {
  EXPECT_THAT(CutForDealing(Layers({1, 1, 1, 3, 1, 1}, 2), 4),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 3}, LayerRange{3, 4},
                          LayerRange{4, 6}));
}

TEST(CutForDealing, KnowsWhoIsSlow) {
  PlanProblem problem = Layers({1, 1, 1, 1, 1, 1}, 2);
  problem.devices[1].speed = 0.5;

  // Stages 0 and 2 are on the fast one.
  const auto ranges = CutForDealing(problem, 4);

  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[0].last - ranges[0].first, 2);
  EXPECT_EQ(ranges[1].last - ranges[1].first, 1);
}

// Every cut of some small chains tried.
TEST(CutForDealing, IsAsGoodAsAnyCut) {
  const PlanProblem problem = Layers({3, 1, 4, 1, 5, 9, 2, 6}, 2);
  const auto longest = [&](const std::vector<int>& cuts) {
    double most = 0;
    for (size_t s = 0; s + 1 < cuts.size(); ++s) {
      most = std::max(most, LayerSeconds(problem, {cuts[s], cuts[s + 1]},
                                         static_cast<int>(s % 2)));
    }
    return most;
  };
  double best = 1e9;
  for (int a = 1; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      for (int c = b + 1; c < 8; ++c) {
        best = std::min(best, longest({0, a, b, c, 8}));
      }
    }
  }

  std::vector<int> cuts = {0};
  for (const LayerRange& range : CutForDealing(problem, 4)) {
    EXPECT_EQ(range.first, cuts.back());
    cuts.push_back(range.last);
  }
  EXPECT_EQ(longest(cuts), best);
}

}  // namespace
}  // namespace paceline

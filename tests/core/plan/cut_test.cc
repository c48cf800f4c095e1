#include "core/plan/cut.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/plan/cost.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(CutEqually, CoversTheChainAsEvenlyAsCanBeTheLongerStagesFirst) {
  for (int layers = 1; layers <= 20; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = Value(CutEqually(layers, stages));

      ASSERT_EQ(ranges.size(), stages);
      int next = 0;
      int length = 0;
      for (const auto& [first, last] : ranges) {
        EXPECT_EQ(first, next);
        EXPECT_GE(last - first, layers / stages);
        EXPECT_LE(last - first, (layers + stages - 1) / stages);
        EXPECT_TRUE(first == 0 || last - first <= length);
        length = last - first;
        next = last;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(CutEqually, RefusesMoreStagesThanLayersAndFewerThanOne) {
  ExpectError(CutEqually(3, 5).status(), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("5 stages"), HasSubstr("3 layers")));
  for (const int stages : {0, -1}) {
    ExpectError(CutEqually(3, stages).status(),
                absl::StatusCode::kInvalidArgument,
                HasSubstr("need at least 1"));
  }
}

TEST(CutAt, CutsBeforeTheLayersNamed) {
  EXPECT_THAT(
      Value(CutAt(6, {1, 5})),
      ElementsAre(LayerRange{0, 1}, LayerRange{1, 5}, LayerRange{5, 6}));
  EXPECT_THAT(Value(CutAt(6, {})), ElementsAre(LayerRange{0, 6}));
}

TEST(CutAt, RefusesCutsThatLeaveAStageEmpty) {
  const std::vector<int> bad[] = {{0}, {-1}, {6}, {2, 2}, {4, 2}};
  for (const std::vector<int>& cuts : bad) {
    ExpectError(CutAt(6, cuts).status(), absl::StatusCode::kInvalidArgument,
                HasSubstr(absl::StrCat("cut at layer ", cuts.back())));
  }
}

TEST(CutAt, RefusesAModelWithoutLayers) {
  EXPECT_EQ(CutAt(0, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

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

// Layers of so many seconds on one device, half of them on the next.
PlanProblem Problem(const std::vector<double>& seconds) {
  PlanProblem problem;
  problem.training = false;
  problem.devices.resize(2);
  for (const double each : seconds) {
    LayerCost layer;
    layer.forward_seconds = each;
    problem.layers.push_back(layer);
    problem.devices[0].layer_seconds.push_back(each);
    problem.devices[1].layer_seconds.push_back(each / 2);
  }
  return problem;
}

TEST(CutFurther, KeepsAStageForEachHolderWhereThatIsEnough) {
  const PlanProblem problem = Problem({1, 2, 3});

  const SharedStages shared =
      CutFurther(problem, {{{0, 2}, {1}, {1}}, {{2, 3}, {0}, {1}}}, 2);

  EXPECT_THAT(shared.stages, ElementsAre(LayerRange{0, 2}, LayerRange{2, 3}));
  EXPECT_THAT(shared.holder_of, ElementsAre(0, 1));
}

TEST(CutFurther, CutsWhatTakesLongestAsEvenlyAsLayersAllow) {
  const PlanProblem problem = Problem({4, 1, 1, 2, 2, 2, 1, 1});

  // 4 + 1 + 1 + 2 on the first; half of 2 + 2 + 1 + 1 on the second.
  const Placement placement = {{{0, 4}, {0}, {1}}, {{4, 8}, {1}, {1}}};

  EXPECT_THAT(
      CutFurther(problem, placement, 3).stages,
      ElementsAre(LayerRange{0, 1}, LayerRange{1, 4}, LayerRange{4, 8}));
  // The first layer cannot be cut: the pieces are 4 s and 4 s against 3 s.
  const SharedStages five = CutFurther(problem, placement, 5);
  EXPECT_EQ(five.stages.front(), (LayerRange{0, 1}));
  EXPECT_THAT(five.holder_of, ElementsAre(0, 0, 0, 0, 1));
}

TEST(CutFurther, GoesDownToSingleLayers) {
  const PlanProblem problem = Problem({9, 1, 1, 1});

  const SharedStages shared =
      CutFurther(problem, {{{0, 1}, {0}, {1}}, {{1, 4}, {1}, {1}}}, 4);

  EXPECT_THAT(shared.stages, ElementsAre(LayerRange{0, 1}, LayerRange{1, 2},
                                         LayerRange{2, 3}, LayerRange{3, 4}));
  EXPECT_THAT(shared.holder_of, ElementsAre(0, 1, 1, 1));
}

TEST(CutFurther, TakesSecondsFromTheSpeedWhereNothingWasMeasured) {
  PlanProblem problem = Problem({1, 1, 2});
  for (Device& device : problem.devices) device.layer_seconds.clear();

  const SharedStages shared = CutFurther(problem, {{{0, 3}, {1}, {1}}}, 2);

  EXPECT_THAT(shared.stages, ElementsAre(LayerRange{0, 2}, LayerRange{2, 3}));
}

}  // namespace
}  // namespace paceline

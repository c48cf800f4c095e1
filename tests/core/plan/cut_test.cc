#include "core/plan/cut.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CutEqually, PutsTheLongerStagesFirst) {
  const auto ranges = Value(CutEqually(10, 4));

  EXPECT_THAT(ranges, ElementsAre(LayerRange{0, 3}, LayerRange{3, 6},
                                  LayerRange{6, 8}, LayerRange{8, 10}));
}

TEST(CutEqually, CoversTheChainWithStagesThatDifferByAtMostOne) {
  for (int layers = 1; layers <= 20; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = Value(CutEqually(layers, stages));

      ASSERT_EQ(ranges.size(), stages);
      int next = 0;
      for (const auto& [first, last] : ranges) {
        EXPECT_EQ(first, next);
        EXPECT_GE(last - first, layers / stages);
        EXPECT_LE(last - first, (layers + stages - 1) / stages);
        next = last;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(CutEqually, RefusesMoreStagesThanLayersWithBothNumbers) {
  const auto ranges = CutEqually(3, 5);

  ExpectError(ranges.status(), absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr("5 stages"), HasSubstr("3 layers")));
}

TEST(CutEqually, RefusesStagesBelowOne) {
  EXPECT_EQ(CutEqually(3, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CutEqually(3, -1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CutAt, CutsBeforeTheLayersNamed) {
  const auto ranges = Value(CutAt(6, {1, 5}));

  EXPECT_THAT(ranges, ElementsAre(LayerRange{0, 1}, LayerRange{1, 5},
                                  LayerRange{5, 6}));
}

TEST(CutAt, WithoutCutsIsOneStage) {
  const auto ranges = Value(CutAt(6, {}));

  EXPECT_THAT(ranges, ElementsAre(LayerRange{0, 6}));
}

class BadCuts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(BadCuts, AreRefused) {
  const auto ranges = CutAt(6, GetParam());

  ExpectError(ranges.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr(absl::StrCat("cut at layer ", GetParam().back())));
}

INSTANTIATE_TEST_SUITE_P(OfSixLayers, BadCuts,
                         ::testing::Values(std::vector<int>{0},
                                           std::vector<int>{-1},
                                           std::vector<int>{6},
                                           std::vector<int>{2, 2},
                                           std::vector<int>{4, 2}));

TEST(CutAt, RefusesAModelWithoutLayers) {
  EXPECT_EQ(CutAt(0, {}).status().code(), absl::StatusCode::kInvalidArgument);
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

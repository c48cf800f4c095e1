#include "core/plan/cut_further.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

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
  // Of pieces of 4 s and 4 s against 3 s the first layer cannot be cut.
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

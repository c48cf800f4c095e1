#include "core/plan/cut.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CutEqually, PutsTheLongerStagesFirst) {
  const auto ranges = CutEqually(10, 4);

  ASSERT_TRUE(ranges.ok()) << ranges.status();
  EXPECT_THAT(*ranges, ElementsAre(LayerRange{0, 3}, LayerRange{3, 6},
                                   LayerRange{6, 8}, LayerRange{8, 10}));
}

TEST(CutEqually, CoversTheChainWithStagesThatDifferByAtMostOne) {
  for (int layers = 1; layers <= 20; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = CutEqually(layers, stages);

      ASSERT_TRUE(ranges.ok()) << ranges.status();
      ASSERT_EQ(ranges->size(), stages);
      int next = 0;
      for (const auto& [first, last] : *ranges) {
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

  EXPECT_EQ(ranges.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ranges.status().message()),
              AllOf(HasSubstr("5 stages"), HasSubstr("3 layers")));
}

TEST(CutEqually, RefusesStagesBelowOne) {
  EXPECT_EQ(CutEqually(3, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CutEqually(3, -1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CutAt, CutsBeforeTheLayersNamed) {
  const auto ranges = CutAt(6, {1, 5});

  ASSERT_TRUE(ranges.ok()) << ranges.status();
  EXPECT_THAT(*ranges, ElementsAre(LayerRange{0, 1}, LayerRange{1, 5},
                                   LayerRange{5, 6}));
}

TEST(CutAt, WithoutCutsIsOneStage) {
  const auto ranges = CutAt(6, {});

  ASSERT_TRUE(ranges.ok()) << ranges.status();
  EXPECT_THAT(*ranges, ElementsAre(LayerRange{0, 6}));
}

class BadCuts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(BadCuts, AreRefused) {
  const auto ranges = CutAt(6, GetParam());

  EXPECT_EQ(ranges.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ranges.status().message()),
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

TEST(ChooseCut, CutsDecideOverStages) {
  PipelineSpec pipeline;
  pipeline.stages = 2;
  pipeline.cuts = {1, 2};

  const auto cut = ChooseCut(pipeline, SmallModel(4));

  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_THAT(cut->stages, ElementsAre(LayerRange{0, 1}, LayerRange{1, 2},
                                       LayerRange{2, 4}));
  EXPECT_EQ(cut->why, "cuts");
}

TEST(ChooseCut, WithoutCutsIsEqual) {
  PipelineSpec pipeline;
  pipeline.stages = 2;

  const auto cut = ChooseCut(pipeline, SmallModel(4));

  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_THAT(cut->stages, ElementsAre(LayerRange{0, 2}, LayerRange{2, 4}));
  EXPECT_EQ(cut->why, "equal");
}

}  // namespace
}  // namespace paceline

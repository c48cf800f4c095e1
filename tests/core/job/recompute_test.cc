#include <utility>
#include <vector>

#include "core/job/spec/job_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<int, int>> Segments(const char* name, int layers) {
  return SegmentsOf(FindRecompute(name).value(), layers);
}

TEST(Recompute, KnowsItsThreeWords) {
  EXPECT_FALSE(FindRecompute("none")->recomputes);
  EXPECT_TRUE(FindRecompute("stage")->recomputes);
  EXPECT_EQ(FindRecompute("stage")->every, kWholeStage);
  EXPECT_TRUE(FindRecompute("every-2")->recomputes);
  EXPECT_EQ(FindRecompute("every-2")->every, 2);
  EXPECT_EQ(FindRecompute("every-1000000")->every, kMostLayersASegment);
}

TEST(Recompute, KnowsNoOther) {
  for (const char* word :
       {"", "None", "stages", "every", "every-", "every-0", "every--1",
        "every-+2", "every- 2", "every-2 ", "every-2x", "every-1000001",
        "every-99999999999999999999", "every_2", "2"}) {
    EXPECT_FALSE(FindRecompute(word).has_value()) << "'" << word << "'";
  }
}

TEST(Recompute, CutsAStageFromItsFirstLayerOn) {
  EXPECT_THAT(Segments("every-2", 5),
              ElementsAre(Pair(0, 2), Pair(2, 4), Pair(4, 5)));
  EXPECT_THAT(Segments("every-1", 2), ElementsAre(Pair(0, 1), Pair(1, 2)));
  EXPECT_THAT(Segments("every-9", 5), ElementsAre(Pair(0, 5)));
  EXPECT_THAT(Segments("stage", 5), ElementsAre(Pair(0, 5)));
  EXPECT_THAT(Segments("none", 5), ElementsAre(Pair(0, 5)));
}

}  // namespace
}  // namespace paceline

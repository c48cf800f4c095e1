#include "core/round/view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(View, TheServersRoleRollsOverStepsAndShardsUnlessItIsCentral) {
  const View view = SmallView(3);
  for (int64_t step = 0; step < 5; ++step) {
    for (int shard = 0; shard < 3; ++shard) {
      EXPECT_EQ(ServerOf(view, ServerMode::kRolling, step, shard),
                Member((step + shard) % 3));
    }
    EXPECT_EQ(ServerOf(view, ServerMode::kCentral, step, 0), Member(0));
  }
}

TEST(View, AJoinerIsCountedFromItsStepOn) {
  View view = SmallView(3);
  view.members[1].from_step = 7;
  EXPECT_THAT(MembersAt(view, 6), ElementsAre(Member(0), Member(2)));
  EXPECT_THAT(MembersAt(view, 7), ElementsAre(Member(0), Member(1), Member(2)));
  EXPECT_EQ(ServerOf(view, ServerMode::kRolling, 1, 0), Member(2));
}

TEST(View, ARestartedProcessIsNoMember) {
  const View view = SmallView(2);
  EXPECT_TRUE(Contains(view, Member(1)));
  EXPECT_FALSE(Contains(view, Member(1, 2)));
}

TEST(View, LaterCoordinatorsViewsAreHigher) {
  EXPECT_LT((ViewId{1, 9}), (ViewId{2, 1}));
  EXPECT_LT((ViewId{2, 1}), (ViewId{2, 2}));
  EXPECT_EQ(ViewText({2, 17}), "2.17");
}

TEST(View, WhatNoViewCanBeIsSaid) {
  EXPECT_TRUE(CheckView(SmallView(2)).ok());
  View view = SmallView(2);
  view.members.clear();
  EXPECT_THAT(CheckView(view).message(), HasSubstr("view 1.1 has no members"));
  view = SmallView(2);
  view.members[1].id.worker = {0};
  EXPECT_THAT(CheckView(view).message(),
              HasSubstr("lists worker 0 after worker 0"));
  view = SmallView(2);
  view.leveller = Member(1, 9);
  EXPECT_THAT(CheckView(view).message(), HasSubstr("which is not its member"));
}

}  // namespace
}  // namespace paceline

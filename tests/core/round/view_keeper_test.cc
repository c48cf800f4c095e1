#include "core/round/view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

ViewKeeper Begun(int members) {
  ViewKeeper keeper(1, std::nullopt);
  ViewActions actions;
  std::vector<MemberId> ids;
  for (int i = 0; i < members; ++i) ids.push_back(Member(i));
  keeper.Begin(ids, 0, actions);
  keeper.OnStored(keeper.view()->id, actions);
  return keeper;
}

class ViewKeeperTest : public ::testing::Test {
 protected:
  ViewActions actions;
};

TEST_F(ViewKeeperTest, AJoinersStepIsBeyondEveryReportedOne) {
  ViewKeeper keeper = Begun(2);
  keeper.OnReport(Member(0), 7, {1, 1}, false, actions);
  keeper.OnReport(Member(1), 8, {1, 1}, false, actions);
  keeper.OnListenerLevel(Member(2), 6, actions);
  ASSERT_THAT(keeper.view()->members, SizeIs(3));
  EXPECT_EQ(keeper.view()->members[2].from_step, 10);
  EXPECT_EQ(keeper.view()->leveller, Member(0));
}

TEST_F(ViewKeeperTest, ARestartedProcessWaitsUntilItsOldSelfIsOut) {
  ViewKeeper keeper = Begun(2);
  keeper.OnListenerLevel(Member(1, 2), 5, actions);
  EXPECT_THAT(actions, IsEmpty());
  keeper.OnLost(Member(1), actions);
  keeper.OnListenerLevel(Member(1, 2), 5, actions);
  EXPECT_TRUE(Contains(*keeper.view(), Member(1, 2)));
}

TEST_F(ViewKeeperTest, WhoWasExcludedStaysSo) {
  ViewKeeper keeper = Begun(3);
  keeper.OnLost(Member(1), actions);
  actions.clear();
  keeper.OnListenerLevel(Member(1), 5, actions);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_TRUE(keeper.IsExcluded(Member(1)));
  EXPECT_FALSE(keeper.IsExcluded(Member(0)));
}

TEST_F(ViewKeeperTest, JoinersAloneAreNoGroup) {
  ViewKeeper keeper = Begun(2);
  keeper.OnListenerLevel(Member(2), 5, actions);
  keeper.OnLost(Member(0), actions);
  EXPECT_FALSE(keeper.lost());
  keeper.OnLost(Member(1), actions);
  EXPECT_TRUE(keeper.lost());
}

TEST_F(ViewKeeperTest, AJoinerThatTookPartIsAMember) {
  ViewKeeper keeper = Begun(1);
  keeper.OnListenerLevel(Member(2), 5, actions);
  keeper.OnReport(Member(2), 5, keeper.view()->id, true, actions);
  keeper.OnLost(Member(0), actions);
  EXPECT_FALSE(keeper.lost());
  EXPECT_EQ(keeper.view()->leveller, Member(2));
}

TEST_F(ViewKeeperTest, ALaterCoordinatorWaitsForReportsBeforeItGivesAGroupUp) {
  ViewKeeper first = Begun(2);
  first.OnListenerLevel(Member(2), 5, actions);
  first.OnLost(Member(0), actions);
  ViewKeeper keeper(2, first.view());
  keeper.OnLost(Member(1), actions);
  EXPECT_FALSE(keeper.lost());
  keeper.OnReport(Member(2), 5, {}, false, actions);
  EXPECT_TRUE(keeper.lost());
}

TEST_F(ViewKeeperTest, ALaterCoordinatorAddsNobodyBeforeItKnowsAMember) {
  ViewKeeper keeper(2, Begun(2).view());
  keeper.OnListenerLevel(Member(2), 5, actions);
  EXPECT_THAT(actions, IsEmpty());
  keeper.OnReport(Member(1), 5, {1, 1}, true, actions);
  keeper.OnListenerLevel(Member(2), 5, actions);
  EXPECT_THAT(keeper.view()->members, SizeIs(3));
  EXPECT_EQ(keeper.view()->leveller, Member(1));
}

// A joiner comes, and the only member that has reported goes: of the others
// nothing is known, and they may live.
TEST_F(ViewKeeperTest, ALaterCoordinatorGivesNoGroupUpThatHasNotReported) {
  ViewKeeper keeper(2, Begun(3).view());
  keeper.OnReport(Member(0), 5, {1, 1}, true, actions);
  keeper.OnListenerLevel(Member(3), 5, actions);
  keeper.OnLost(Member(0), actions);
  keeper.OnReport(Member(3), 5, {1, 1}, false, actions);

  EXPECT_FALSE(keeper.lost());
  keeper.OnReport(Member(1), 5, {1, 1}, true, actions);
  EXPECT_FALSE(keeper.lost());
  EXPECT_EQ(keeper.view()->leveller, Member(1));
}

TEST_F(ViewKeeperTest, AJoinerThatWasToLevelIsReplaced) {
  ViewKeeper first = Begun(3);
  first.OnLost(Member(0), actions);
  first.OnListenerLevel(Member(0, 2), 5, actions);
  ViewKeeper keeper(2, first.view());
  keeper.OnLost(Member(1), actions);
  ASSERT_EQ(keeper.view()->leveller, Member(0, 2));
  keeper.OnReport(Member(0, 2), 5, {}, false, actions);
  keeper.OnReport(Member(2), 5, {}, true, actions);
  EXPECT_EQ(keeper.view()->leveller, Member(2));
}

TEST_F(ViewKeeperTest, ALaterCoordinatorGoesOnWithHigherViews) {
  const View stored = *Begun(3).view();
  ViewKeeper keeper(2, stored);
  keeper.OnReport(Member(2), 4, {}, false, actions);
  ASSERT_THAT(actions, SizeIs(1));
  EXPECT_EQ(std::get<SendView>(actions[0]).view, stored);
  keeper.OnLost(Member(2), actions);
  EXPECT_EQ(keeper.view()->id, (ViewId{2, 1}));
  EXPECT_GT(keeper.view()->id, stored.id);
}

}  // namespace
}  // namespace paceline

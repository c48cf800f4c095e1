// A joiner must not level a view: who is gone may have applied what it lacks.
#include <variant>

#include "core/round/round_member.h"
#include "core/round/view_keeper.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

const MemberId kGone = Member(0), kJoiner = Member(1);

// As a coordinator decides it that has just started, and has heard of nobody
// but of kGone's end.
View Alone() {
  View view;
  view.id = {2, 1};
  view.members = {{kJoiner, 3}};
  view.leveller = kJoiner;
  return view;
}

TEST(Joiner, LevelsNoViewThoughItIsNamed) {
  RoundActions actions;
  RoundMember joiner(RoundOptions(), kJoiner, 0, /*state_hash=*/0);
  joiner.Join(kGone, At(0), actions);
  joiner.OnMessage({0, {1, 1}, kGone, 3, 0, Copy{3, 5, 6}}, At(0), actions);
  ASSERT_EQ(joiner.next(), 3);

  joiner.OnView(Alone(), At(1), actions);
  joiner.OnTick(At(2), actions);

  EXPECT_EQ(joiner.phase(), RoundMember::Phase::kLevelling);
  EXPECT_FALSE(joiner.has_taken_part());
}

TEST(Joiner, WhoBeganTheAttemptLevelsItsViewAlone) {
  RoundActions actions;
  RoundMember member(RoundOptions(), kJoiner, 3, /*state_hash=*/9);

  member.OnView(Alone(), At(1), actions);

  EXPECT_EQ(member.phase(), RoundMember::Phase::kRunning);
}

TEST(Joiner, ThatIsLeftAloneByItsGroupEndsTheAttempt) {
  View stored;
  stored.id = {1, 5};
  stored.members = {{kGone, 0}, {kJoiner, 3}};
  stored.leveller = kGone;
  ViewKeeper keeper(2, stored);
  ViewActions actions;
  keeper.OnLost(kGone, actions);
  ASSERT_FALSE(keeper.lost()) << "nothing is known of the other yet";

  keeper.OnReport(kJoiner, 3, {2, 1}, /*has_taken_part=*/false, actions);

  EXPECT_TRUE(keeper.lost());
  EXPECT_TRUE(std::holds_alternative<GroupLost>(actions.back()));
}

}  // namespace
}  // namespace paceline

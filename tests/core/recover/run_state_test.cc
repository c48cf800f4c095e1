#include "core/recover/run_state.h"

#include <optional>

#include "gtest/gtest.h"

namespace paceline {
namespace {

Fence FenceOf(int64_t attempt, int64_t job = 4) { return {{job}, attempt, 0}; }

TEST(WorkState, BeginsWhatIsOrdered) {
  WorkState state;
  EXPECT_EQ(state.OnOrder({1, 1}, std::nullopt), WorkStep::kNothing);
  EXPECT_EQ(state.OnOrder({1, 2}, FenceOf(1)), WorkStep::kBegin);
  EXPECT_EQ(state.run(), FenceOf(1));
  EXPECT_TRUE(state.GoesOn());
  EXPECT_TRUE(state.CheckNew().ok());
  EXPECT_EQ(state.OnOrder({1, 3}, FenceOf(1)), WorkStep::kNothing);
  EXPECT_EQ(state.echo(), (OrderNumber{1, 3}));
}

TEST(WorkState, EchoesAnOrderWhenItHasLeft) {
  WorkState state;
  state.OnOrder({1, 1}, FenceOf(1));
  EXPECT_EQ(state.OnOrder({1, 2}, std::nullopt), WorkStep::kLeave);
  EXPECT_EQ(state.echo(), (OrderNumber{1, 1}));
  EXPECT_FALSE(state.GoesOn());

  EXPECT_EQ(state.OnLeft(), WorkStep::kNothing);
  EXPECT_EQ(state.echo(), (OrderNumber{1, 2}));
  EXPECT_EQ(state.run(), std::nullopt);
}

TEST(WorkState, GoesToTheNewestOfTheOrdersThatCameWhileItLeft) {
  WorkState state;
  state.OnOrder({1, 1}, FenceOf(1));
  EXPECT_EQ(state.OnOrder({1, 2}, std::nullopt), WorkStep::kLeave);
  EXPECT_EQ(state.OnOrder({1, 3}, FenceOf(2)), WorkStep::kNothing);
  EXPECT_EQ(state.OnOrder({1, 4}, FenceOf(3)), WorkStep::kNothing);
  EXPECT_EQ(state.OnLeft(), WorkStep::kBegin);
  EXPECT_EQ(state.run(), FenceOf(3));
}

TEST(WorkState, RefusesARunThatItHasLeftAlsoWhenTheOrdersCrossed) {
  WorkState state;
  state.OnOrder({1, 1}, FenceOf(2));
  state.OnOrder({1, 2}, std::nullopt);
  EXPECT_EQ(state.OnOrder({1, 3}, FenceOf(2)), WorkStep::kNothing);
  EXPECT_EQ(state.OnLeft(), WorkStep::kBegin);
  EXPECT_EQ(state.CheckNew().code(), absl::StatusCode::kAborted);

  EXPECT_EQ(state.OnOrder({1, 4}, FenceOf(1)), WorkStep::kLeave);
  EXPECT_EQ(state.OnLeft(), WorkStep::kBegin);
  EXPECT_EQ(state.CheckNew().code(), absl::StatusCode::kAborted);

  EXPECT_EQ(state.OnOrder({1, 5}, FenceOf(1, 3)), WorkStep::kLeave);
  EXPECT_EQ(state.OnLeft(), WorkStep::kBegin);
  EXPECT_TRUE(state.CheckNew().ok()) << "of another job";
}

TEST(SnapshotClock, MarksAtHalfTheIntervalOnceASlowSnapshotIsSafe) {
  SnapshotClock clock({.every = 10}, 20);
  EXPECT_FALSE(clock.ShouldMark(24, 18));  // the restored step is not safe
  EXPECT_FALSE(clock.ShouldMark(24, 20));  // it is, after four steps
  EXPECT_TRUE(clock.ShouldMark(25, 20));

  clock.OnMarked(25);
  EXPECT_FALSE(clock.ShouldMark(30, 20));
  EXPECT_TRUE(clock.ShouldMark(31, 25));
}

TEST(SnapshotClock, MarksLaterWhereTheLastSnapshotsWereSafeSoon) {
  SnapshotClock clock({.every = 10}, 20);
  EXPECT_FALSE(clock.ShouldMark(21, 20));
  EXPECT_FALSE(clock.ShouldMark(27, 20));
  EXPECT_TRUE(clock.ShouldMark(28, 20));

  clock.OnMarked(28);
  EXPECT_FALSE(clock.ShouldMark(30, 20));
  EXPECT_FALSE(clock.ShouldMark(31, 28));  // after three steps
  EXPECT_TRUE(clock.ShouldMark(34, 28));

  clock.OnMarked(34);
  EXPECT_FALSE(clock.ShouldMark(35, 34));  // after one, but it may vary
  EXPECT_FALSE(clock.ShouldMark(40, 34));
  EXPECT_TRUE(clock.ShouldMark(41, 34));
}

TEST(SnapshotClock, NeitherMarksNorWaitsWhereNoSnapshotsAreWanted) {
  const Instant now{absl::Seconds(100)};
  SnapshotClock clock({.every = 0}, 0);
  EXPECT_FALSE(clock.ShouldMark(1, 0));
  EXPECT_FALSE(clock.ShouldMark(1'000, 0));

  clock.OnMarked(1'000);  // the last one always is
  EXPECT_FALSE(clock.MustWait(1'000, 0, now, now));
}

TEST(SnapshotClock, WaitsOnlyWhereTheCoordinatorMayRaiseTheFloor) {
  const Instant now{absl::Seconds(100)};
  const Instant fresh = now + absl::Milliseconds(-999);
  const Instant stale = now + absl::Seconds(-1);
  SnapshotClock clock({.every = 10}, 20);
  clock.OnMarked(25);

  EXPECT_TRUE(clock.MustWait(30, 20, fresh, now));
  EXPECT_FALSE(clock.MustWait(29, 20, fresh, now));
  EXPECT_FALSE(clock.MustWait(30, 20, stale, now));
  EXPECT_FALSE(clock.MustWait(36, 25, fresh, now));  // nothing is outstanding
}

}  // namespace
}  // namespace paceline

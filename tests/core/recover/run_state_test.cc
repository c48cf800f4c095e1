#include "core/recover/run_state.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr int64_t kLastStep = 40;
const MemberId kSelf{{1}, {100}};
const MemberId kOther{{2}, {200}};

// "gather begin@10 deposit(2,10)"
std::string Text(const WorkActions& actions) {
  std::string text;
  for (const WorkAction& action : actions) {
    if (!text.empty()) text += " ";
    if (const auto* leave = std::get_if<LeaveRun>(&action)) {
      text += leave->keep_state ? "leave-keeping" : "leave";
    } else if (std::holds_alternative<GatherPieces>(action)) {
      text += "gather";
    } else if (const auto* begin = std::get_if<BeginRun>(&action)) {
      absl::StrAppend(&text, "begin@", begin->step);
    } else if (const auto* deposit = std::get_if<DepositPieces>(&action)) {
      absl::StrAppend(&text, "deposit(", deposit->cut.attempt, ",",
                      deposit->cut.step, ")");
    } else if (const auto* held = std::get_if<ApplyHeld>(&action)) {
      absl::StrAppend(&text, "apply@", held->step);
    } else {
      text += "drop";
    }
  }
  return text;
}

class RunStateTest : public ::testing::Test {
 protected:
  JobOrder Order(std::optional<int64_t> attempt, Cut base = {},
                 bool replicas = false) {
    JobOrder order;
    order.number = {1, ++n_};
    order.keep.floor = Cut();
    if (!attempt.has_value()) return order;
    const LayerRange second = replicas ? LayerRange{0, 2} : LayerRange{2, 4};
    order.run =
        RunPlan{*attempt, base, {{{0, 2}, kSelf}, {second, kOther}}, {}};
    order.keep.rows = {{*attempt, base}};
    return order;
  }
  std::string On(const JobOrder& order) {
    WorkActions actions;
    state_.OnOrder(order, actions);
    return Text(actions);
  }
  std::string Left(std::optional<KeptState> kept = std::nullopt) {
    WorkActions actions;
    state_.OnLeft(kept, actions);
    return Text(actions);
  }
  std::string Gathered() {
    WorkActions actions;
    state_.OnGathered(actions);
    return Text(actions);
  }
  std::string Applied(int64_t step, bool marked = false, bool last = false) {
    WorkActions actions;
    state_.OnApplied(step, marked, last, actions);
    return Text(actions);
  }

  WorkState state_{kSelf, kLastStep};
  int64_t n_ = 0;
};

TEST_F(RunStateTest, GathersAndBeginsAtTheBase) {
  EXPECT_EQ(On(Order(2, {1, 10})), "gather");
  EXPECT_EQ(state_.phase(), WorkPhase::kGathering);
  EXPECT_EQ(Gathered(), "deposit(2,10) begin@10");
  EXPECT_EQ(state_.phase(), WorkPhase::kRunning);
  EXPECT_EQ(state_.Report().step, 10);
}

TEST_F(RunStateTest, DepositsAtMarkedStepsAlone) {
  On(Order(1));
  EXPECT_EQ(Gathered(), "begin@0");
  EXPECT_EQ(Applied(1), "");
  EXPECT_EQ(Applied(2, true), "deposit(1,2)");
}

TEST_F(RunStateTest, StopsAfterTheNamedBatchAndStays) {
  On(Order(1));
  Gathered();
  EXPECT_EQ(Applied(7, false, true), "deposit(1,7)");
  EXPECT_EQ(state_.phase(), WorkPhase::kStopped);
  EXPECT_EQ(Applied(8), "");
  EXPECT_EQ(state_.Report().step, 7);
}

TEST_F(RunStateTest, IsDoneWithTheLastStepThoughItWasToStop) {
  On(Order(1));
  Gathered();
  EXPECT_EQ(Applied(kLastStep, false, true), "deposit(1,40)");
  EXPECT_EQ(state_.phase(), WorkPhase::kDone);
}

TEST_F(RunStateTest, EchoesAnOrderWhenItHasLeft) {
  On(Order(1));
  Gathered();
  const JobOrder leave = Order(std::nullopt);
  EXPECT_EQ(On(leave), "leave");
  EXPECT_LT(state_.Report().echo, leave.number);
  EXPECT_EQ(Applied(1, true), "");  // what still comes of the old run

  EXPECT_EQ(Left(), "");
  EXPECT_EQ(state_.Report().echo, leave.number);
  EXPECT_EQ(state_.phase(), WorkPhase::kIdle);
  EXPECT_EQ(state_.Report().attempt, 0);
}

TEST_F(RunStateTest, GoesToTheNewestOfTheOrdersThatCameWhileItLeft) {
  On(Order(1));
  Gathered();
  EXPECT_EQ(On(Order(std::nullopt)), "leave");
  EXPECT_EQ(On(Order(2, {1, 5})), "");
  EXPECT_EQ(On(Order(3, {1, 5})), "");
  EXPECT_EQ(Left(), "gather");
  EXPECT_EQ(state_.run()->attempt, 3);
}

TEST_F(RunStateTest, AnOlderOrderChangesNothing) {
  const JobOrder old = Order(std::nullopt);
  On(Order(1));
  EXPECT_EQ(On(old), "");
  EXPECT_EQ(state_.phase(), WorkPhase::kGathering);
}

TEST_F(RunStateTest, FailsAtAnAttemptThatItHasLeft) {
  On(Order(1));
  On(Order(std::nullopt));
  Left();

  EXPECT_EQ(On(Order(1)), "");
  EXPECT_EQ(state_.phase(), WorkPhase::kFailed);
  EXPECT_EQ(state_.Report().error.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(state_.Report().attempt, 1);
}

TEST_F(RunStateTest, AReplicaKeepsItsStateAndFinishes) {
  On(Order(1, {}, true));
  Gathered();
  EXPECT_EQ(On(Order(std::nullopt)), "leave-keeping");
  EXPECT_EQ(Left(KeptState{6, 7}), "");
  EXPECT_EQ(state_.Report().kept, (KeptState{6, 7}));

  JobOrder finish = Order(std::nullopt);
  finish.finish = 7;
  EXPECT_EQ(On(finish), "apply@7 deposit(1,7)");
  EXPECT_EQ(state_.Report().kept, (KeptState{7, 0}));

  JobOrder next = Order(std::nullopt);
  next.keep.rows = {{1, {}}, {2, {1, 7}}};
  EXPECT_EQ(On(next), "drop");
}

TEST_F(RunStateTest, AReplicaThatLacksTheStepFinishesNothing) {
  On(Order(1, {}, true));
  Gathered();
  On(Order(std::nullopt));
  Left(KeptState{5, 6});

  JobOrder finish = Order(std::nullopt);
  finish.finish = 7;
  EXPECT_EQ(On(finish), "");
}

TEST_F(RunStateTest, IgnoresALowerFloorUntilAnAttemptBeginsBelowIt) {
  JobOrder order = Order(1);
  order.keep.floor = Cut{1, 10};
  On(order);
  JobOrder lower = Order(1);
  lower.keep.floor = Cut{1, 5};
  On(lower);
  EXPECT_EQ(state_.floor(), (Cut{1, 10}));

  JobOrder below = Order(std::nullopt);
  below.keep.rows = {{1, {}}, {2, {1, 4}}};
  On(below);
  EXPECT_EQ(state_.floor(), Cut());
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

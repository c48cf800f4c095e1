#include <gtest/gtest.h>

#include <thread>

#include "worker/rounds/round_turn.h"

namespace paceline {
namespace {

// A thread that asks once.
class Asker {
 public:
  explicit Asker(LossRequests& door)
      : thread_([this, &door] { loss_ = door.AtPresent(); }) {}

  absl::StatusOr<double> Loss() {
    thread_.join();
    return loss_;
  }

 private:
  absl::StatusOr<double> loss_;
  std::thread thread_;
};

TEST(LossRequests, BringsTheQuestionToTheTurnsAndTheAnswerBack) {
  RoundTurns turns(10);
  LossRequests door(turns);
  Asker asker(door);

  const RoundTurn turn = turns.Await().value();
  EXPECT_EQ(turn.kind, RoundTurn::Kind::kLoss);
  EXPECT_TRUE(door.Take(turn));
  door.Answer(0.5);

  EXPECT_EQ(asker.Loss().value(), 0.5);
}

// Else the compute thread would read memory that is no more.
TEST(LossRequests, WaitsForAQuestionThatWasTakenAlthoughTheRunEnds) {
  RoundTurns turns(10);
  LossRequests door(turns);
  Asker asker(door);
  ASSERT_TRUE(door.Take(turns.Await().value()));

  door.End();
  door.SetShut(true);
  door.Answer(2.0);

  EXPECT_EQ(asker.Loss().value(), 2.0);
}

TEST(LossRequests, WithdrawsWhatNobodyTookWhenTheRunEnds) {
  RoundTurns turns(10);
  LossRequests door(turns);
  Asker asker(door);
  const RoundTurn turn = turns.Await().value();

  door.End();

  EXPECT_EQ(asker.Loss().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(door.Take(turn));
  EXPECT_EQ(door.AtPresent().status().code(), absl::StatusCode::kCancelled);
}

TEST(LossRequests, WithdrawsWhatNobodyTookWhileItIsShut) {
  RoundTurns turns(10);
  LossRequests door(turns);
  Asker asker(door);
  const RoundTurn turn = turns.Await().value();

  door.SetShut(true);

  EXPECT_EQ(asker.Loss().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(door.AtPresent().status().code(), absl::StatusCode::kCancelled);
}

TEST(LossRequests, NeverTakesATurnForTheQuestionAfterIt) {
  RoundTurns turns(10);
  LossRequests door(turns);
  Asker first(door);
  const RoundTurn old = turns.Await().value();
  door.SetShut(true);
  EXPECT_FALSE(first.Loss().ok());
  door.SetShut(false);
  Asker second(door);
  const RoundTurn turn = turns.Await().value();

  EXPECT_FALSE(door.Take(old));
  EXPECT_TRUE(door.Take(turn));
  door.Answer(3.0);

  EXPECT_EQ(second.Loss().value(), 3.0);
}

}  // namespace
}  // namespace paceline

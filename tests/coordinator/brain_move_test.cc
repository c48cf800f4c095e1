// A pipeline that trains moves while it runs: off a worker that is drained.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

class Moves : public ::testing::Test, public Mesh {
 protected:
  // Stopped after 7 steps of the first attempt, with all layers' states.
  void StopWithPieces(StreamId stream) {
    v1::Heartbeat heartbeat = Beat(v1::RunState::PHASE_STOPPED, 7);
    heartbeat.mutable_run()->set_attempt(1);
    heartbeat.mutable_run()->set_plan_version(1);
    heartbeat.mutable_run()->set_stopped_at(7);
    AddPieces(heartbeat, {1, 7});
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }

  void AddPieces(v1::Heartbeat& heartbeat, Cut cut) const {
    v1::PiecesHeld::OfJob& held = *heartbeat.mutable_pieces()->add_jobs();
    held.set_job(job().value);
    v1::PiecesHeld::HeldCut& of_cut = *held.add_cuts();
    *of_cut.mutable_cut() = ToProto(cut);
    *of_cut.add_layers() = ToProto(LayerRange{0, 4});
  }

  v1::Worker ViewOf(const std::string& name) const {
    for (const v1::Worker& worker : ViewWorkers()) {
      if (worker.registration().name() == name) return worker;
    }
    return {};
  }

  const StreamId a_ = Attach("a", 1);
  const StreamId b_ = Attach("b", 2);
  const StreamId c_ = Attach("c", 3);
  const JobId job_ = Submit(SpecOf(2));
};

TEST_F(Moves, ADrainedWorkerHandsOverAtABatchEndAndThenMayGo) {
  Report(a_, job_, v1::RunState::PHASE_RUNNING, 5);
  Report(b_, job_, v1::RunState::PHASE_RUNNING, 5);
  ASSERT_FALSE(Order(c_).run.has_value());

  ASSERT_TRUE(Drain("b", true).ok());
  EXPECT_TRUE(Order(a_).run->stop_after_batch);
  EXPECT_TRUE(Order(b_).run->stop_after_batch);
  StopWithPieces(a_);
  StopWithPieces(b_);

  ASSERT_TRUE(Order(c_).run.has_value()) << Why();
  EXPECT_EQ(Order(c_).run->base, (Cut{1, 7}));
  EXPECT_FALSE(Order(b_).run.has_value());
  EXPECT_EQ(ViewOf("b").job(), job_.value) << "nobody has a copy yet";
  EXPECT_TRUE(ViewOf("b").stages().empty());

  v1::Heartbeat heartbeat = Beat(v1::RunState::PHASE_RUNNING, 7);
  AddPieces(heartbeat, {1, 7});
  ASSERT_TRUE(Send(c_, heartbeat).ok());
  EXPECT_EQ(ViewOf("b").job(), 0);
}

}  // namespace
}  // namespace paceline

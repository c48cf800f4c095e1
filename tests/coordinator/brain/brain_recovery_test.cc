// How the brain finds that a worker of a pipeline hangs, and what it stores.
// tests/golden/coordinator/pipelines.txt has the other losses.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/brain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Three stages on workers "a", "b" and "c", all running.
class PipelineOfThree : public testing::Test, public Mesh {
 protected:
  PipelineOfThree() {
    for (const StreamId stream : {a_, b_, c_}) Say(stream, 1);
  }

  // A heartbeat after `step` steps with progress.
  v1::Heartbeat At(int64_t step) {
    v1::Heartbeat heartbeat = Beat(kRunning, step);
    heartbeat.set_progress(100 * step);
    heartbeat.mutable_run()->mutable_member();
    return heartbeat;
  }
  void Say(StreamId stream, int64_t step) {
    ASSERT_TRUE(Send(stream, At(step)).ok());
  }
  void SayAtWork(StreamId stream) {
    v1::Heartbeat heartbeat = At(1);
    heartbeat.mutable_run()->mutable_member()->set_turn(1);
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }
  // The workers that the newest order to that one names.
  std::vector<std::string> Placed(StreamId stream) {
    std::vector<std::string> names;
    for (const StagePlacement& stage : Order(stream).run->stages) {
      names.push_back(stage.worker_name);
    }
    return names;
  }
  // Those that leave the attempt, and say so.
  void Leave(const std::vector<StreamId>& streams) {
    for (const StreamId stream : streams) {
      EXPECT_FALSE(Order(stream).run.has_value());
      ASSERT_TRUE(Send(stream, v1::Heartbeat()).ok());
    }
  }

  const StreamId a_ = Attach("a", 1);
  const StreamId b_ = Attach("b", 2);
  const StreamId c_ = Attach("c", 3);
  const JobId job_ = Submit(SpecOf(3));
};

// The coordinator may be killed after every commit: the next one has the same
// jobs, and none of them is behind what somebody was told.
TEST_F(PipelineOfThree, EveryCommitLeavesEveryJobOnceAndNoneBehind) {
  std::map<int64_t, std::pair<int64_t, int64_t>> told;  // attempt, step
  std::set<v1::JobState> states;
  size_t jobs = 1;
  OnCommit([&] {
    const Brain next(BrainPolicy{}, stored(), Now());
    std::vector<v1::Job> found;
    for (const auto& [id, record] : stored().jobs) {
      found.push_back(next.ViewStored(record));
    }
    ASSERT_EQ(found.size(), jobs);
    for (const v1::Job& job : found) {
      const std::pair<int64_t, int64_t> now = {job.attempt(), job.step()};
      EXPECT_GE(now, told[job.id()]) << "job " << job.id();
      told[job.id()] = {job.attempt(), 0};
      if (job.id() == job_.value) states.insert(job.state());
    }
  });

  jobs = 2;
  const JobId second = Submit(SpecOf(1));
  ReportSteps(a_, v1::RunState::PHASE_RUNNING, 1, 12, false);
  Mesh::Leave(b_, /*restarting=*/false);  // attempt 2 begins on the others
  Leave({a_, c_});
  EXPECT_EQ(told[job_.value].first, 2);
  for (const StreamId stream : {a_, c_}) {
    Report(stream, job_, v1::RunState::PHASE_DONE, 60);
  }
  Saved(SavedWeights{"weights", "hash", 1});

  EXPECT_EQ(State(), JobState::kSucceeded) << Why();
  EXPECT_EQ(State(second), JobState::kRunning);
  EXPECT_THAT(states,
              ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
}

TEST_F(PipelineOfThree, AWorkerThatHangsInAnInstructionIsTakenOut) {
  // Nothing is known of how long an instruction may take: a minute.
  for (int64_t ms = 0; ms < 60'000; ms += 500) {
    SayAtWork(b_);
    Say(a_, 1);
    Say(c_, 1);
    ASSERT_TRUE(Order(a_).run.has_value()) << ms;
    Pass(500);
  }
  SayAtWork(b_);
  Pass(50);

  EXPECT_THAT(Story(), Tells("b: it answers", "instruction for 60.0 s"));
  Leave({a_, c_});
  // It does not leave either, and is asked to execute itself anew.
  for (int64_t ms = 0; ms <= 60'000; ms += 500) {
    SayIdle({a_, c_});
    v1::Heartbeat stuck = At(1);
    stuck.mutable_echo()->set_term(1);
    stuck.mutable_run()->set_attempt(1);
    ASSERT_TRUE(Send(b_, stuck).ok());
    Pass(500);
  }

  EXPECT_THAT(Placed(a_), Not(Contains("b")));
  EXPECT_TRUE(Order(b_).renew);
  EXPECT_THAT(Events(), Contains("excluded"));
}

TEST_F(PipelineOfThree, AMeasuredInstructionHasTheLeaseAtLeast) {
  const auto timed = [&](StreamId stream, bool at_work) {
    v1::Heartbeat heartbeat = At(1);
    heartbeat.mutable_run()->mutable_member()->set_turn(at_work ? 1 : 0);
    for (int stage = 0; stage < 3; ++stage) {
      v1::StageTime& time = *heartbeat.mutable_run()->add_stage_times();
      time.set_stage(stage);
      time.set_seconds(0.1);
      time.set_micro_batches(10);
    }
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  };
  for (int64_t ms = 0; ms < 3000; ms += 500) {
    timed(a_, false);
    timed(b_, true);
    timed(c_, false);
    ASSERT_TRUE(Order(a_).run.has_value()) << ms;
    Pass(500);
  }
  timed(b_, true);
  Pass(50);

  EXPECT_THAT(Story(), Tells("no instruction for 3.0 s"));
}

}  // namespace
}  // namespace paceline

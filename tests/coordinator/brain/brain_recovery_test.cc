// How the brain finds that a worker of a pipeline hangs, and what it stores.
// tests/golden/coordinator/pipelines.txt has the other losses.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/brain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

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

  EXPECT_EQ(State(), v1::JOB_STATE_SUCCEEDED) << Why();
  EXPECT_EQ(State(second), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(states,
              ElementsAre(v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED));
}

}  // namespace
}  // namespace paceline

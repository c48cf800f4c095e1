// How the brain finds that a worker of a pipeline is lost, hangs, or does not
// reach a neighbour, and how the job goes on.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/brain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Three stages on workers "a", "b" and "c", all running.
class PipelineOfThree : public testing::Test, public Mesh {
 protected:
  explicit PipelineOfThree(const JobSpec& spec = SpecOf(3))
      : job_(Submit(spec)) {
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
  void SayBroken(StreamId stream, int64_t worker, int64_t broken_ms,
                 bool refused = false) {
    v1::Heartbeat heartbeat = At(1);
    v1::PeerState& link =
        *heartbeat.mutable_run()->mutable_member()->add_peers();
    link.mutable_peer()->set_worker_id(worker);
    link.mutable_peer()->set_incarnation(1);
    link.set_broken_ms(broken_ms);
    link.set_refused(refused);
    ASSERT_TRUE(Send(stream, heartbeat).ok());
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
  const JobId job_;
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

// Else the next attempt would run again what has no record.
TEST_F(PipelineOfThree, TakesTheRecordsOfOneThatHasLeftItsAttempt) {
  Mesh::Leave(b_, /*restarting=*/false);
  v1::Heartbeat left;
  left.mutable_kept()->set_job(job_.value);
  left.mutable_kept()->set_applied(3);
  left.add_steps()->set_step(3);

  for (const int64_t attempt : {2, 1}) {
    left.mutable_kept()->set_attempt(attempt);
    EXPECT_EQ(Record().job.recorded_step(), 0);
    ASSERT_TRUE(Send(a_, left).ok());
  }

  EXPECT_EQ(Record().job.recorded_step(), 3);
}

// "d" is no part of the job, and "a" says what cannot be.
TEST_F(PipelineOfThree, NumbersThatNobodyGaveOutChangeNothing) {
  const StreamId d = Attach("d", 4);
  constexpr int64_t kFar = int64_t{1} << 50;
  for (const StreamId stream : {d, a_}) {
    v1::Heartbeat heartbeat = At(kFar);
    heartbeat.mutable_run()->set_steps(kFar);
    heartbeat.add_steps()->set_step(kFar);
    *heartbeat.add_evaluations() = PartOf(kFar, 1, 1, 1);
    *heartbeat.add_evaluations() = PartOf(60, 1, 1, 1);  // "c" evaluates
    v1::PiecesHeld::OfJob& held = *heartbeat.mutable_pieces()->add_jobs();
    held.set_job(job_.value);
    held.add_cuts()->mutable_cut()->set_attempt(1);
    held.mutable_cuts(0)->mutable_cut()->set_step(kFar);
    held.mutable_cuts(0)->add_layers()->set_last(4);
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }
  v1::Heartbeat kept;
  kept.mutable_kept()->set_job(job_.value);
  kept.mutable_kept()->set_attempt(1);
  kept.mutable_kept()->set_applied(7);
  kept.add_steps()->set_step(7);
  ASSERT_TRUE(Send(d, kept).ok());

  const v1::Job job = Job();
  EXPECT_EQ(job.recorded_step(), 0);
  EXPECT_LE(job.evaluated_step(), 0);
  EXPECT_LE(job.step(), 60);
  EXPECT_EQ(job.steps(), 60);
  Mesh::Leave(b_, /*restarting=*/false);
  Leave({a_, c_});
  SayIdle({d});  // it was told to follow
  ASSERT_TRUE(Order(a_).run.has_value()) << Why();
  EXPECT_EQ(Order(a_).run->fence.attempt, 2);
  EXPECT_EQ(Order(a_).run->base, Cut());
}

TEST_F(PipelineOfThree, GoesOnAsElseWhenTheWallClockIsSetBack) {
  SetWallClockBack(3'600'000);
  Mesh::Leave(b_, /*restarting=*/false);
  Leave({a_, c_});

  EXPECT_TRUE(Order(a_).run.has_value() && Order(c_).run.has_value());
  SetWallClockBack(3'600'000);
  for (const StreamId stream : {a_, c_}) {
    Report(stream, job_, v1::RunState::PHASE_DONE, 60);
  }
  Saved(SavedWeights{"weights", "hash", 1});

  EXPECT_EQ(State(), JobState::kSucceeded) << Why();
  EXPECT_EQ(Job().attempt(), 2);
}

TEST_F(PipelineOfThree, GoesOnWithAWorkerThatWasSuspectWhenItBegan) {
  const StreamId d = Attach("d", 4);
  const StreamId e = Attach("e", 5);
  Pass(1600, {a_, b_, c_, d});  // e is suspect
  const JobId second = Submit(SpecOf(1));
  ASSERT_EQ(StageWorker(second, 0), "d");
  SayIdle({e});

  Mesh::Leave(d, /*restarting=*/false);
  SayIdle({a_, b_, c_, e});  // they followed

  ASSERT_TRUE(Order(e).run.has_value());
  EXPECT_EQ(Order(e).run->fence.job, second);
}

TEST_F(PipelineOfThree, WaitsForNoWorkerThatWasForgotten) {
  Attach("d", 4);
  Mesh after(stored(), 100000);
  const StreamId a = after.Attach("a", 1);
  const StreamId b = after.Attach("b", 2);
  const StreamId c = after.Attach("c", 3);
  ASSERT_TRUE(after.Forget("d").ok());
  for (const StreamId stream : {a, b, c}) {
    after.Report(stream, after.job(), kRunning, 1);
  }

  after.Leave(b, /*restarting=*/false);
  after.SayIdle({a, c});
  // It may have held more than is known.
  after.Pass(absl::ToInt64Milliseconds(BrainPolicy().return_period), {a, c});

  EXPECT_EQ(after.Job().attempt(), 2);
}

// In the other order as well: see the tests of Membership.
TEST_F(PipelineOfThree, ABrokenStreamAndANeighboursBrokenLinkAreALossAtOnce) {
  SayBroken(a_, 2, 0, /*refused=*/true);
  EXPECT_TRUE(Order(a_).run.has_value());
  Break(b_);

  EXPECT_FALSE(Order(a_).run.has_value()) << "it leaves the attempt";
  EXPECT_THAT(Story(), Tells("lost: b: its stream broke", "worker a says"));
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

TEST_F(PipelineOfThree, AWorkerThatWaitsForOthersDoesNotHang) {
  for (int64_t ms = 0; ms < 120'000; ms += 500) {
    for (const StreamId stream : {a_, b_, c_}) Say(stream, 1);
    Pass(500);
  }

  EXPECT_EQ(Job().attempt(), 1);
  EXPECT_TRUE(Order(a_).run.has_value());
}

// As one whose machine was stopped below the lease, or whose Wi-Fi paused.
TEST_F(PipelineOfThree, AWorkerThatIsSilentForSecondsComesBackAsTheOneItWas) {
  SayAtWork(b_);
  for (int64_t ms = 0; ms < 2900; ms += 100) {
    Say(a_, 1);
    Say(c_, 1);
    Pass(100);
  }
  EXPECT_EQ(ViewWorkers()[1].state(), v1::WORKER_STATE_SUSPECT);

  SayAtWork(b_);
  Pass(50);
  Say(b_, 2);

  EXPECT_EQ(Job().attempt(), 1);
  EXPECT_TRUE(Order(b_).run.has_value());
  EXPECT_THAT(Events(), Not(Contains("left")));
}

TEST_F(PipelineOfThree, ACutLinkBetweenTwoThatLiveKeepsOneFromHoldingStages) {
  for (int64_t ms = 0; ms < 3000; ms += 500) {
    Say(a_, 1);
    SayBroken(b_, 3, ms);
    SayBroken(c_, 2, ms);
    ASSERT_TRUE(Order(a_).run.has_value()) << ms;
    Pass(500);
  }
  SayBroken(b_, 3, 3000);
  Pass(50);
  Leave({a_, b_, c_});

  EXPECT_THAT(Story(), Tells("c: the link to b is cut"));
  EXPECT_THAT(Placed(a_), Not(Contains("c")));
  EXPECT_THAT(Placed(a_), Contains("b"));
}

JobSpec OnAllThree() {
  JobSpec spec = SpecOf(3);
  spec.pipeline.cuts = {1, 2};
  spec.pipeline.workers = {"a", "b", "c"};
  return spec;
}

class PipelineOfNamedWorkers : public PipelineOfThree {
 protected:
  PipelineOfNamedWorkers() : PipelineOfThree(OnAllThree()) {}
};

TEST_F(PipelineOfNamedWorkers, PauseForACutLinkAndTryItAgainSoon) {
  for (int64_t ms = 0; ms <= 3000; ms += 500) {
    Say(a_, 1);
    SayBroken(b_, 3, ms);
    SayBroken(c_, 2, ms);
    Pass(ms < 3000 ? 500 : 50);
  }
  Leave({a_, b_, c_});
  ASSERT_THAT(Why(), HasSubstr("the link to b is cut"));

  Pass(11'000, {a_, b_, c_});

  EXPECT_THAT(Placed(a_), Contains("c"));
}

// --- What workers read from their own disks ----------------------------------

// Two stages on two of four workers.
class PipelineAmongFour : public testing::Test, public Mesh {
 protected:
  PipelineAmongFour() {
    for (const char* const name : {"a", "b", "c", "d"}) {
      there_.push_back(Attach(name, there_.size() + 1));
    }
    JobSpec spec = SpecOf(2);
    spec.model.weights = "/weights";
    Submit(spec);
  }
  void SayRead(StreamId stream, uint64_t weights, uint64_t data) {
    v1::Heartbeat heartbeat = Beat(v1::RunState::PHASE_RUNNING, 1);
    heartbeat.mutable_run()->mutable_inputs()->set_weights(weights);
    heartbeat.mutable_run()->mutable_inputs()->set_data(data);
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }
  // Its stream breaks, and the others leave the attempt.
  void Lose(StreamId stream) {
    std::erase(there_, stream);
    Break(stream);
    Pass(5000, there_);
  }
  // Those that are there and have an order to run.
  std::vector<StreamId> Running() {
    std::vector<StreamId> running;
    for (const StreamId stream : there_) {
      if (Order(stream).run.has_value()) running.push_back(stream);
    }
    return running;
  }

  std::vector<StreamId> there_;
};

TEST_F(PipelineAmongFour, AWorkerThatHasOtherFilesIsUnfitAndTheJobGoesOn) {
  const std::vector<StreamId> first = Running();
  ASSERT_EQ(first.size(), 2u);
  SayRead(first[0], 5, 6);
  SayRead(first[1], 5, 0);
  EXPECT_EQ(Order(first[1]).run->inputs.weights(), 0u) << "nobody had read it";
  Lose(first[0]);
  std::vector<StreamId> second = Running();
  std::erase(second, first[1]);
  ASSERT_EQ(second.size(), 1u);
  const StreamId other = second[0];
  const RunOrder run = *Order(other).run;
  EXPECT_EQ(run.fence.attempt, 2);
  EXPECT_EQ(run.inputs.weights(), 5u);
  EXPECT_EQ(run.inputs.data(), 6u);
  v1::Inputs others;
  others.set_weights(7);

  Report(other, job(), v1::RunState::PHASE_FAILED, 0,
         CheckInputs(others, run.inputs, run.spec));
  Pass(200, there_);

  EXPECT_THAT(Story(), Contains(HasSubstr("holds no stage from now on")));
  EXPECT_THAT(Story(),
              Contains(HasSubstr("model.weights /weights has fingerprint "
                                 "0000000000000007 on this worker, and the job "
                                 "began with 0000000000000005")));
  EXPECT_EQ(State(), JobState::kRunning) << Why();
  EXPECT_EQ(Job().attempt(), 3);
  EXPECT_EQ(Running().size(), 2u);
  EXPECT_THAT(Running(), Not(Contains(other)));
}

TEST_F(PipelineAmongFour, TwoThatDifferBeforeAnybodyKnewFailTheJob) {
  const std::vector<StreamId> first = Running();
  ASSERT_EQ(first.size(), 2u);
  SayRead(first[0], 5, 6);

  SayRead(first[1], 7, 0);

  EXPECT_EQ(State(), JobState::kFailed);
  EXPECT_THAT(Why(), HasSubstr(": model.weights /weights has fingerprint "
                               "0000000000000007 on this worker"));
  EXPECT_TRUE(Running().empty());
}

TEST_F(PipelineAmongFour, ACoordinatorThatStartsAnewKnowsWhatTheJobBeganWith) {
  SayRead(Running().at(0), 5, 6);

  const Mesh again(stored());

  EXPECT_EQ(again.Record(job()).job.inputs().weights(), 5u);
  EXPECT_EQ(again.Record(job()).job.inputs().data(), 6u);
}

// --- Environments ------------------------------------------------------------

std::function<void(v1::Registration&)> StartedFor(
    const std::string& capability) {
  return [capability](v1::Registration& worker) {
    worker.set_started_for(capability);
  };
}

JobSpec AtDefault(int stages) {
  JobSpec spec = SpecOf(stages);
  spec.cpu_capability = "default";
  return spec;
}

TEST(Settling, ProcessesStartAnewBeforeTheFirstAttempt) {
  for (const bool group : {false, true}) {
    SCOPED_TRACE(group);
    Mesh mesh;
    const StreamId a = mesh.Attach("a", 1, StartedFor("avx512"));
    const StreamId b = mesh.Attach("b", 2, StartedFor("default"));
    JobSpec spec = group ? GroupSpec() : SpecOf(0);
    spec.cpu_capability = "default";

    const JobId job = mesh.Submit(spec);

    EXPECT_EQ(mesh.State(), JobState::kQueued);
    EXPECT_THAT(mesh.Why(), HasSubstr("waits for worker a to start anew at "
                                      "cpu_capability default"));
    EXPECT_EQ(mesh.Order(a).settle, "default");
    EXPECT_EQ(mesh.Order(b).settle, "");
    // It is planned with meanwhile.
    mesh.Leave(a, /*restarting=*/true);
    mesh.Break(a);
    mesh.Pass(500, {b});
    EXPECT_EQ(mesh.State(), JobState::kQueued);

    const StreamId again = mesh.Attach("a", 9, StartedFor("default"));

    ASSERT_TRUE(mesh.Order(again).run.has_value()) << mesh.Why();
    EXPECT_EQ(mesh.Order(again).run->fence, (Fence{job, 1, 1}));
    EXPECT_EQ(mesh.Order(again).settle, "");
    EXPECT_TRUE(mesh.Order(b).run.has_value());
  }
}

TEST(Settling, AWorkerThatIsLostMeanwhileIsNotWaitedFor) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1, StartedFor("avx512"));
  const StreamId b = mesh.Attach("b", 2, StartedFor("default"));
  mesh.Submit(AtDefault(0));

  mesh.Break(a);
  mesh.Pass(10'000, {b});

  EXPECT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
  EXPECT_EQ(mesh.Order(b).run->stages.size(), 1u);
}

TEST(Settling, LaterJobsWaitBehindTheOneThatIsNext) {
  Mesh mesh;
  mesh.Attach("a", 1, StartedFor("avx512"));
  mesh.Attach("b", 2, StartedFor("avx512"));
  mesh.Submit(AtDefault(1));

  const JobId second = mesh.Submit(SpecOf(1));

  EXPECT_EQ(mesh.State(second), JobState::kQueued);
  EXPECT_THAT(mesh.Why(second), HasSubstr("waits for job 1"));
}

TEST(Settling, ANewcomerStartsAnewBeforeALaterAttempt) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1, StartedFor("default"));
  const StreamId b = mesh.Attach("b", 2, StartedFor("default"));
  mesh.Submit(AtDefault(2));
  mesh.Report(a, mesh.job(), v1::RunState::PHASE_RUNNING);
  mesh.Report(b, mesh.job(), v1::RunState::PHASE_RUNNING);
  const StreamId c = mesh.Attach("c", 3, StartedFor("avx512"));
  ASSERT_TRUE(mesh.Send(c, {}).ok());
  mesh.Break(a);

  mesh.Pass(5000, {b, c});

  EXPECT_EQ(mesh.Job().attempt(), 1);
  EXPECT_EQ(mesh.Order(c).settle, "default");
  EXPECT_FALSE(mesh.Order(c).run.has_value());
  const StreamId again = mesh.Attach("c", 9, StartedFor("default"));
  mesh.Pass(100, {b, again});

  ASSERT_TRUE(mesh.Order(again).run.has_value()) << mesh.Why();
  EXPECT_EQ(mesh.Order(again).run->fence.attempt, 2);
  EXPECT_EQ(mesh.Order(again).settle, "");
}

TEST(GroupClaims, AStepOrAViewThatThereNeverWasMovesNobody) {
  constexpr int64_t kFar = int64_t{1} << 50;
  GroupMesh mesh = Training(3);
  mesh.SayAll(5);
  for (const bool far_step : {true, false}) {
    v1::Heartbeat beat = mesh.Beat("w3");
    v1::MemberState& member = *beat.mutable_run()->mutable_member();
    if (far_step) member.set_next(kFar);
    if (!far_step) member.mutable_view()->set_counter(kFar);
    beat.add_steps()->set_step(kFar);
    *beat.add_evaluations() = PartOf(kFar, 1, 1, 1);
    v1::RoundRecord& round = *beat.add_rounds();
    round.set_step(5);
    round.set_server(99);  // no worker of the job
    round.set_cosine(1);
    mesh.Send("w3", beat);
  }

  const v1::Job job = mesh.Job();
  EXPECT_LE(job.step(), 60);
  EXPECT_EQ(job.recorded_step(), 0);
  EXPECT_EQ(job.conflict().rounds(), 0);
  EXPECT_EQ(job.workers(2).member().next(), 5);
  mesh.Attach("w4", 104);
  mesh.Level("w4", 6);
  EXPECT_EQ(mesh.Members("w1"), "w1 w2 w3 w4");
  EXPECT_LE(mesh.ViewOf("w1").members[3].from_step, 60);
}

}  // namespace
}  // namespace paceline

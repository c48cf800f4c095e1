// A pipeline moves while it runs: to a better plan, and off a worker that is
// drained.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

constexpr double kLayerSeconds = 0.02;  // of a micro-batch, both ways

// Six layers, of which the first three workers have profiles.
JobSpec MovingSpec(int stages) {
  JobSpec spec = SpecOf(stages);
  spec.model.hidden = {16, 16, 16, 16, 16};
  spec.train.steps = 100'000;
  spec.pipeline.policy = "optimal";
  return spec;
}

StoredState Profiled() {
  StoredState state;
  for (const char* const name : {"a", "b", "c"}) {
    state.measurements.Put(ProfileOf(MovingSpec(2), name, kLayerSeconds / 2));
  }
  return state;
}

int LayersOn(const JobRecord& record, WorkerId worker) {
  int layers = 0;
  for (const StageOfPlan& stage : record.stages) {
    if (stage.worker == worker)
      layers += stage.layers.last - stage.layers.first;
  }
  return layers;
}
constexpr WorkerId kA{1};
constexpr WorkerId kB{2};

class Moves : public ::testing::Test, public Mesh {
 protected:
  Moves() : Mesh(Profiled()) {}

  // The worker's stages have computed `micro_batches` more, in so many times
  // the time that was measured.
  void Compute(StreamId stream, const std::string& name, double slowness,
               int64_t micro_batches = 20) {
    v1::Heartbeat heartbeat = Beat(kRunning, 5);
    v1::RunState& run = *heartbeat.mutable_run();
    run.set_steps(100'000);
    const JobRecord record = Record();
    for (int i = 0; i < std::ssize(record.stages); ++i) {
      if (StageWorker(job(), i) != name) continue;
      v1::StageTime& time = *run.add_stage_times();
      time.set_stage(i);
      const v1::StageTime before = record.job.stage_times_size() > i
                                       ? record.job.stage_times(i)
                                       : v1::StageTime();
      const LayerRange layers = record.stages[i].layers;
      time.set_micro_batches(before.micro_batches() + micro_batches);
      time.set_seconds(before.seconds() +
                       slowness * kLayerSeconds * (layers.last - layers.first) *
                           static_cast<double>(micro_batches));
      run.set_timed_steps(record.job.timed_steps() + 1);
      run.set_step_seconds(record.job.timed_seconds() + 1);
    }
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }

  // `seconds` in which stages compute, those of "b" `slowness` times as long.
  void Train(int seconds, double slowness,
             const std::vector<StreamId>& idle = {}) {
    for (int i = 0; i < seconds; ++i) {
      Pass(1000, idle);
      Compute(a_, "a", 1);
      Compute(b_, "b", slowness);
    }
  }

  bool IsToStop(StreamId stream) {
    return Order(stream).run.has_value() && Order(stream).run->stop_after_batch;
  }

  // Stopped after 7 steps of the first attempt, with all layers' states.
  void StopWithPieces(StreamId stream) {
    v1::Heartbeat heartbeat = Beat(kStopped, 7);
    heartbeat.mutable_run()->set_attempt(1);
    heartbeat.mutable_run()->set_plan_version(1);
    heartbeat.mutable_run()->set_stopped_at(7);
    heartbeat.mutable_run()->clear_steps();
    AddPieces(heartbeat, {1, 7});
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }

  void AddPieces(v1::Heartbeat& heartbeat, Cut cut) const {
    v1::PiecesHeld::OfJob& held = *heartbeat.mutable_pieces()->add_jobs();
    held.set_job(job().value);
    v1::PiecesHeld::HeldCut& of_cut = *held.add_cuts();
    *of_cut.mutable_cut() = ToProto(cut);
    *of_cut.add_layers() = ToProto(LayerRange{0, 6});
  }

  v1::Worker ViewOf(const std::string& name) const {
    for (const v1::Worker& worker : ViewWorkers()) {
      if (worker.registration().name() == name) return worker;
    }
    return {};
  }

  const StreamId a_ = Attach("a", 1);
  const StreamId b_ = Attach("b", 2);
};

TEST_F(Moves, LayersLeaveAWorkerThatHasBecomeSlow) {
  Submit(MovingSpec(2));
  Train(60, 1);
  EXPECT_FALSE(IsToStop(a_)) << "nothing is better than this";

  Train(29, 2);
  EXPECT_FALSE(IsToStop(a_)) << "it may be for a moment only";
  Train(11, 2);

  EXPECT_TRUE(IsToStop(a_));
  EXPECT_TRUE(IsToStop(b_));
  EXPECT_THAT(Story(), Tells("move: there is a better plan"));
  StopWithPieces(a_);
  StopWithPieces(b_);

  EXPECT_EQ(Record().job.attempt(), 2);
  EXPECT_EQ(Job().phase(), "moving") << "nothing was lost";
  EXPECT_EQ(Order(a_).run->base, (Cut{1, 7}));
  EXPECT_EQ(LayersOn(Record(), kA), 4) << "two thirds of the layers";
}

TEST_F(Moves, AnIdleWorkerTakesTheSlowOnesPlace) {
  Submit(MovingSpec(2));
  const StreamId c = Attach("c", 3);
  ASSERT_EQ(ViewOf("c").job(), 0);

  Train(45, 5, {c});
  ASSERT_TRUE(IsToStop(a_)) << Why();
  StopWithPieces(a_);
  StopWithPieces(b_);

  ASSERT_TRUE(Order(c).run.has_value());
  EXPECT_FALSE(Order(b_).run.has_value());
}

TEST_F(Moves, AWorkerThatJoinsIsUsedWhenItPays) {
  Submit(MovingSpec(3));
  Train(10, 1);

  const StreamId c = Attach("c", 3);
  Train(45, 1, {c});

  EXPECT_TRUE(IsToStop(a_));
}

TEST_F(Moves, IdleWorkersAreLeftToAJobThatWaits) {
  Submit(MovingSpec(3));
  Submit(MovingSpec(2));  // wants two workers
  Train(10, 1);
  const StreamId c = Attach("c", 3);
  Train(60, 1, {c});

  EXPECT_FALSE(IsToStop(a_));
}

// A drained worker makes the job stop at step 7.  `evaluated`: the newest
// evaluation that is stored by then; `steps`: of the job.
class Stops : public Moves {
 protected:
  RunOrder OrderAfter(int64_t evaluated, int64_t steps,
                      int64_t test_samples = 10) {
    Submit(MovingSpec(2));
    const StreamId c = Attach("c", 3);
    EXPECT_TRUE(Send(c, v1::Heartbeat()).ok());
    for (const StreamId stream : {a_, b_}) {
      v1::Heartbeat heartbeat = Beat(kRunning, 6);
      heartbeat.mutable_run()->set_steps(steps);
      heartbeat.mutable_run()->set_total_samples(test_samples);
      *heartbeat.add_evaluations() = PartOf(evaluated, 1, 0.5, 10);
      EXPECT_TRUE(Send(stream, heartbeat).ok());
    }
    EXPECT_TRUE(Drain("b", true).ok());
    StopWithPieces(a_);
    StopWithPieces(b_);
    EXPECT_TRUE(Order(c).run.has_value()) << Why();
    return Order(c).run.value_or(RunOrder());
  }
};

TEST_F(Stops, AnEvaluationThatIsStoredIsNotMadeAgain) {
  const RunOrder order = OrderAfter(7, 20);
  EXPECT_TRUE(order.evaluated);
  EXPECT_FALSE(order.trained);
}

TEST_F(Stops, AnEvaluationThatIsDueAtTheStopIsMade) {
  EXPECT_FALSE(OrderAfter(6, 20).evaluated);
}

TEST_F(Stops, AfterTheLastStepTheLastEvaluationIsMade) {
  EXPECT_FALSE(OrderAfter(6, 7).trained);
}

TEST_F(Stops, AfterTheLastEvaluationNothingIsLeftToRun) {
  EXPECT_TRUE(OrderAfter(7, 7).trained);
}

TEST_F(Stops, AfterTheLastStepNothingIsLeftToRunWithoutATestSet) {
  EXPECT_TRUE(OrderAfter(0, 7, /*test_samples=*/0).trained);
}

TEST_F(Moves, ADrainedWorkerHandsOverAtABatchEndAndThenMayGo) {
  Submit(MovingSpec(2));
  const StreamId c = Attach("c", 3);
  Train(1, 1, {c});

  ASSERT_TRUE(Drain("b", true).ok());

  EXPECT_TRUE(IsToStop(a_));
  StopWithPieces(a_);
  StopWithPieces(b_);
  ASSERT_TRUE(Order(c).run.has_value()) << Why();
  EXPECT_EQ(Order(c).run->base, (Cut{1, 7}));
  EXPECT_FALSE(Order(b_).run.has_value());
  EXPECT_EQ(ViewOf("b").job(), job().value) << "c has no copy yet";
  EXPECT_TRUE(ViewOf("b").stages().empty());

  v1::Heartbeat heartbeat = Beat(kRunning, 7);
  AddPieces(heartbeat, {1, 7});
  ASSERT_TRUE(Send(c, heartbeat).ok());
  EXPECT_EQ(ViewOf("b").job(), 0);
}

TEST_F(Moves, AWorkerThatLeavesIsReleasedWhenTheJobNeedsItNoMore) {
  Submit(MovingSpec(2));
  const StreamId c = Attach("c", 3);
  Train(1, 1, {c});
  v1::Heartbeat leaving = Beat(kRunning, 5);
  leaving.set_leaving(true);

  ASSERT_TRUE(Send(b_, leaving).ok());
  EXPECT_TRUE(IsToStop(a_));
  EXPECT_TRUE(ViewOf("b").drained());
  StopWithPieces(a_);
  StopWithPieces(b_);
  EXPECT_FALSE(Order(b_).released) << "c has no copy yet";

  v1::Heartbeat heartbeat = Beat(kRunning, 7);
  AddPieces(heartbeat, {1, 7});
  ASSERT_TRUE(Send(c, heartbeat).ok());
  EXPECT_TRUE(Order(b_).released);
  EXPECT_FALSE(stored().drained.contains(WorkerId{2}));
  Attach("b", 22);
  EXPECT_FALSE(ViewOf("b").drained()) << "it is another process";
}

constexpr int64_t kMicroBatches = 100'000;

// One sample a micro-batch.
JobSpec PredictingSpec(int stages) {
  JobSpec spec = MovingSpec(stages);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 1;
  spec.train = ForInference(spec.infer, 1);
  spec.data.test_samples = kMicroBatches;
  return spec;
}

StoredState ProfiledForInference() {
  StoredState state;
  for (const char* const name : {"a", "b"}) {
    state.measurements.Put(
        ProfileOf(PredictingSpec(0), name, kLayerSeconds / 2));
  }
  return state;
}

class InferenceMoves : public ::testing::Test, public Mesh {
 protected:
  InferenceMoves() : Mesh(ProfiledForInference()) {}

  // The worker has been through `more` micro-batches, each in `slowness` times
  // the time that was measured; those of a replica are stored up to a common
  // mark.
  void Compute(StreamId stream, const std::string& name, double slowness,
               int64_t more) {
    const JobRecord record = Record();
    v1::Heartbeat heartbeat = Beat(kRunning, 0);
    v1::RunState& run = *heartbeat.mutable_run();
    run.set_steps(kMicroBatches);
    run.set_total_samples(kMicroBatches);
    for (int i = 0; i < std::ssize(record.stages); ++i) {
      if (StageWorker(job(), i) != name) continue;
      v1::StageTime& time = *run.add_stage_times();
      time.set_stage(StageNumbers(record.stages)[i]);
      const v1::StageTime before = record.job.stage_times_size() > i
                                       ? record.job.stage_times(i)
                                       : v1::StageTime();
      const LayerRange layers = record.stages[i].layers;
      time.set_micro_batches(before.micro_batches() + more);
      time.set_seconds(before.seconds() + slowness * kLayerSeconds / 2 *
                                              (layers.last - layers.first) *
                                              static_cast<double>(more));
      if (layers.last < 6) continue;
      run.mutable_flow()->set_micro_batches(time.micro_batches());
      run.mutable_flow()->set_samples(time.micro_batches());
      const auto through =
          record.job.predicted_base().through() +
          static_cast<int64_t>(static_cast<double>(time.micro_batches()) /
                               Share(i));
      for (int64_t mark = 8; mark <= through; mark += 8) {
        run.add_predicted()->set_through(mark);
      }
    }
    ASSERT_TRUE(Send(stream, heartbeat).ok());
  }

  // Returns which part of its stage's micro-batches the plan's place `at` has.
  double Share(size_t at) const {
    const std::vector<StageOfPlan> stages = Record().stages;
    double sum = 0;
    for (const StageOfPlan& stage : stages) {
      if (stage.layers == stages[at].layers) sum += stage.share;
    }
    return stages[at].share / sum;
  }
  double ShareOf(const std::string& name) const {
    for (size_t i = 0; i < Record().stages.size(); ++i) {
      if (StageWorker(job(), i) == name) return Share(i);
    }
    return 0;
  }

  // Each replica computes all the time, "b" `slowness` times as long.
  void Predict(int seconds, double slowness) {
    constexpr double kPerSecond = 1 / (6 * kLayerSeconds / 2);
    for (int i = 0; i < seconds; ++i) {
      Pass(1000);
      Compute(a_, "a", 1, static_cast<int64_t>(kPerSecond));
      Compute(b_, "b", slowness, static_cast<int64_t>(kPerSecond / slowness));
    }
  }

  const StreamId a_ = Attach("a", 1);
  const StreamId b_ = Attach("b", 2);
};

TEST_F(InferenceMoves, ASlowReplicaGetsASmallerShareOfWhatIsNotStored) {
  Submit(PredictingSpec(0));
  ASSERT_NEAR(ShareOf("b"), 0.5, 0.01) << "each has the whole model";
  Predict(30, 1);
  EXPECT_EQ(Job().attempt(), 1);

  Predict(15, 1 / 0.15);
  const int64_t stored = Record().job.predicted_base().through();

  EXPECT_THAT(Story(), Tells("move: there is a better plan"));
  EXPECT_EQ(Job().attempt(), 2) << Why();
  EXPECT_NEAR(ShareOf("b"), 0.15 / 1.15, 0.02);
  EXPECT_GT(stored, 0);
  EXPECT_EQ(Order(a_).run->base, (Cut{1, stored}));
  EXPECT_EQ(Job().recovery().recoveries(), 0) << "nothing was lost";
}

TEST_F(InferenceMoves, SharesMoveBackAndNotToAndFro) {
  Submit(PredictingSpec(0));
  Predict(15, 1 / 0.15);
  ASSERT_EQ(Job().attempt(), 2) << Why();

  Predict(29, 1);
  EXPECT_EQ(Job().attempt(), 2) << "it has just moved";
  Predict(10, 1);

  EXPECT_EQ(Job().attempt(), 3) << Why();
  EXPECT_NEAR(ShareOf("b"), 0.5, 0.02);
  Predict(60, 1);
  EXPECT_EQ(Job().attempt(), 3);
}

TEST_F(InferenceMoves, LayersLeaveAWorkerThatHasBecomeSlow) {
  Submit(PredictingSpec(2));
  ASSERT_EQ(LayersOn(Record(), kB), 3);
  Predict(15, 2);

  EXPECT_EQ(Job().attempt(), 2) << Why();
  EXPECT_EQ(LayersOn(Record(), kB), 2);
}

}  // namespace
}  // namespace paceline

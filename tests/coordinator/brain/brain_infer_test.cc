// An inference job differs from a training job; these tests hold how.
#include <cmath>

#include "absl/synchronization/notification.h"
#include "coordinator/brain.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/store/file_weights_store.h"
#include "core/rpc/convert/report_convert.h"
#include "core/weights/predictions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

JobSpec InferSpecOf(int stages) {
  JobSpec spec = SpecOf(stages);
  spec.kind = kInferKind;
  spec.infer.micro_batch = 4;
  spec.train = ForInference(spec.infer, 1);
  return spec;
}

TEST(EvaluationText, GivesWhatIsNoNumberNoSign) {
  v1::EvaluationRecord evaluation;
  evaluation.set_samples(8);
  evaluation.set_loss(-NAN);
  EXPECT_EQ(EvaluationText(InferSpecOf(1), evaluation),
            "accuracy 0.0000, loss nan over 8 samples");
}

// `worker` reports `done` micro-batches of 4; the first stage's knows that
// there are 40 samples.
v1::Heartbeat BeatOf(Mesh& mesh, v1::RunState::Phase phase, int64_t done,
                     bool first_stage) {
  v1::Heartbeat heartbeat = mesh.Beat(phase, done);
  v1::RunState& run = *heartbeat.mutable_run();
  run.set_steps(10);
  run.set_samples(4 * done);
  run.mutable_flow()->set_micro_batches(done);
  run.mutable_flow()->set_samples(4 * done);
  if (first_stage) run.set_total_samples(40);
  return heartbeat;
}

void Report(Mesh& mesh, StreamId stream, int64_t done, bool first_stage) {
  ASSERT_TRUE(
      mesh.Send(stream, BeatOf(mesh, kRunning, done, first_stage)).ok());
}

TEST(BrainInfer, MakesRoomForTheNamesThatTheFirstStageHas) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Submit(InferSpecOf(1));
  v1::Heartbeat beat = BeatOf(mesh, kRunning, 0, /*first_stage=*/true);
  beat.mutable_run()->mutable_names()->set_files(300);

  ASSERT_TRUE(mesh.Send(a, beat).ok());

  const TensorPlace& last = mesh.weights().back().layout.tensors.back();
  EXPECT_EQ(last.name, kPredictedFiles);
  EXPECT_EQ(last.bytes, 300);
  beat.mutable_run()->mutable_names()->set_class_names(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckHeartbeat(beat)));
}

TEST(BrainInfer, LaysThePredictionsOutOnceTheFirstStageHasCounted) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(InferSpecOf(2));
  ASSERT_TRUE(mesh.submit_error().ok()) << mesh.submit_error();

  EXPECT_THAT(mesh.notes(), Tells("drawn from the seed"));
  ASSERT_THAT(mesh.weights(), SizeIs(1));
  EXPECT_THAT(mesh.weights()[0].layout.tensors, IsEmpty())
      << "nobody knows yet how many there are";

  const StreamId first = mesh.StageWorker(job, 0) == "a" ? a : b;
  Report(mesh, first, 0, true);
  Report(mesh, first, 1, true);

  ASSERT_THAT(mesh.weights(), SizeIs(2)) << "once, however often it is said";
  const SafetensorsLayout& layout = mesh.weights()[1].layout;
  ASSERT_THAT(layout.tensors, SizeIs(3));
  EXPECT_EQ(layout.tensors[0].name, kPredictedClasses);
  EXPECT_EQ(layout.tensors[0].shape.front(), 40);
}

TEST(BrainInfer, SaysThatANewHeadKnowsNothing) {
  Mesh mesh;
  mesh.Attach("a", 1);
  JobSpec spec = InferSpecOf(1);
  spec.model.weights = "/w.safetensors";
  mesh.Submit(spec);
  EXPECT_THAT(mesh.notes(), Not(Tells("model.reset_head")));

  spec.model.reset_head = true;
  mesh.Submit(spec);
  EXPECT_THAT(mesh.notes(), Tells("model.reset_head draws the head"));
}

TEST(BrainInfer, FailsAJobMostOfWhosePredictionsAreNoNumbers) {
  for (const auto& [broken, unreadable, state] :
       {std::tuple(20, 0, JobState::kSucceeded),
        {21, 0, JobState::kFailed},
        {22, 2, JobState::kSucceeded}}) {
    Mesh mesh;
    const StreamId a = mesh.Attach("a", 1);
    mesh.Submit(InferSpecOf(1));
    v1::Heartbeat done = BeatOf(mesh, kDone, 10, true);
    v1::PredictedMark& mark = *done.mutable_run()->add_predicted();
    mark.set_through(10);
    mark.set_not_finite(broken);
    if (unreadable > 0) {
      v1::UnreadableSamples& said =
          *done.mutable_run()->mutable_unreadable()->mutable_test();
      said.set_of(40);
      for (int i = 0; i < unreadable; ++i) said.add_numbers(i);
    }

    ASSERT_TRUE(mesh.Send(a, done).ok());
    mesh.Saved(kSaved);

    EXPECT_EQ(mesh.State(), state) << broken;
    EXPECT_THAT(mesh.Why(),
                Says(absl::StrCat(broken - unreadable,
                                  " of 40 predictions are not finite")));
  }
}

TEST(BrainInfer, CountsWhatHasComeOutOfTheLastStage) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 2);
  const JobId job = mesh.Submit(InferSpecOf(2));
  const bool a_is_last = mesh.StageWorker(job, 1) == "a";
  const StreamId last = a_is_last ? a : b;

  for (const int64_t done : {1, 3, 5}) {
    mesh.Pass(500, {a, b});
    Report(mesh, last, done, false);
  }

  EXPECT_EQ(mesh.Record().job.step(), 5);
  EXPECT_NEAR(mesh.Job().samples_per_second(), 16, 0.1)
      << "16 samples in the second after the first report";
  const v1::JobWorker worker = mesh.Job().workers(a_is_last ? 0 : 1);
  EXPECT_EQ(worker.run().flow().samples(), 20);
}

TEST(BrainInfer, TellsOfPredictionsNotOfWeights) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Submit(InferSpecOf(1));
  Report(mesh, a, 1, true);
  EXPECT_EQ(mesh.Job().phase(), "predicting");
  v1::Heartbeat done = BeatOf(mesh, kDone, 10, true);
  done.mutable_run()->add_predicted()->set_through(10);
  ASSERT_TRUE(mesh.Send(a, done).ok());
  mesh.Saved(kSaved);

  EXPECT_EQ(mesh.State(), JobState::kSucceeded);
  EXPECT_THAT(mesh.Story(), Tells("the last stage has handed its predictions"));
  EXPECT_THAT(mesh.Story(), Tells("predictions are in"));
}

TEST(FileWeightsStore, AsksForPatienceUntilItKnowsHowMuchThereWillBe) {
  const TempFolder folder;
  FileWeightsStore weights_store(folder.path());
  const Fence fence = {JobId{1}, 1, 1};
  const auto write = [&] {
    absl::Status written;
    v1::WeightsPiece piece;
    piece.set_job(fence.job.value);
    piece.set_attempt(fence.attempt);
    piece.set_plan_version(fence.plan_version);
    piece.set_tensor("a");
    piece.set_data("abcdefgh");
    weights_store.Write(
        piece, [&](absl::Status status) { written = std::move(status); });
    absl::Notification synced;
    weights_store.Sync(fence, [&](const absl::Status&) { synced.Notify(); });
    synced.WaitForNotification();
    return written;
  };
  weights_store.Open(
      fence, SafetensorsLayout(),
      [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  EXPECT_TRUE(absl::IsUnavailable(write()));

  weights_store.Open(
      fence, LayOut({{.name = "a", .shape = {2}}}, {}).value(),
      [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  EXPECT_TRUE(write().ok());
}

// Stage 0 on the first worker, stage 1 shared by the others, three of four
// micro-batches on "c".
JobSpec SharedSpec() {
  JobSpec spec = InferSpecOf(0);
  spec.pipeline.cuts = {2};
  spec.pipeline.workers = {"a", "b", "c"};
  spec.pipeline.replicas = {1, 2};
  spec.pipeline.shares = {1, 1, 3};
  return spec;
}

class SharedStage : public ::testing::Test {
 protected:
  // `done` micro-batches of 4 samples, half of the labels right, stored up to
  // these marks.
  void Send(StreamId stream, v1::RunState::Phase phase, int64_t done,
            int64_t total = 0, const std::vector<int64_t>& marks = {}) {
    v1::Heartbeat heartbeat = BeatOf(mesh_, phase, done, false);
    heartbeat.mutable_run()->set_total_samples(total);
    for (const int64_t through : marks) {
      v1::PredictedMark& mark = *heartbeat.mutable_run()->add_predicted();
      mark.set_through(through);
      mark.set_labels(4 * done);
      mark.set_correct(2 * done);
      mark.set_loss(8.0 * static_cast<double>(done));
    }
    ASSERT_TRUE(mesh_.Send(stream, heartbeat).ok());
  }
  int64_t Stored() const { return mesh_.Record().job.predicted().through(); }

  Mesh mesh_;
  const StreamId a_ = mesh_.Attach("a", 1);
  const StreamId b_ = mesh_.Attach("b", 2);
  const StreamId c_ = mesh_.Attach("c", 3);
  const JobId job_ = mesh_.Submit(SharedSpec());
};

TEST_F(SharedStage, IsOrderedWithItsRoute) {
  ASSERT_TRUE(mesh_.submit_error().ok()) << mesh_.submit_error();
  const std::vector<StagePlacement> stages = mesh_.Order(a_).run->stages;
  ASSERT_THAT(stages, SizeIs(3));
  EXPECT_EQ(stages[1].stage, 1);
  EXPECT_EQ(stages[2].stage, 1);
  EXPECT_EQ(stages[2].worker_name, "c");
  EXPECT_EQ(stages[2].share, 3);

  const std::optional<RunOrder> order = mesh_.Order(c_).run;
  ASSERT_TRUE(order.has_value());
  ASSERT_THAT(order->routes, SizeIs(2));
  EXPECT_THAT(order->routes[1].turns(), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(mesh_.Story(), Tells("2 stages on a, b, c"));
}

TEST_F(SharedStage, CountsAndJudgesWhatAllItsReplicasDid) {
  Send(a_, kRunning, 10, 40);
  Send(b_, kRunning, 1);
  Send(c_, kRunning, 4);
  EXPECT_EQ(mesh_.Record().job.step(), 5);

  Send(a_, kDone, 10, 40);
  Send(b_, kDone, 3, 0, {10});
  EXPECT_EQ(mesh_.State(), JobState::kRunning);
  EXPECT_THAT(mesh_.Story(), Not(Tells("saving")));
  Send(c_, kDone, 7, 0, {10});
  EXPECT_EQ(mesh_.Record().job.step(), 10);
  EXPECT_THAT(mesh_.Story(),
              Tells("accuracy 0.5000, loss 2.0000 over 40 samples"));
  mesh_.Saved(kSaved);
  EXPECT_EQ(mesh_.State(), JobState::kSucceeded);
}

TEST_F(SharedStage, EndsWithoutAReplicaThatGetsNothing) {
  Send(a_, kDone, 1, 4);  // one micro-batch, which is "c"'s
  Send(b_, kRunning, 0);
  EXPECT_THAT(mesh_.Story(), Not(Tells("saving")));
  Send(c_, kDone, 1, 0, {1});
  EXPECT_THAT(mesh_.Story(), Tells("saving"));
  EXPECT_THAT(mesh_.Story(), Tells("over 4 samples"));
}

TEST_F(SharedStage, IsStoredUpToTheNewestMarkThatAllReplicasHavePassed) {
  Send(a_, kRunning, 8, 40);
  Send(c_, kRunning, 6, 0, {4, 8});
  EXPECT_EQ(Stored(), 0) << "nobody knows how far b is";
  Send(b_, kRunning, 1, 0, {4});
  EXPECT_EQ(Stored(), 4);
  Send(b_, kRunning, 2, 0, {4, 8});
  EXPECT_EQ(Stored(), 8);
  Send(b_, kRunning, 2, 0, {11});
  Send(c_, kRunning, 2, 0, {11});
  EXPECT_EQ(Stored(), 8) << "there are ten micro-batches";
}

// Stored predictions are no state that a worker holds.
TEST_F(SharedStage, HasNothingToExportBeforeItsEnd) {
  Send(a_, kRunning, 10, 40);
  Send(b_, kRunning, 2, 0, {4});
  Send(c_, kRunning, 4, 0, {4});
  ASSERT_GT(Stored(), 0);

  EXPECT_TRUE(absl::IsFailedPrecondition(mesh_.Export(job_).status()));

  EXPECT_THAT(mesh_.checkpoints(), IsEmpty());
}

TEST_F(SharedStage, GoesOnAfterWhatIsStoredAndJudgesItAll) {
  Send(a_, kRunning, 8, 40);
  Send(b_, kRunning, 2, 0, {4, 8});
  Send(c_, kRunning, 5, 0, {4, 8});
  const size_t opened = mesh_.weights().size();

  const StreamId d = mesh_.Attach("a", 11);  // another process of it
  mesh_.SayIdle({b_, c_, d});

  EXPECT_EQ(mesh_.Job().attempt(), 2) << mesh_.Why();
  ASSERT_TRUE(mesh_.Order(b_).run.has_value());
  EXPECT_EQ(mesh_.Order(b_).run->base, (Cut{1, 8}));
  EXPECT_THAT(mesh_.Order(b_).run->sources, IsEmpty());
  EXPECT_EQ(mesh_.Record().job.step(), 8);
  ASSERT_THAT(mesh_.weights(), SizeIs(opened + 1)) << "nothing is forgotten";
  EXPECT_THAT(mesh_.weights().back().layout.tensors, SizeIs(3));

  // The last two micro-batches, 8 and 9, are one of each.
  Send(d, kDone, 2, 40);
  Send(b_, kDone, 1, 0, {10});
  Send(c_, kDone, 1, 0, {10});
  EXPECT_EQ(mesh_.Record().job.step(), 10);
  EXPECT_THAT(mesh_.Story(), Tells("accuracy 0.5000, loss 2.0000 over 36"))
      << "(2 + 5) + (1 + 1) micro-batches of four";
}

TEST_F(SharedStage, NeedsNobodyOnceAllIsStored) {
  Send(a_, kRunning, 10, 40);
  Send(b_, kRunning, 3, 0, {10});
  Send(c_, kRunning, 7, 0, {10});
  EXPECT_EQ(Stored(), 10);

  for (const StreamId stream : {a_, b_, c_}) mesh_.Leave(stream, false);

  EXPECT_THAT(mesh_.Events(), Contains("saving"));
  EXPECT_EQ(mesh_.Job().attempt(), 1);
}

TEST_F(SharedStage, ARestartedCoordinatorKnowsWhatIsStored) {
  Send(a_, kRunning, 8, 40);
  Send(b_, kRunning, 2, 0, {4});
  Send(c_, kRunning, 5, 0, {4});

  Mesh after(mesh_.stored(), 100'000);
  ASSERT_THAT(after.weights(), SizeIs(1));
  EXPECT_THAT(after.weights()[0].layout.tensors, SizeIs(3))
      << "it need not be said again how many there are";
  const StreamId a = after.Attach("a", 11);
  const StreamId b = after.Attach("b", 12);
  const StreamId c = after.Attach("c", 13);
  after.SayIdle({a, b, c});
  after.SayIdle({a, b, c});

  ASSERT_TRUE(after.Order(a).run.has_value()) << after.Why();
  EXPECT_EQ(after.Order(a).run->base, (Cut{1, 4}));
}

TEST_F(SharedStage, ADrainedWorkerThatTheJobNamesIsStillNeeded) {
  Send(a_, kRunning, 8, 40);
  Send(b_, kRunning, 2, 0, {4});
  Send(c_, kRunning, 5, 0, {4});

  ASSERT_TRUE(mesh_.Drain("b", true).ok());

  EXPECT_THAT(mesh_.Story(), Tells("drain: a worker that drains is"));
  EXPECT_EQ(mesh_.Job().attempt(), 1);
}

}  // namespace
}  // namespace paceline

// An inference job differs from a training job; these tests and the scripts of
// tests/golden/coordinator/inference.txt hold how.
#include <cmath>

#include "coordinator/brain.h"
#include "coordinator/jobs/job_text.h"
#include "core/rpc/convert/report_convert.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::IsEmpty;
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

}  // namespace
}  // namespace paceline

// The measured times of a job stand beside the predicted ones.  The scripts in
// tests/golden/coordinator/measuring.txt say who measures.
#include <vector>

#include "coordinator/jobs/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::SizeIs;

TEST(BrainMeasure, PutsPredictedAndMeasuredSideBySide) {
  StoredState stored;
  stored.measurements.Put(ProfileOf(SpecOf(1), "a", 0.002));
  Mesh mesh(stored);
  const StreamId a = mesh.Attach("a", 1);
  mesh.Submit(SpecOf(1));
  v1::Heartbeat heartbeat = mesh.Beat(kRunning, 3);
  v1::RunState& run = *heartbeat.mutable_run();
  run.add_stage_times()->set_seconds(0.5);
  run.mutable_stage_times(0)->set_micro_batches(10);
  run.set_step_seconds(3);
  run.set_timed_steps(2);

  ASSERT_TRUE(mesh.Send(a, heartbeat).ok());

  const JobRecord record = mesh.Record();
  const std::vector<v1::StageDrift> drift = DriftOf(record);
  ASSERT_THAT(drift, SizeIs(1));
  EXPECT_GT(drift[0].predicted_seconds(), 0.002);
  EXPECT_DOUBLE_EQ(drift[0].measured_seconds(), 0.05);
  EXPECT_GT(drift[0].layer_seconds(), 0);
  EXPECT_LE(drift[0].layer_seconds(), drift[0].predicted_seconds());
  EXPECT_DOUBLE_EQ(MeasuredStepSeconds(record), 1.5);
}

using BrainMeasuresAJob = MeshWithAJob;

TEST_F(BrainMeasuresAJob, IgnoresTimesOfStagesThatThereAreNot) {
  v1::Heartbeat heartbeat = Beat(kRunning, 3);
  for (const int stage : {-1, 1 << 30}) {
    v1::StageTime& time = *heartbeat.mutable_run()->add_stage_times();
    time.set_stage(stage);
    time.set_seconds(1);
    time.set_micro_batches(1);
  }

  ASSERT_TRUE(Send(a_, heartbeat).ok());

  EXPECT_EQ(DriftOf(Record())[0].measured_seconds(), 0);
}

TEST(BrainMeasure, KeepsWhatEveryWorkerReportedBesideWhatWasPlanned) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Attach("b", 2);
  mesh.Submit(SpecOf(2));
  v1::Heartbeat heartbeat = mesh.Beat(kRunning, 3);
  heartbeat.mutable_run()->mutable_seconds()->set_wall(12);

  ASSERT_TRUE(mesh.Send(a, heartbeat).ok());

  const v1::Job view = mesh.Job();
  const auto& workers = view.workers();
  ASSERT_THAT(workers, SizeIs(2));
  EXPECT_EQ(workers[0].run().DebugString(), heartbeat.run().DebugString());
  EXPECT_FALSE(workers[1].has_run());
  EXPECT_GT(workers[0].predicted_memory_bytes(), 0);
  EXPECT_GT(workers[1].predicted_memory_bytes(), 0);
}

}  // namespace
}  // namespace paceline

// The brain orders measurements, keeps them, and plans with them.
#include <string>

#include "coordinator/brain.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/rpc/convert.h"
#include "coordinator/watch/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Layer i of the spec's model takes (i + 1) ms forward and as much backward.
DeviceProfile GrowingProfileOf(const JobSpec& spec, const std::string& device) {
  DeviceProfile profile = ProfileOf(spec, device, 0);
  double ms = 0;
  for (LayerMeasurement& layer : profile.layers) {
    ms += 1e-3;
    layer.forward = layer.backward = {ms, 0, ms};
  }
  return profile;
}

v1::Heartbeat Answer(int64_t id) {
  v1::Heartbeat heartbeat;
  heartbeat.mutable_measurement()->set_id(id);
  return heartbeat;
}
// Says that `device` has measured what that worker was last told to.
void AnswerFor(Mesh& mesh, StreamId stream, const JobSpec& spec,
               const std::string& device) {
  v1::Heartbeat heartbeat = Answer(mesh.Order(stream).measure->id);
  *heartbeat.mutable_measurement()->mutable_profile() =
      ToProto(GrowingProfileOf(spec, device));
  ASSERT_TRUE(mesh.Send(stream, heartbeat).ok());
}

// Has `worker` measure `spec` and answers for it.
void Measure(Mesh& mesh, StreamId stream, const JobSpec& spec,
             const std::string& worker) {
  ASSERT_TRUE(mesh.Profile(spec, {worker}, false).ok());
  const auto order = mesh.Order(stream).measure;
  ASSERT_TRUE(order.has_value() && order->layers.has_value());
  AnswerFor(mesh, stream, spec, worker);
}

TEST(BrainMeasure, KeepsWhatWasMeasuredAcrossARestart) {
  Mesh before;
  const StreamId a = before.Attach("a", 1);
  Measure(before, a, SpecOf(1), "a");

  Mesh after(before.stored());

  EXPECT_THAT(after.Measured("").profiles(), SizeIs(1));
  EXPECT_FALSE(before.Order(a).measure.has_value());
}

TEST(BrainMeasure, TakesNoWorkersWordForAnother) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  ASSERT_TRUE(mesh.Profile(SpecOf(1), {"a"}, false).ok());

  AnswerFor(mesh, a, SpecOf(1), "b");

  EXPECT_THAT(mesh.Measured("").profiles(), SizeIs(0));
}

TEST(BrainMeasure, NamesTheWorkersThereAreWhenOneIsNotAndNeedsOne) {
  Mesh mesh;
  EXPECT_TRUE(
      absl::IsFailedPrecondition(mesh.Profile(SpecOf(1), {}, false).status()));
  mesh.Attach("a", 1);

  const auto ticket = mesh.Profile(SpecOf(1), {"nobody"}, false);

  EXPECT_TRUE(absl::IsNotFound(ticket.status()));
  EXPECT_THAT(ticket.status().message(), HasSubstr("nobody; there are: a"));
}

// "a" is told that it cannot dial "b", until it can.
TEST(BrainMeasure, ALinkThatCannotBeDialledIsKeptAndTriedAgain) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  v1::Heartbeat refused = Answer(mesh.Order(a).measure->id);
  SetError(absl::UnavailableError("cannot dial b (b:7401): refused"),
           *refused.mutable_measurement());
  ASSERT_TRUE(mesh.Send(a, refused).ok());
  ASSERT_TRUE(mesh.Send(b, Answer(mesh.Order(b).measure->id)).ok());
  ASSERT_THAT(mesh.Measured("").links(), SizeIs(1));
  EXPECT_EQ(mesh.Measured("").links(0).error(),
            "cannot dial b (b:7401): refused");

  JobSpec spec = SpecOf(2);
  spec.pipeline.cuts = {2};
  spec.pipeline.workers = {"a", "b"};
  mesh.Submit(spec);
  EXPECT_THAT(mesh.Why(), HasSubstr("worker a cannot dial b (b:7401)"));
  mesh.Pass(6'000, {a, b});
  ASSERT_TRUE(mesh.Order(a).measure.has_value());
  v1::Heartbeat again = Answer(mesh.Order(a).measure->id);
  *again.mutable_measurement()->add_links() =
      ToProto(LinkMeasurement{"a", "b", 1e8, 1e-3});
  ASSERT_TRUE(mesh.Send(a, again).ok());

  EXPECT_EQ(mesh.State(), JobState::kRunning) << mesh.Why();
}

JobSpec ScriptSpec() {
  JobSpec spec = SpecOf(1);
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  return spec;
}

TEST(BrainMeasure, HasOneWorkerLookIntoAScriptThatNobodyKnows) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  // Their link comes first, from either end.
  for (const StreamId stream : {a, b}) {
    v1::Heartbeat probed = Answer(mesh.Order(stream).measure->id);
    ASSERT_TRUE(mesh.Send(stream, probed).ok());
  }

  const auto ticket = mesh.Profile(ScriptSpec(), {}, /*links=*/true);

  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_THAT(ticket->workers(), ElementsAre("a"));
  const auto order = mesh.Order(a).measure;
  ASSERT_TRUE(order.has_value() && order->layers.has_value());
  EXPECT_EQ(order->layers->model.file, "/net.pt");
  const auto other = mesh.Order(b).measure;
  EXPECT_FALSE(other.has_value() && other->layers.has_value());

  v1::Heartbeat found = Answer(order->id);
  found.mutable_measurement()->mutable_script()->set_sha256("abc");
  ASSERT_TRUE(mesh.Send(a, found).ok());

  v1::GetProfileRequest request;
  request.set_id(ticket->id());
  const auto view = mesh.brain().ViewProfile(request, mesh.Now().now);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->script().sha256(), "abc");
  EXPECT_TRUE(view->waiting().empty());
  EXPECT_THAT(mesh.Measured("").profiles(), SizeIs(0));
}

v1::StartProfileRequest Files(int count) {
  v1::StartProfileRequest request;
  for (int i = 0; i < count; ++i) request.add_files("/data");
  return request;
}

TEST(BrainMeasure, HasIdleWorkersLookForFiles) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Submit(SpecOf(1));
  const StreamId b = mesh.Attach("b", 1);

  const auto ticket = mesh.Profile(Files(2));

  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_THAT(ticket->workers(), ElementsAre("b"));
  EXPECT_THAT(ticket->busy(), ElementsAre("a"));
  EXPECT_FALSE(mesh.Order(a).measure.has_value());
  ASSERT_TRUE(mesh.Order(b).measure.has_value());
  EXPECT_THAT(mesh.Order(b).measure->files, SizeIs(2));
}

TEST(BrainMeasure, HasThemLookIntoTheFilesOfAJob) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  v1::StartProfileRequest request = Files(1);
  *request.mutable_spec() = ToProto(SpecOf(1));
  request.mutable_inputs()->set_contents(5);

  ASSERT_TRUE(mesh.Profile(request).ok());

  const auto order = mesh.Order(a).measure;
  ASSERT_TRUE(order.has_value() && order->reader.has_value());
  EXPECT_EQ(order->reader->model.name, SpecOf(1).model.name);
  EXPECT_EQ(order->inputs.contents(), 5u);
  request.mutable_spec()->mutable_train()->set_batch(0);
  EXPECT_TRUE(absl::IsInvalidArgument(mesh.Profile(request).status()));
}

TEST(BrainMeasure, LooksForNoMoreFilesThanAJobCanName) {
  Mesh mesh;
  mesh.Attach("a", 1);

  EXPECT_TRUE(absl::IsInvalidArgument(mesh.Profile(Files(17)).status()));
}

TEST(BrainMeasure, ShowsWhoMeasuresForAPerson) {
  Mesh mesh;
  mesh.Attach("a", 1);
  ASSERT_TRUE(mesh.Profile(SpecOf(1), {"a"}, false).ok());

  const auto views = mesh.ViewWorkers();

  ASSERT_THAT(views, SizeIs(1));
  EXPECT_EQ(views[0].state(), v1::WORKER_STATE_MEASURING);
  EXPECT_EQ(WorkerStateName(views[0].state()), "measuring");
}

TEST(BrainMeasure, TakesNoJobOfAScriptThatNobodyKnows) {
  Mesh mesh;
  mesh.Attach("a", 1);

  mesh.Submit(ScriptSpec());

  EXPECT_THAT(mesh.submit_error().message(),
              HasSubstr("no worker has looked into /net.pt"));
}

TEST(BrainMeasure, LetsAJobWaitForAProfileAndSaysSo) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  ASSERT_TRUE(mesh.Profile(SpecOf(1), {"a"}, false).ok());

  mesh.Submit(SpecOf(1));

  EXPECT_EQ(mesh.State(), JobState::kQueued);
  EXPECT_THAT(mesh.Why(), HasSubstr("a profile that is being taken"));
  AnswerFor(mesh, a, SpecOf(1), "a");
  EXPECT_EQ(mesh.State(), JobState::kRunning);
}

TEST(BrainMeasure, AJobDoesNotWaitForTheMeshsOwnProbes) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Attach("b", 1);
  ASSERT_TRUE(mesh.Order(a).measure.has_value());

  mesh.Submit(SpecOf(2));

  EXPECT_EQ(mesh.State(), JobState::kRunning);
  EXPECT_FALSE(mesh.Order(a).measure.has_value());
  EXPECT_TRUE(mesh.Order(a).run.has_value());
}

TEST(BrainMeasure, CutsByWhatWasMeasured) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  for (const auto& [stream, link] :
       {std::pair(a, LinkMeasurement{"a", "b", 1e9, 1e-5, 0}),
        {b, LinkMeasurement{"b", "a", 1e9, 1e-5, 0}}}) {
    v1::Heartbeat probed = Answer(mesh.Order(stream).measure->id);
    *probed.mutable_measurement()->add_links() = ToProto(link);
    ASSERT_TRUE(mesh.Send(stream, probed).ok());
  }
  JobSpec spec = SpecOf(2);
  spec.pipeline.policy = "optimal";
  Measure(mesh, a, spec, "a");
  Measure(mesh, b, spec, "b");

  mesh.Submit(spec);

  // 1 + 2 + 3 | 4 + ..: whatever the layers, not half of them each.
  const std::vector<StageOfPlan> stages = mesh.Record().stages;
  ASSERT_THAT(stages, SizeIs(2));
  EXPECT_GT(stages[0].layers.last - stages[0].layers.first,
            stages[1].layers.last - stages[1].layers.first);
  EXPECT_TRUE(mesh.Record().job.has_estimate());
}

TEST(BrainMeasure, PutsPredictedAndMeasuredSideBySide) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobSpec spec = SpecOf(1);
  Measure(mesh, a, spec, "a");
  mesh.Submit(spec);
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

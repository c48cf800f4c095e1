// What the brain has measured, and what it makes of it.
#include <string>

#include "coordinator/brain.h"
#include "coordinator/drift.h"
#include "coordinator/metrics.h"
#include "coordinator/rpc/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Layer i of the spec's model takes (i + 1) ms forward and as much backward.
DeviceProfile ProfileOf(const JobSpec& spec, const std::string& device) {
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  DeviceProfile profile;
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, "f32", spec.threads, device};
  for (const Layer& layer : model->layers) {
    LayerMeasurement measured;
    measured.name = layer.name;
    const double ms = 1e-3 * static_cast<double>(profile.layers.size() + 1);
    measured.forward = {ms, 0, ms};
    measured.backward = {ms, 0, ms};
    profile.layers.push_back(measured);
  }
  return profile;
}

Heartbeat Answer(int64_t id, const DeviceProfile& profile) {
  Heartbeat heartbeat;
  heartbeat.measurement.emplace();
  heartbeat.measurement->id = id;
  heartbeat.measurement->profile = profile;
  return heartbeat;
}

// Has `worker` measure `spec` and answers for it.
void Measure(Mesh& mesh, StreamId stream, const JobSpec& spec,
             const std::string& worker) {
  ASSERT_TRUE(mesh.Profile({spec, {worker}, false}).ok());
  const auto order = mesh.Order(stream).measure;
  ASSERT_TRUE(order.has_value() && order->layers.has_value());
  ASSERT_TRUE(
      mesh.Send(stream, Answer(order->id, ProfileOf(spec, worker))).ok());
}

TEST(BrainMeasure, ProbesTheLinkBetweenTwoWorkersThatJoin) {
  Mesh mesh;
  mesh.Attach("a", 1);

  const StreamId b = mesh.Attach("b", 1);

  const auto order = mesh.Order(b).measure;
  ASSERT_TRUE(order.has_value() && order->link.has_value());
  EXPECT_EQ(order->link->name, "a");
  EXPECT_EQ(order->link->address, "a:7401");
}

TEST(BrainMeasure, KeepsWhatWasMeasuredAcrossARestart) {
  Mesh before;
  const StreamId a = before.Attach("a", 1);
  Measure(before, a, SpecOf(1), "a");

  Mesh after(before.stored());

  EXPECT_THAT(after.Measured("").profiles, SizeIs(1));
  EXPECT_FALSE(before.Order(a).measure.has_value());
}

TEST(BrainMeasure, TakesNoWorkersWordForAnother) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  ASSERT_TRUE(mesh.Profile({SpecOf(1), {"a"}, false}).ok());

  ASSERT_TRUE(
      mesh.Send(a, Answer(mesh.Order(a).measure->id, ProfileOf(SpecOf(1), "b")))
          .ok());

  EXPECT_THAT(mesh.Measured("").profiles, SizeIs(0));
}

TEST(BrainMeasure, TakesNoWorkersWordForALinkThatItWasNotToMeasure) {
  Mesh mesh;
  mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  Heartbeat probed;
  probed.measurement.emplace();
  probed.measurement->id = mesh.Order(b).measure->id;
  probed.measurement->links = {{"b", "a", 1e9, 1e-5, 0},
                               {"b", "c", 1e9, 1e-5, 0}};

  ASSERT_TRUE(mesh.Send(b, probed).ok());

  const StoredMeasurements measured = mesh.Measured("");
  ASSERT_THAT(measured.links, SizeIs(1));
  EXPECT_EQ(measured.links.begin()->second.to, "a");
}

TEST(BrainMeasure, NamesTheWorkersThereAreWhenOneIsNot) {
  Mesh mesh;
  mesh.Attach("a", 1);

  const auto ticket = mesh.Profile({SpecOf(1), {"nobody"}, false});

  EXPECT_TRUE(absl::IsNotFound(ticket.status()));
  EXPECT_THAT(std::string(ticket.status().message()),
              HasSubstr("nobody; there are: a"));
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
  // Their link comes first.
  Heartbeat probed;
  probed.measurement.emplace();
  probed.measurement->id = mesh.Order(b).measure->id;
  ASSERT_TRUE(mesh.Send(b, probed).ok());

  const auto ticket = mesh.Profile({ScriptSpec(), {}, /*links=*/true});

  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_THAT(ticket->workers, ElementsAre("a"));
  const auto order = mesh.Order(a).measure;
  ASSERT_TRUE(order.has_value() && order->layers.has_value());
  EXPECT_EQ(order->layers->model.file, "/net.pt");
  const auto other = mesh.Order(b).measure;
  EXPECT_FALSE(other.has_value() && other->layers.has_value());

  Heartbeat found;
  found.measurement.emplace();
  found.measurement->id = order->id;
  found.measurement->script.emplace();
  found.measurement->script->sha256 = "abc";
  ASSERT_TRUE(mesh.Send(a, found).ok());

  const auto view = mesh.brain().ViewProfile(ticket->id, mesh.Now().now);
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_TRUE(view->script.has_value());
  EXPECT_EQ(view->script->sha256, "abc");
  EXPECT_TRUE(view->waiting.empty());
  EXPECT_THAT(mesh.Measured("").profiles, SizeIs(0));
}

TEST(BrainMeasure, ShowsWhoMeasuresForAPerson) {
  Mesh mesh;
  mesh.Attach("a", 1);
  ASSERT_TRUE(mesh.Profile({SpecOf(1), {"a"}, false}).ok());

  const auto views = mesh.brain().ViewWorkers(mesh.Now().now);

  ASSERT_THAT(views, SizeIs(1));
  EXPECT_TRUE(views[0].measuring);
  EXPECT_EQ(WorkerStateName(views[0]), "measuring");
  EXPECT_EQ(ToProto(views[0]).state(), v1::WORKER_STATE_MEASURING);
}

TEST(BrainMeasure, TakesNoJobOfAScriptThatNobodyKnows) {
  Mesh mesh;
  mesh.Attach("a", 1);

  mesh.Submit(ScriptSpec());

  EXPECT_THAT(std::string(mesh.submit_error().message()),
              HasSubstr("no worker has looked into /net.pt"));
}

TEST(BrainMeasure, NeedsAWorker) {
  Mesh mesh;

  EXPECT_TRUE(absl::IsFailedPrecondition(
      mesh.Profile({SpecOf(1), {}, false}).status()));
}

TEST(BrainMeasure, LetsAJobWaitForAProfileAndSaysSo) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  ASSERT_TRUE(mesh.Profile({SpecOf(1), {"a"}, false}).ok());

  const JobId job = mesh.Submit(SpecOf(1));

  EXPECT_EQ(mesh.State(job), JobState::kQueued);
  EXPECT_THAT(mesh.Why(job), HasSubstr("a profile that is being taken"));
  ASSERT_TRUE(
      mesh.Send(a, Answer(mesh.Order(a).measure->id, ProfileOf(SpecOf(1), "a")))
          .ok());
  EXPECT_EQ(mesh.State(job), JobState::kRunning);
}

TEST(BrainMeasure, AJobDoesNotWaitForTheMeshsOwnProbes) {
  Mesh mesh;
  mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  ASSERT_TRUE(mesh.Order(b).measure.has_value());

  const JobId job = mesh.Submit(SpecOf(2));

  EXPECT_EQ(mesh.State(job), JobState::kRunning);
  EXPECT_FALSE(mesh.Order(b).measure.has_value());
  EXPECT_TRUE(mesh.Order(b).run.has_value());
}

TEST(BrainMeasure, CutsByWhatWasMeasured) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  Heartbeat probed;
  probed.measurement.emplace();
  probed.measurement->id = mesh.Order(b).measure->id;
  probed.measurement->links = {{"a", "b", 1e9, 1e-5, 0},
                               {"b", "a", 1e9, 1e-5, 0}};
  ASSERT_TRUE(mesh.Send(b, probed).ok());
  JobSpec spec = SpecOf(2);
  spec.pipeline.policy = "dp";
  Measure(mesh, a, spec, "a");
  Measure(mesh, b, spec, "b");

  const JobId job = mesh.Submit(spec);

  // 1 + 2 + 3 | 4 + ..: whatever the layers, not half of them each.
  const std::vector<StagePlacement> stages = mesh.Job(job).stages;
  ASSERT_THAT(stages, SizeIs(2));
  EXPECT_GT(stages[0].layers.last - stages[0].layers.first,
            stages[1].layers.last - stages[1].layers.first);
  EXPECT_TRUE(mesh.Job(job).record.estimate.has_value());
}

TEST(BrainMeasure, PutsPredictedAndMeasuredSideBySide) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobSpec spec = SpecOf(1);
  Measure(mesh, a, spec, "a");
  const JobId job = mesh.Submit(spec);
  Heartbeat heartbeat;
  heartbeat.run = RunReport{
      mesh.Job(job).record.fence(), RunPhase::kRunning, 3, 60, 0, {}, {}};
  heartbeat.run->stage_times = {{0, 0.5, 10}};
  heartbeat.run->step_seconds = 3;
  heartbeat.run->timed_steps = 2;

  ASSERT_TRUE(mesh.Send(a, heartbeat).ok());

  const JobRecord record = mesh.Job(job).record;
  const std::vector<StageDrift> drift = DriftOf(record);
  ASSERT_THAT(drift, SizeIs(1));
  EXPECT_GT(drift[0].predicted_seconds, 0.002);
  EXPECT_DOUBLE_EQ(drift[0].measured_seconds, 0.05);
  EXPECT_GT(drift[0].layer_seconds, 0);
  EXPECT_LE(drift[0].layer_seconds, drift[0].predicted_seconds);
  EXPECT_DOUBLE_EQ(MeasuredStepSeconds(record), 1.5);
}

TEST(BrainMeasure, IgnoresTimesOfStagesThatThereAreNot) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  const JobId job = mesh.Submit(SpecOf(1));
  Heartbeat heartbeat;
  heartbeat.run = RunReport{
      mesh.Job(job).record.fence(), RunPhase::kRunning, 3, 60, 0, {}, {}};
  heartbeat.run->stage_times = {{-1, 1, 1}, {1 << 30, 1, 1}};

  ASSERT_TRUE(mesh.Send(a, heartbeat).ok());

  EXPECT_EQ(DriftOf(mesh.Job(job).record)[0].measured_seconds, 0);
}

TEST(BrainMeasure, KeepsTheMemoryOfEveryWorkerBesideWhatWasPlanned) {
  Mesh mesh;
  const StreamId a = mesh.Attach("a", 1);
  mesh.Attach("b", 2);
  const JobId job = mesh.Submit(SpecOf(2));
  Heartbeat heartbeat;
  heartbeat.run = RunReport{
      mesh.Job(job).record.fence(), RunPhase::kRunning, 3, 60, 0, {}, {}};
  heartbeat.run->peak_memory_bytes = 12345;

  ASSERT_TRUE(mesh.Send(a, heartbeat).ok());

  const std::vector<JobWorker> workers = mesh.Job(job).record.workers;
  ASSERT_THAT(workers, SizeIs(2));
  EXPECT_EQ(workers[0].peak_memory_bytes, 12345);
  EXPECT_EQ(workers[1].peak_memory_bytes, 0);
  EXPECT_GT(workers[0].predicted_memory_bytes, 0);
  EXPECT_GT(workers[1].predicted_memory_bytes, 0);
}

}  // namespace
}  // namespace paceline

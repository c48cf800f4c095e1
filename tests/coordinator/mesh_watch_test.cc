#include "coordinator/watch/mesh_watch.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FakeWatcher final : public MeshWatcher {
 public:
  bool Take(const SharedUpdate& update) override {
    if (std::ssize(taken) == most) return false;
    taken.push_back(update->message());
    return true;
  }
  void End(const absl::Status& why) override { end = why; }

  int most = 1000;
  std::vector<v1::MeshUpdate> taken;
  absl::Status end;
};

// A mesh, its watch, and one watcher.
class MeshWatchTest : public testing::Test {
 protected:
  MeshWatchTest() { watch_.Add(watcher_); }

  // Time passes, and the watch may publish.
  void Pass(int64_t ms, const std::vector<StreamId>& alive = {}) {
    mesh_.Pass(ms, alive);
    watch_.Publish(mesh_.brain(), store_, mesh_.Now());
  }
  // These were stored for the job.
  void Store(JobId job, const StoreBatch::Records& records,
             std::optional<int64_t> restarted = std::nullopt) {
    Actions actions;
    if (restarted.has_value()) actions.writes.restarted[job] = *restarted;
    actions.writes.records[job] = records;
    ASSERT_TRUE(store_.Commit(actions.writes).ok());
    watch_.OnActions(actions);
  }
  static v1::JobEvent EventOf(const std::string& text) {
    v1::JobEvent event;
    event.set_job(1);
    event.set_text(text);
    return event;
  }
  static std::vector<int64_t> StepsOf(const v1::Job& job) {
    std::vector<int64_t> steps;
    for (const auto& point : job.curve()) steps.push_back(point.step());
    return steps;
  }
  const v1::MeshUpdate& last() const { return watcher_->taken.back(); }
  size_t messages() const { return watcher_->taken.size(); }

  Mesh mesh_;
  MemoryStore store_;
  MeshWatch watch_;
  std::shared_ptr<FakeWatcher> watcher_ = std::make_shared<FakeWatcher>();
};

TEST_F(MeshWatchTest, TheFirstMessageIsWholeAndTheNextHasWhatChanged) {
  const StreamId a = mesh_.Attach("a", 1);
  const StreamId b = mesh_.Attach("b", 1);
  Pass(1000, {a, b});
  ASSERT_EQ(messages(), 1);
  EXPECT_TRUE(last().whole());
  EXPECT_EQ(last().workers_size(), 2);

  Pass(1000, {a, b});
  ASSERT_EQ(messages(), 2);
  EXPECT_FALSE(last().whole());
  EXPECT_EQ(last().workers_size(), 0) << last().DebugString();

  ASSERT_TRUE(mesh_.Drain("b", true).ok());
  Pass(1000, {a, b});
  ASSERT_EQ(last().workers_size(), 1);
  EXPECT_EQ(last().workers(0).registration().name(), "b");
  EXPECT_TRUE(last().workers(0).drained());
}

// A mesh has 12,000 workers; a client takes at most 16 MiB.
TEST(MeshWatch, ALargeUpdateComesInSeveralMessages) {
  StoredState stored;
  for (int64_t id = 1; id <= 12'000; ++id) {
    v1::Registration& worker = stored.workers[WorkerId{id}];
    worker = WorkerNamed(absl::StrCat("w", id), 1);
    worker.set_cpu_model(std::string(500, 'c'));
  }
  const Brain brain(BrainPolicy{}, std::move(stored), Moment());
  MemoryStore store;
  MeshWatch watch;
  const auto watcher = std::make_shared<FakeWatcher>();
  watch.Add(watcher);

  watch.Publish(brain, store, {{absl::Seconds(1)}, 1000});

  ASSERT_GT(watcher->taken.size(), 1u);
  ASSERT_LE(watcher->taken.size(), kMostUnread);
  size_t workers = 0;
  for (const v1::MeshUpdate& message : watcher->taken) {
    EXPECT_LT(message.ByteSizeLong(), 5u << 20);
    EXPECT_EQ(message.whole(), &message == &watcher->taken.front());
    EXPECT_EQ(message.more(), &message != &watcher->taken.back());
    EXPECT_EQ(message.unix_ms(), 1000);
    workers += message.workers_size();
  }
  EXPECT_EQ(workers, 12'000u);
}

TEST_F(MeshWatchTest, WhatIsGoneIsForgotten) {
  const StreamId a = mesh_.Attach("a", 1);
  const JobId job = mesh_.Submit(SpecOf(1));
  Pass(1000, {a});
  ASSERT_TRUE(mesh_.Stop(job).ok());
  mesh_.brain().OnDeleted(job);
  mesh_.Leave(a, /*restarting=*/false);
  mesh_.Break(a);
  ASSERT_TRUE(mesh_.Forget("a").ok());

  Pass(1000);

  EXPECT_THAT(last().forgotten_jobs(), ElementsAre(job.value));
  EXPECT_EQ(last().forgotten_workers_size(), 1);
}

TEST_F(MeshWatchTest, AnEventIsToldAtOnceAndAQuietMeshOnceASecond) {
  Pass(1000);
  Pass(100);
  EXPECT_EQ(messages(), 1);

  Store(JobId{1}, {.events = {EventOf("x")}});
  Pass(100);
  ASSERT_EQ(messages(), 2);
  EXPECT_EQ(last().events(0).text(), "x");

  Pass(100);
  EXPECT_EQ(messages(), 2);
  Pass(1000);
  EXPECT_EQ(messages(), 3);
}

TEST_F(MeshWatchTest, OfManyEventsTheNewestAreTold) {
  Pass(1000);
  StoreBatch::Records records;
  for (int i = 0; i < 10'000; ++i) {
    records.events.push_back(EventOf(absl::StrCat(i)));
  }
  Store(JobId{1}, records);
  Pass(100);
  EXPECT_EQ(last().events_size(), 200);
  EXPECT_EQ(last().events(199).text(), "9999");

  // After a restart of the coordinator they come from the store.
  MeshWatch again;
  again.Add(watcher_);
  again.Publish(mesh_.brain(), store_, mesh_.Now());
  EXPECT_TRUE(last().whole());
  EXPECT_EQ(last().events_size(), 200);
  EXPECT_EQ(last().events(199).text(), "9999");
}

TEST_F(MeshWatchTest, AWatcherThatTakesNoMoreIsToldNoMore) {
  const auto slow = std::make_shared<FakeWatcher>();
  slow->most = 2;
  watch_.Add(slow);
  for (int i = 0; i < 5; ++i) Pass(1000);
  EXPECT_EQ(slow.use_count(), 1);
  EXPECT_EQ(messages(), 5);
}

TEST_F(MeshWatchTest, AtTheEndAllAreTold) {
  Pass(1000);
  watch_.End(absl::UnavailableError("stopping"));
  const auto late = std::make_shared<FakeWatcher>();
  watch_.Add(late);
  for (const auto& watcher : {watcher_, late}) {
    EXPECT_THAT(watcher->end.message(), HasSubstr("stopping"));
  }
}

// Thousands of numbers once came in each message.
TEST_F(MeshWatchTest, NoJobHasItsUnreadableSamplesOrSkippedSteps) {
  const StreamId a = mesh_.Attach("a", 1);
  const JobId job = mesh_.Submit(SpecOf(1));
  v1::Heartbeat heartbeat = mesh_.Beat(kRunning, 1);
  v1::UnreadableSamples& said =
      *heartbeat.mutable_run()->mutable_unreadable()->mutable_train();
  said.set_of(60);
  said.add_numbers(7);
  *heartbeat.add_steps() = StepOf(1, 1.0);
  heartbeat.mutable_steps(0)->set_skipped(true);
  ASSERT_TRUE(mesh_.Send(a, heartbeat).ok());
  ASSERT_TRUE(mesh_.Record().job.has_unreadable());
  ASSERT_EQ(mesh_.Record().job.skip_runs_size(), 1);

  Pass(1000, {a});

  ASSERT_EQ(last().jobs_size(), 1);
  EXPECT_EQ(last().jobs(0).id(), job.value);
  EXPECT_FALSE(last().jobs(0).has_unreadable());
  EXPECT_EQ(last().jobs(0).skip_runs_size(), 0);
}

TEST_F(MeshWatchTest, StepsAreToldOnceAndAgainWithAnotherLoss) {
  const JobId job = mesh_.Submit(SpecOf(1));
  Store(job, {.steps = {StepOf(1, 3.0), StepOf(2, 2.0)}});
  Pass(1000);  // the curve that is stored comes after the job
  Pass(1000);
  EXPECT_THAT(StepsOf(last().jobs(0)), ElementsAre(1, 2));

  Store(job, {.steps = {StepOf(3, 1.5), StepOf(4, 1.0)}});
  Pass(1000);
  EXPECT_THAT(StepsOf(last().jobs(0)), ElementsAre(3, 4));
  Store(job, {.steps = {StepOf(3, 1.4)}});
  Pass(1000);
  EXPECT_THAT(StepsOf(last().jobs(0)), ElementsAre(3));

  const auto other = std::make_shared<FakeWatcher>();
  watch_.Add(other);
  Pass(1000);
  EXPECT_THAT(StepsOf(other->taken[0].jobs(0)), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(other->taken[0].jobs(0).curve(2).loss(), 1.4);
}

TEST_F(MeshWatchTest, StepsThatAreRunAgainTakeThePlaceOfThoseBefore) {
  const JobId job = mesh_.Submit(SpecOf(1));
  Pass(1000);
  Store(job, {.steps = {StepOf(1, 3.0), StepOf(2, 2.0), StepOf(3, 1.5)}});
  Pass(1000);

  Store(job, {.steps = {StepOf(3, 1.4)}}, /*restarted=*/2);
  Pass(1000);

  EXPECT_THAT(StepsOf(last().jobs(0)), ElementsAre(1, 2, 3));
  EXPECT_EQ(last().jobs(0).curve(2).loss(), 1.4);
  Store(job, {}, /*restarted=*/0);
  const auto other = std::make_shared<FakeWatcher>();
  watch_.Add(other);
  Pass(1000);
  EXPECT_THAT(StepsOf(other->taken[0].jobs(0)), ElementsAre());
}

TEST_F(MeshWatchTest, PointsThatWereLeftOutAreNotToldLater) {
  const JobId job = mesh_.Submit(SpecOf(1));
  Pass(1000);
  StoreBatch::Records records;
  for (int64_t step = 1; step <= 30; ++step) {
    records.steps.push_back(StepOf(step, 1.0));
  }
  Store(job, records);
  Pass(1000);
  Store(job, {.steps = {StepOf(31, 1.0)}});
  Pass(1000);
  const std::vector<int64_t> told = StepsOf(last().jobs(0));

  for (v1::StepRecord& step : records.steps) step.set_loss(2.0);
  Store(job, records);
  Pass(1000);

  EXPECT_LE(last().jobs(0).curve_size(), 11);
  EXPECT_THAT(StepsOf(last().jobs(0)), Not(Contains(2)));
  EXPECT_THAT(StepsOf(last().jobs(0)), Contains(30));
}

TEST_F(MeshWatchTest, AllJobsAreCountedThoughNotAllAreTold) {
  for (int i = 0; i < 40; ++i) mesh_.Submit(SpecOf(1));
  Pass(1000);
  EXPECT_EQ(last().jobs_size(), 30);
  EXPECT_EQ(last().job_counts().at("queued"), 40);

  ASSERT_TRUE(mesh_.Stop(JobId{40}).ok());
  Pass(1000);
  EXPECT_EQ(last().job_counts().at("queued"), 39);
  EXPECT_EQ(last().job_counts().at("stopped"), 1);
}

TEST_F(MeshWatchTest, OfManyStepsTheCurveKeepsSomeAndTheNewest) {
  const JobId job = mesh_.Submit(SpecOf(1));
  Pass(1000);
  for (int64_t step = 1; step <= 5000; ++step) {
    Store(job, {.steps = {StepOf(step, 1.0)}});
  }
  Pass(1000);
  EXPECT_LE(last().jobs(0).curve_size(), 10);
  EXPECT_EQ(last().jobs(0).curve().rbegin()->step(), 5000);
}

TEST_F(MeshWatchTest, ALinkHasItsTrafficAndWhatWasMeasured) {
  StoredState stored;
  stored.measurements.Put(LinkMeasurement{"a", "b", 1e6, 1e-3});
  Mesh mesh(stored);
  const StreamId a = mesh.Attach("a", 1);
  const StreamId b = mesh.Attach("b", 1);
  const v1::Job view = mesh.Job(mesh.Submit(SpecOf(2)));
  for (const int64_t bytes : {1000, 3000}) {
    v1::Heartbeat heartbeat = mesh.Beat(kRunning, 1);
    v1::SentBytes& sent = *heartbeat.mutable_run()->add_sent();
    sent.set_worker_id(view.workers(1).id());
    sent.set_bytes(bytes);
    ASSERT_TRUE(mesh.Send(a, heartbeat).ok());
    mesh.Pass(1000, {b});
    watch_.Publish(mesh.brain(), store_, mesh.Now());
  }
  ASSERT_EQ(last().jobs_size(), 1);
  ASSERT_EQ(last().jobs(0).links_size(), 1) << last().DebugString();
  const v1::JobLink& link = last().jobs(0).links(0);
  EXPECT_EQ(link.from(), "a");
  EXPECT_EQ(link.to(), "b");
  EXPECT_EQ(link.capacity_bytes_per_second(), 1e6);
  EXPECT_EQ(link.sent_bytes_per_second(), 2000);
}

}  // namespace
}  // namespace paceline

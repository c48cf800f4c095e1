// The coordinator gets its events right in every order, however many wait, and
// however long it stood still.
#include "coordinator/coordinator.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "coordinator/watch/metrics.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/checkpoint_files.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

// Used on the coordinator's thread, as the store is; read from any.
class FakeStream final : public WorkerStream {
 public:
  explicit FakeStream(MemoryStore& store) : store_(store) {}

  void SendOrder(const StandingOrder& order) override {
    if (!order.run.has_value() || !order.run->group.has_value()) return;
    const View& view = order.run->group->view;
    const StoredState stored = *store_.Load();
    const auto kept = stored.views.find(order.run->fence.job);
    const absl::MutexLock lock(&mutex_);
    newest_ = view;
    early_ = early_ || kept == stored.views.end() || kept->second.view != view;
  }
  void SendAck(int64_t /*sequence*/) override {}
  void End(const absl::Status& /*status*/) override {}
  bool ended() const override { return ended_; }

  std::optional<View> newest_view() const {
    const absl::MutexLock lock(&mutex_);
    return newest_;
  }
  // A view was told before it was stored.
  bool early() const {
    const absl::MutexLock lock(&mutex_);
    return early_;
  }

  bool ended_ = false;

 private:
  MemoryStore& store_;
  mutable absl::Mutex mutex_;
  std::optional<View> newest_ ABSL_GUARDED_BY(mutex_);
  bool early_ ABSL_GUARDED_BY(mutex_) = false;
};

// Takes whatever it is given; the test gives the answer to Save().
class FakeWeightsStore final : public WeightsStore {
 public:
  using Saved = Done<SavedWeights>;

  void Open(const Fence& /*fence*/, SafetensorsLayout /*layout*/,
            StatusDone done) override {
    done(absl::OkStatus());
  }
  void Write(v1::WeightsPiece /*piece*/, StatusDone done) override {
    done(absl::OkStatus());
  }
  void Sync(const Fence& /*fence*/, StatusDone done) override {
    done(absl::OkStatus());
  }
  void Save(const Fence& /*fence*/, Saved done) override {
    saved_ = std::move(done);
    asked_.Notify();
  }
  void Forget(JobId /*job*/) override {}
  void Read(JobId /*job*/, const std::string& /*name*/, int64_t /*offset*/,
            int64_t /*limit*/, Done<v1::WeightsChunk> done) override {
    done(absl::NotFoundError("nothing is kept here"));
  }

  // Waits until Save() is called; its answer goes there.
  const Saved& AwaitSave() {
    asked_.WaitForNotification();
    return saved_;
  }

 private:
  absl::Notification asked_;
  Saved saved_;
};

// A coordinator whose clock and worker streams are the test's.
class TestCoordinator {
 public:
  // On a store that has this already.
  explicit TestCoordinator(const std::vector<StoreBatch>& batches)
      : store_(batches),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, *store_.Load(), store_, weights_store_,
                     checkpoints_, clock_, metrics_) {}
  explicit TestCoordinator(StoredState stored = {})
      : metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, std::move(stored), store_, weights_store_,
                     checkpoints_, clock_, metrics_) {}

  std::shared_ptr<FakeStream> NewStream() {
    return std::make_shared<FakeStream>(store_);
  }
  absl::Status Attach(StreamId id, std::shared_ptr<WorkerStream> stream,
                      const std::string& name = "a") {
    return Await<v1::Welcome>([&](auto done) {
             coordinator_.Attach(id, std::move(stream), WorkerNamed(name, 1),
                                 done);
           })
        .status();
  }

  void Report(StreamId id, const Fence& fence, v1::RunState::Phase phase) {
    v1::Heartbeat heartbeat;
    heartbeat.set_sequence(++sequence_);
    v1::RunState& run = *heartbeat.mutable_run();
    run.set_job(fence.job.value);
    run.set_attempt(fence.attempt);
    run.set_plan_version(fence.plan_version);
    run.set_phase(phase);
    run.set_step(60);
    run.set_steps(60);
    coordinator_.OnReport(
        id, ReportOf(heartbeat),
        [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  }

  v1::Job Submit(const JobSpec& spec) {
    return GetJob(Await<v1::SubmitJobResponse>([&](auto done) {
                    coordinator_.Submit(SubmissionOf(spec), done);
                  })
                      .value()
                      .id());
  }
  // The same, once its placement is made and it begins.
  v1::Job Begin(const JobSpec& spec) {
    v1::Job job = Submit(spec);
    while (job.attempt() == 0) job = GetJob(job.id());
    return job;
  }
  v1::Job GetJob(int64_t id) { return FindJob(id).value(); }
  absl::StatusOr<v1::Job> FindJob(int64_t id, int32_t points = 0) {
    v1::GetJobRequest request;
    request.set_id(id);
    request.set_points(points);
    return Await<v1::Job>(
        [&](auto done) { coordinator_.GetJob(request, done); });
  }
  // All pages; how many there were.
  int List(int32_t page_size, std::vector<int64_t>& ids) {
    v1::ListJobsRequest request;
    request.set_page_size(page_size);
    for (int pages = 1;; ++pages) {
      const auto page = Await<v1::ListJobsResponse>(
          [&](auto done) { coordinator_.ListJobs(request, done); });
      for (const v1::Job& job : page->jobs()) ids.push_back(job.id());
      if (page->next_page_token().empty()) return pages;
      request.set_page_token(page->next_page_token());
    }
  }
  v1::ListWorkersResponse Workers() {
    return Await<v1::ListWorkersResponse>(
               [&](auto done) { coordinator_.ListWorkers({}, done); })
        .value();
  }

  // Until all that the tick led to is done: the first answer may come before
  // its batch has ended, the second cannot.
  void TickAfter(absl::Duration time) {
    clock_.Advance(time);
    coordinator_.Tick();
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(coordinator_.Summary(absl::Minutes(1)).has_value());
    }
  }

  // Returns what `ask` gives the callback that it is called with.
  template <typename T, typename Ask>
  static absl::StatusOr<T> Await(const Ask& ask) {
    absl::StatusOr<T> answer;
    absl::Notification answered;
    ask([&](absl::StatusOr<T> given) {
      answer = std::move(given);
      answered.Notify();
    });
    answered.WaitForNotification();
    return answer;
  }

  std::string Metrics() { return registry_.Text(); }
  Coordinator* operator->() { return &coordinator_; }
  FakeClock& clock() { return clock_; }
  MemoryStore& store() { return store_; }
  FakeWeightsStore& weights_store() { return weights_store_; }

 private:
  FakeClock clock_;
  MemoryStore store_;
  FakeWeightsStore weights_store_;
  const TempFolder folder_;
  FakePieceFetcher fetcher_;
  FileCheckpointStore checkpoints_{folder_.path(), fetcher_};
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  int64_t sequence_ = 0;
  Coordinator coordinator_;
};

// A job whose answer was dropped stayed "saving" for ever.
TEST(Coordinator, TakesTheWeightsStoresAnswerWhenClientsHaveFilledItsQueue) {
  TestCoordinator coordinator;
  const StreamId stream = coordinator->NextStream();
  ASSERT_TRUE(coordinator.Attach(stream, coordinator.NewStream()).ok());
  const v1::Job job = coordinator.Begin(SpecOf(1));
  const Fence fence = {JobId{job.id()}, job.attempt(), job.plan_version()};
  coordinator.Report(stream, fence, kRunning);
  coordinator.Report(stream, fence, kDone);
  const FakeWeightsStore::Saved& saved =
      coordinator.weights_store().AwaitSave();
  absl::Notification blocked, go_on, answered;
  coordinator->ListWorkers({}, [&](const auto&) {
    blocked.Notify();
    go_on.WaitForNotification();
  });
  blocked.WaitForNotification();
  coordinator->ListWorkers({}, [&](const auto&) { answered.Notify(); });
  // Called at once where it is refused, else when the loop goes on.
  std::atomic<bool> full = false;
  while (!full) {
    coordinator->ListWorkers({}, [&full](const auto& workers) {
      if (absl::IsUnavailable(workers.status())) full = true;
    });
  }

  saved(SavedWeights{"1/model.safetensors", std::string(64, '0'), 1});
  go_on.Notify();

  answered.WaitForNotification();
  EXPECT_EQ(coordinator.GetJob(job.id()).state(), v1::JOB_STATE_SUCCEEDED);
}

// It was live until its lease, since nobody would say again that its stream had
// broken.
TEST(Coordinator, DoesNotAttachAStreamThatHasEnded) {
  TestCoordinator coordinator;
  const StreamId id = coordinator->NextStream();
  const auto stream = coordinator.NewStream();
  stream->ended_ = true;
  coordinator->OnBroken(id);

  EXPECT_TRUE(absl::IsCancelled(coordinator.Attach(id, stream)));

  EXPECT_EQ(coordinator.Workers().workers_size(), 0);
}

// It came by a slower thread than the worker's next stream.
TEST(Coordinator, DoesNotReplaceALiveStreamByOneThatHasEnded) {
  TestCoordinator coordinator;
  const StreamId old_id = coordinator->NextStream();
  const StreamId new_id = coordinator->NextStream();
  const auto old_stream = coordinator.NewStream();
  old_stream->ended_ = true;
  coordinator->OnBroken(old_id);
  ASSERT_TRUE(coordinator.Attach(new_id, coordinator.NewStream()).ok());

  coordinator.Attach(old_id, old_stream).IgnoreError();

  coordinator->OnBroken(old_id);  // changes nothing
  ASSERT_EQ(coordinator.Workers().workers_size(), 1);
  EXPECT_EQ(coordinator.Workers().workers(0).state(), v1::WORKER_STATE_IDLE);
}

// A coordinator that comes later would decide another view of the same number.
TEST(Coordinator, TellsNobodyOfAViewWhileTheDiskIsFull) {
  TestCoordinator coordinator;
  const auto stays = coordinator.NewStream();
  const auto goes = coordinator.NewStream();
  ASSERT_TRUE(coordinator.Attach(coordinator->NextStream(), stays).ok());
  ASSERT_TRUE(coordinator.Attach(coordinator->NextStream(), goes, "b").ok());
  coordinator.Begin(GroupSpec());
  coordinator.TickAfter(absl::Milliseconds(10));
  ASSERT_TRUE(stays->newest_view().has_value());
  const View first = *stays->newest_view();
  ASSERT_EQ(first.members.size(), 2u);

  coordinator.store().FailWith(absl::ResourceExhaustedError("disk is full"));
  coordinator->Change(
      [](const auto& /*worker*/) {},
      [](Brain& brain, Moment now) { return brain.OnDrain("b", true, now); });
  coordinator.TickAfter(absl::Milliseconds(50));
  coordinator.TickAfter(absl::Milliseconds(50));
  EXPECT_EQ(stays->newest_view(), first);

  coordinator.store().FailWith(absl::OkStatus());
  coordinator.TickAfter(absl::Milliseconds(50));
  ASSERT_NE(stays->newest_view(), first) << "it was decided meanwhile";
  EXPECT_EQ(stays->newest_view()->members.size(), 1u);
  EXPECT_FALSE(stays->early() || goes->early());
}

StoredState EndedJobs(int64_t count) {
  StoredState stored;
  for (int64_t id = 1; id <= count; ++id) {
    JobRecord& job = stored.jobs[JobId{id}];
    job.job.set_id(id);
    job.job.set_state(v1::JOB_STATE_SUCCEEDED);
    job.spec = SpecOf(2);
  }
  stored.next_job = JobId{count + 1};
  return stored;
}

// The shortest of many ticks that renew the metrics, so that whatever else the
// machine does is in neither.  Walking over the jobs took 100 times as long.
TEST(Coordinator, SpendsNoTimeOnJobsThatHaveEnded) {
  TestCoordinator without;
  TestCoordinator with(EndedJobs(20'000));
  absl::Duration shortest_without = absl::InfiniteDuration();
  absl::Duration shortest_with = absl::InfiniteDuration();
  const auto time_a_tick = [](TestCoordinator& coordinator) {
    const Instant begin = SteadyNow();
    coordinator.TickAfter(absl::Milliseconds(500));
    return SteadyNow() - begin;
  };

  for (int i = 0; i < 100; ++i) {
    shortest_without = std::min(shortest_without, time_a_tick(without));
    shortest_with = std::min(shortest_with, time_a_tick(with));
  }

  EXPECT_LT(shortest_with, 10 * shortest_without);
  EXPECT_THAT(with.Metrics(),
              testing::HasSubstr(
                  "paceline_coordinator_jobs{state=\"succeeded\"} 20000"));
}

// Jobs 1 to `count`, which have ended, as a store has them.
StoreBatch StoredJobs(int64_t count) {
  StoreBatch batch;
  batch.jobs = EndedJobs(count).jobs;
  for (auto& [id, job] : batch.jobs) {
    job.job.set_ended_unix_ms(id.value);
    job.job.set_request_id(absl::StrCat("request-", id.value));
  }
  return batch;
}

// All but the last ones are out of memory.
class ManyEndedJobs : public testing::Test {
 protected:
  absl::Status Delete(int64_t id) {
    return TestCoordinator::Await<v1::DeleteJobResponse>(
               [&](auto done) { coordinator_->Delete(JobId{id}, done); })
        .status();
  }

  TestCoordinator coordinator_{{StoredJobs(100)}};
};

TEST_F(ManyEndedJobs, AreListedInPagesOnceEach) {
  for (const int size : {0, 1, 7, 30, 100, 1000}) {
    std::vector<int64_t> ids;
    const int pages = coordinator_.List(size, ids);
    EXPECT_EQ(pages, size == 0 || size > 99 ? 1 : (100 + size - 1) / size);
    ASSERT_EQ(ids.size(), 100u) << size;
    EXPECT_TRUE(std::is_sorted(ids.rbegin(), ids.rend())) << size;
    EXPECT_EQ(ids.back(), 1) << size;
  }
  v1::ListJobsRequest request;
  request.set_page_token("rubbish");
  EXPECT_TRUE(absl::IsInvalidArgument(
      TestCoordinator::Await<v1::ListJobsResponse>([&](auto done) {
        coordinator_->ListJobs(request, done);
      }).status()));
}

TEST_F(ManyEndedJobs, AreFoundAndStayAsTheyAre) {
  for (const int64_t id : {1, 50, 100}) {
    EXPECT_EQ(coordinator_.GetJob(id).state(), v1::JOB_STATE_SUCCEEDED);
    const auto stopped = TestCoordinator::Await<v1::Job>(
        [&](auto done) { coordinator_->Stop(JobId{id}, done); });
    ASSERT_TRUE(stopped.ok()) << stopped.status();
    EXPECT_EQ(stopped->state(), v1::JOB_STATE_SUCCEEDED);
  }
  for (const int64_t id : {int64_t{0}, int64_t{101}, int64_t{-5},
                           std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(absl::IsNotFound(coordinator_.FindJob(id).status())) << id;
  }
}

TEST_F(ManyEndedJobs, AreNotSubmittedAgain) {
  v1::SubmitJobRequest request = SubmissionOf(SpecOf(1));
  request.set_request_id("request-3");
  const auto answer = TestCoordinator::Await<v1::SubmitJobResponse>(
      [&](auto done) { coordinator_->Submit(request, done); });
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->id(), 3);
}

TEST_F(ManyEndedJobs, AreDeletedAndWatchersStillSeeTheLastOnes) {
  for (int64_t id = 61; id <= 100; ++id) EXPECT_TRUE(Delete(id).ok()) << id;
  EXPECT_TRUE(Delete(1).ok());
  EXPECT_TRUE(absl::IsNotFound(Delete(1)));
  EXPECT_TRUE(absl::IsNotFound(coordinator_.FindJob(1).status()));

  std::vector<int64_t> ids;
  coordinator_.List(0, ids);
  EXPECT_EQ(ids.size(), 59u);
  EXPECT_EQ(ids.front(), 60);
  coordinator_.TickAfter(absl::Seconds(1));
  EXPECT_THAT(
      coordinator_.Metrics(),
      testing::HasSubstr("paceline_coordinator_jobs{state=\"succeeded\"} 59"));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr char kShortSeconds[] = "0.25";
#else
constexpr char kShortSeconds[] = "0.05";
#endif

// How many things of that work took at most kShortSeconds, and all of them.
std::pair<double, double> LoopCounts(const std::string& metrics,
                                     const std::string& work) {
  const auto value = [&](const std::string& series) {
    const size_t at = metrics.find(series);
    return at == std::string::npos
               ? -1.0
               : std::atof(metrics.c_str() + at + series.size());
  };
  const std::string name = "paceline_coordinator_loop_cpu_seconds_";
  return {value(absl::StrCat(name, "bucket{work=\"", work, "\",le=\"",
                             kShortSeconds, "\"}")),
          value(absl::StrCat(name, "count{work=\"", work, "\"}"))};
}

// Each of these took longer once: a list of all jobs, the whole curve for each
// look at a job, a deletion at one stroke, and what jobs in the queue wait for.
TEST(Coordinator, TakesLittleTimeForEachThingUnderALongLife) {
  std::vector<StoreBatch> batches = {StoredJobs(5'000)};
  for (int64_t step = 1; step <= 60'000;) {
    StoreBatch::Records records;
    for (int i = 0; i < 5'000; ++i, ++step) {
      records.steps.push_back(StepOf(step, 1.0));
      records.events.emplace_back().set_text("something happened");
    }
    batches.push_back({.records = {{JobId{1}, records}}});
  }
  StoreBatch queued;
  for (int64_t id = 10'001; id <= 12'000; ++id) {
    JobRecord& job = queued.jobs[JobId{id}];
    job.job.set_id(id);
    job.job.set_state(v1::JOB_STATE_QUEUED);
    job.spec = SpecOf(2);
    job.spec.pipeline.workers = {"a", "b"};
  }
  batches.push_back(queued);
  TestCoordinator coordinator(batches);
  ASSERT_TRUE(
      coordinator.Attach(coordinator->NextStream(), coordinator.NewStream())
          .ok());

  std::vector<int64_t> ids;
  coordinator.List(0, ids);
  EXPECT_EQ(ids.size(), 7'000u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(coordinator.FindJob(1, 1'000)->curve_size(), 1'000);
    coordinator.TickAfter(absl::Milliseconds(500));
  }
  EXPECT_EQ(coordinator.FindJob(1, 1'000'000)->curve_size(), kMostPoints);
  absl::Notification deleted;
  coordinator->Delete(JobId{1}, [&](const auto& answer) {
    EXPECT_TRUE(answer.ok()) << answer.status();
    deleted.Notify();
  });
  deleted.WaitForNotification();
  ASSERT_TRUE(
      coordinator
          .Attach(coordinator->NextStream(), coordinator.NewStream(), "b")
          .ok());
  for (int i = 0; i < 200; ++i) coordinator.TickAfter(absl::Milliseconds(50));

  const std::string metrics = coordinator.Metrics();
  for (const char* work :
       {"event", "answer", "orders", "watch", "metrics", "upkeep"}) {
    const auto [short_ones, all] = LoopCounts(metrics, work);
    EXPECT_GT(all, 0) << work;
    EXPECT_EQ(short_ones, all) << work << metrics;
  }
}

// One worker, which says nothing after its registration.  A coordinator that
// was stopped, or whose machine or disk was, must not take its own silence for
// that of its workers.
class Standstill : public testing::Test {
 protected:
  Standstill() {
    Attach();
    coordinator_.TickAfter(absl::Milliseconds(50));
  }

  void Attach() {
    stream_ = coordinator_->NextStream();
    EXPECT_TRUE(coordinator_.Attach(stream_, coordinator_.NewStream()).ok());
  }
  void TickEightTimes(absl::Duration period) {
    for (int i = 0; i < 8; ++i) coordinator_.TickAfter(period);
  }
  v1::WorkerState State() { return coordinator_.Workers().workers(0).state(); }

  TestCoordinator coordinator_;
  StreamId stream_;
};

TEST_F(Standstill, IsNobodysSilenceAndGivesNoMoreThanARestartDoes) {
  coordinator_.TickAfter(absl::Minutes(5));
  EXPECT_EQ(State(), v1::WORKER_STATE_IDLE);
  TickEightTimes(absl::Milliseconds(400));
  EXPECT_EQ(State(), v1::WORKER_STATE_SUSPECT);

  coordinator_.TickAfter(absl::Milliseconds(400));

  EXPECT_EQ(State(), v1::WORKER_STATE_LOST);
}

// The worker hung up meanwhile, and the coordinator hears of that before
// anything else.
TEST_F(Standstill, ThatBrokeAStreamGivesItsWorkerTheTimeToComeBack) {
  coordinator_.clock().Advance(absl::Seconds(30));
  coordinator_->OnBroken(stream_);
  coordinator_.TickAfter(absl::ZeroDuration());
  TickEightTimes(absl::Milliseconds(400));
  EXPECT_EQ(State(), v1::WORKER_STATE_SUSPECT);

  Attach();

  EXPECT_EQ(State(), v1::WORKER_STATE_IDLE);
}

}  // namespace
}  // namespace paceline

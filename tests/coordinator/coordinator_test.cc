// What the coordinator does with events whatever order they come in, and
// however many wait.
#include "coordinator/coordinator.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "coordinator/metrics.h"
#include "gtest/gtest.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

class FakeStream final : public WorkerStream {
 public:
  void SendOrder(const StandingOrder& /*order*/) override {}
  void SendAck(int64_t /*sequence*/) override {}
  void End(const absl::Status& /*status*/) override {}
  bool ended() const override { return ended_; }

  bool ended_ = false;
};

// Takes whatever it is given; the test gives the answer to Save().
class FakeDesk final : public WeightsDesk {
 public:
  using Saved = std::function<void(absl::StatusOr<SavedWeights>)>;

  void Open(const Fence& /*fence*/, SafetensorsLayout /*layout*/,
            std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Write(WeightsPiece /*piece*/,
             std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Sync(const Fence& /*fence*/,
            std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Save(const Fence& /*fence*/, Saved done) override {
    saved_ = std::move(done);
    asked_.Notify();
  }
  void Forget(JobId /*job*/) override {}
  void Read(JobId /*job*/, const std::string& /*name*/, int64_t /*offset*/,
            int64_t /*limit*/,
            std::function<void(absl::StatusOr<WeightsPart>)> done) override {
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

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest()
      : metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, StoredState{}, store_, desk_, clock_,
                     metrics_) {}

  absl::Status Attach(StreamId id, std::shared_ptr<WorkerStream> stream) {
    absl::Status status;
    absl::Notification done;
    coordinator_.Attach(id, std::move(stream), WorkerNamed("a", 1),
                        [&](const absl::StatusOr<WelcomeInfo>& welcome) {
                          status = welcome.status();
                          done.Notify();
                        });
    done.WaitForNotification();
    return status;
  }

  void Report(StreamId id, const Fence& fence, RunPhase phase) {
    Heartbeat heartbeat;
    heartbeat.sequence = ++sequence_;
    heartbeat.run =
        RunReport{.fence = fence, .phase = phase, .step = 60, .steps = 60};
    coordinator_.OnHeartbeat(
        id, std::move(heartbeat),
        [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  }

  JobRecord Submit() {
    JobRecord job;
    absl::Notification done;
    coordinator_.Submit({SpecOf(1), ""}, /*dry_run=*/false,
                        [&](const absl::StatusOr<Submission>& submission) {
                          EXPECT_TRUE(submission.ok()) << submission.status();
                          job = submission->job;
                          done.Notify();
                        });
    done.WaitForNotification();
    return GetJob(job.id);
  }

  JobRecord GetJob(JobId id) {
    JobRecord job;
    absl::Notification done;
    coordinator_.GetJob(id, 0, 0, [&](const absl::StatusOr<JobDetails>& view) {
      EXPECT_TRUE(view.ok()) << view.status();
      job = view->view.record;
      done.Notify();
    });
    done.WaitForNotification();
    return job;
  }

  std::vector<WorkerView> Workers() {
    std::vector<WorkerView> views;
    absl::Notification done;
    coordinator_.ListWorkers([&](const auto& workers) {
      views = *workers;
      done.Notify();
    });
    done.WaitForNotification();
    return views;
  }

  FakeClock clock_;
  MemoryStore store_;
  FakeDesk desk_;
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  int64_t sequence_ = 0;
  Coordinator coordinator_;
};

// Issue 22, defect 7: a job whose answer was dropped stayed "saving" for ever.
TEST_F(CoordinatorTest, TakesTheDesksAnswerWhenClientsHaveFilledItsQueue) {
  const StreamId stream = coordinator_.NextStream();
  ASSERT_TRUE(Attach(stream, std::make_shared<FakeStream>()).ok());
  const JobRecord job = Submit();
  Report(stream, job.fence(), RunPhase::kRunning);
  Report(stream, job.fence(), RunPhase::kDone);
  const FakeDesk::Saved& saved = desk_.AwaitSave();
  absl::Notification blocked, go_on, answered;
  coordinator_.ListWorkers([&](const auto&) {
    blocked.Notify();
    go_on.WaitForNotification();
  });
  blocked.WaitForNotification();
  coordinator_.ListWorkers([&](const auto&) { answered.Notify(); });
  // Called at once where it is refused, else when the loop goes on.
  std::atomic<bool> full = false;
  while (!full) {
    coordinator_.ListWorkers([&full](const auto& workers) {
      if (absl::IsUnavailable(workers.status())) full = true;
    });
  }

  saved(SavedWeights{"1/model.safetensors", std::string(64, '0'), 1});
  go_on.Notify();

  answered.WaitForNotification();
  EXPECT_EQ(GetJob(job.id).state, JobState::kSucceeded);
}

// Issue 22, defect 8: it was live until its lease, since nobody would say again
// that its stream had broken.
TEST_F(CoordinatorTest, DoesNotAttachAStreamThatHasEnded) {
  const StreamId id = coordinator_.NextStream();
  const auto stream = std::make_shared<FakeStream>();
  stream->ended_ = true;
  coordinator_.OnBroken(id);

  EXPECT_EQ(Attach(id, stream).code(), absl::StatusCode::kCancelled);

  EXPECT_EQ(Workers().size(), 0u);
}

// It came by a slower thread than the worker's next stream.
TEST_F(CoordinatorTest, DoesNotReplaceALiveStreamByOneThatHasEnded) {
  const StreamId old_id = coordinator_.NextStream();
  const StreamId new_id = coordinator_.NextStream();
  const auto old_stream = std::make_shared<FakeStream>();
  old_stream->ended_ = true;
  coordinator_.OnBroken(old_id);
  ASSERT_TRUE(Attach(new_id, std::make_shared<FakeStream>()).ok());

  Attach(old_id, old_stream).IgnoreError();

  ASSERT_EQ(Workers().size(), 1u);
  EXPECT_EQ(Workers()[0].member.stream, new_id);
}

}  // namespace
}  // namespace paceline

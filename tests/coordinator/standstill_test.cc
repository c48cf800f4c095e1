// A coordinator that was stopped, or whose machine or disk was, must not take
// its own silence for that of its workers.
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "coordinator/coordinator.h"
#include "coordinator/metrics.h"
#include "coordinator/store/file_weights_desk.h"
#include "gtest/gtest.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/coordinator/temp_folder.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

class SilentStream final : public WorkerStream {
 public:
  void SendOrder(const StandingOrder& /*order*/) override {}
  void SendAck(int64_t /*sequence*/) override {}
  void End(const absl::Status& /*status*/) override {}
  bool ended() const override { return false; }
};

// One worker, which says nothing after its registration.
class Standstill : public testing::Test {
 protected:
  Standstill()
      : desk_(folder_.path()),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, StoredState{}, store_, desk_, clock_,
                     metrics_) {
    Attach();
    TickAfter(absl::Milliseconds(50));
  }
  ~Standstill() override {
    coordinator_.Stop();
    desk_.Stop();
  }

  void Attach() {
    absl::Notification attached;
    stream_ = coordinator_.NextStream();
    coordinator_.Attach(stream_, std::make_shared<SilentStream>(),
                        WorkerNamed("a", 1),
                        [&](const absl::StatusOr<WelcomeInfo>& welcome) {
                          EXPECT_TRUE(welcome.ok()) << welcome.status();
                          attached.Notify();
                        });
    attached.WaitForNotification();
  }

  void TickAfter(absl::Duration time) {
    clock_.Advance(time);
    coordinator_.Tick();
    State();  // the tick was taken
  }

  MemberState State() {
    MemberState state = MemberState::kLost;
    absl::Notification listed;
    coordinator_.ListWorkers(
        [&](const absl::StatusOr<std::vector<WorkerView>>& workers) {
          EXPECT_TRUE(workers.ok() && workers->size() == 1);
          state = workers->front().member.state;
          listed.Notify();
        });
    listed.WaitForNotification();
    return state;
  }

  TempFolder folder_;
  FakeClock clock_;
  MemoryStore store_;
  FileWeightsDesk desk_;
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  Coordinator coordinator_;
  StreamId stream_;
};

TEST_F(Standstill, IsNobodysSilence) {
  TickAfter(absl::Minutes(5));

  EXPECT_EQ(State(), MemberState::kLive);
}

TEST_F(Standstill, GivesNoMoreThanARestartDoes) {
  TickAfter(absl::Minutes(5));
  for (int i = 0; i < 8; ++i) TickAfter(absl::Milliseconds(400));
  EXPECT_EQ(State(), MemberState::kSuspect);

  TickAfter(absl::Milliseconds(400));

  EXPECT_EQ(State(), MemberState::kLost);
}

// Issue 22, defect 16: the worker hung up meanwhile, and the coordinator hears
// of that before anything else.
TEST_F(Standstill, ThatBrokeAStreamGivesItsWorkerTheTimeToComeBack) {
  clock_.Advance(absl::Seconds(30));
  coordinator_.OnBroken(stream_);
  TickAfter(absl::ZeroDuration());
  for (int i = 0; i < 8; ++i) TickAfter(absl::Milliseconds(400));
  EXPECT_EQ(State(), MemberState::kSuspect);

  Attach();

  EXPECT_EQ(State(), MemberState::kLive);
}

TEST_F(Standstill, OfEveryTickKeepsNobodyAlive) {
  for (int i = 0; i < 8; ++i) TickAfter(absl::Seconds(2));

  EXPECT_EQ(State(), MemberState::kLost);
}

}  // namespace
}  // namespace paceline

// A view reaches nobody before it is stored: a coordinator that comes later
// would decide another one of the same number.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "coordinator/coordinator.h"
#include "coordinator/metrics.h"
#include "coordinator/store/file_weights_desk.h"
#include "gtest/gtest.h"
#include "tests/coordinator/group_mesh.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/temp_folder.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

// On the coordinator's thread, as the store is.
class CheckedStream final : public WorkerStream {
 public:
  explicit CheckedStream(MemoryStore& store) : store_(store) {}

  void SendOrder(const StandingOrder& order) override {
    if (!order.run.has_value() || !order.run->group.has_value()) return;
    const View& view = order.run->group->view;
    const StoredState stored = *store_.Load();
    const auto kept = stored.views.find(order.run->fence.job);
    const absl::MutexLock lock(&mutex_);
    newest_ = view;
    early_ = early_ || kept == stored.views.end() || kept->second.view != view;
  }
  void SendAck(int64_t) override {}
  void End(const absl::Status&) override {}
  bool ended() const override { return false; }

  std::optional<View> newest() const {
    const absl::MutexLock lock(&mutex_);
    return newest_;
  }
  bool early() const {
    const absl::MutexLock lock(&mutex_);
    return early_;
  }

 private:
  MemoryStore& store_;
  mutable absl::Mutex mutex_;
  std::optional<View> newest_ ABSL_GUARDED_BY(mutex_);
  bool early_ ABSL_GUARDED_BY(mutex_) = false;
};

class DurableView : public ::testing::Test {
 protected:
  DurableView()
      : desk_(folder_.path()),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, StoredState{}, store_, desk_, clock_,
                     metrics_) {}
  ~DurableView() override {
    coordinator_.Stop();
    desk_.Stop();
  }

  void Attach(const std::string& name, uint64_t incarnation,
              std::shared_ptr<CheckedStream> stream) {
    const StreamId id = coordinator_.NextStream();
    coordinator_.Attach(id, std::move(stream), WorkerNamed(name, incarnation),
                        [](const auto& welcome) {
                          EXPECT_TRUE(welcome.ok()) << welcome.status();
                        });
  }
  // Until the loop is idle.
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    coordinator_.Tick();
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(coordinator_.Answers(absl::Seconds(30)));
    }
  }

  TempFolder folder_;
  FakeClock clock_;
  MemoryStore store_;
  FileWeightsDesk desk_;
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  Coordinator coordinator_;
};

TEST_F(DurableView, IsToldToNobodyWhileTheDiskIsFull) {
  const auto stays = std::make_shared<CheckedStream>(store_);
  const auto goes = std::make_shared<CheckedStream>(store_);
  Attach("w1", 101, stays);
  Attach("w2", 102, goes);
  coordinator_.Submit({GroupSpec(), ""}, false, [](const auto& submission) {
    EXPECT_TRUE(submission.ok()) << submission.status();
  });
  Pass(absl::Milliseconds(10));
  ASSERT_TRUE(stays->newest().has_value());
  const View first = *stays->newest();
  ASSERT_EQ(first.members.size(), 2u);

  store_.FailWith(absl::ResourceExhaustedError("disk is full"));
  coordinator_.Drain("w2", true, [](const auto& /*worker*/) {});
  Pass(absl::Milliseconds(50));
  Pass(absl::Milliseconds(50));
  EXPECT_EQ(stays->newest(), first);

  store_.FailWith(absl::OkStatus());
  Pass(absl::Milliseconds(50));
  ASSERT_NE(stays->newest(), first) << "it was decided meanwhile";
  EXPECT_EQ(stays->newest()->members.size(), 1u);
  EXPECT_FALSE(stays->early() || goes->early());
}

}  // namespace
}  // namespace paceline

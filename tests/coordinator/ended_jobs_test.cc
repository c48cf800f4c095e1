// Jobs that have ended cost the running coordinator nothing.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "coordinator/coordinator.h"
#include "coordinator/metrics.h"
#include "coordinator/store/file_weights_desk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/coordinator/temp_folder.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

// A coordinator that begins with that many ended jobs.
class Bystander {
 public:
  explicit Bystander(int64_t ended)
      : desk_(folder_.path()),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, Ended(ended), store_, desk_, clock_,
                     metrics_) {}
  ~Bystander() {
    coordinator_.Stop();
    desk_.Stop();
  }

  // Of one tick whose batch renews the metrics.
  absl::Duration TimeATick() {
    clock_.Advance(absl::Milliseconds(500));
    const absl::Time begin = absl::Now();
    coordinator_.Tick();
    // The first answer may come before its batch has ended, the second cannot.
    EXPECT_TRUE(coordinator_.Answers(absl::Minutes(1)));
    EXPECT_TRUE(coordinator_.Answers(absl::Minutes(1)));
    return absl::Now() - begin;
  }
  std::string Metrics() { return registry_.Text(); }

 private:
  static StoredState Ended(int64_t count) {
    StoredState stored;
    for (int64_t id = 1; id <= count; ++id) {
      JobRecord& job = stored.jobs[JobId{id}];
      job.id = JobId{id};
      job.spec = SpecOf(2);
      job.state = JobState::kSucceeded;
    }
    stored.next_job = JobId{count + 1};
    return stored;
  }

  TempFolder folder_;
  FakeClock clock_;
  MemoryStore store_;
  FileWeightsDesk desk_;
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  Coordinator coordinator_;
};

// Issue 22, defect 10.  The shortest of many, so that whatever else the machine
// does is in neither.  Walking over them took 100 times as long.
TEST(EndedJobs, CostNoTimeWhenTimePasses) {
  Bystander without(0);
  Bystander with(20'000);
  absl::Duration shortest_without = absl::InfiniteDuration();
  absl::Duration shortest_with = absl::InfiniteDuration();

  for (int i = 0; i < 100; ++i) {
    shortest_without = std::min(shortest_without, without.TimeATick());
    shortest_with = std::min(shortest_with, with.TimeATick());
  }

  EXPECT_LT(shortest_with, 10 * shortest_without);
  EXPECT_THAT(with.Metrics(),
              testing::HasSubstr(
                  "paceline_coordinator_jobs{state=\"succeeded\"} 20000"));
}

}  // namespace
}  // namespace paceline

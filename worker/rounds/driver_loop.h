// The thread that a group's driver lives on.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/thread.h"
#include "core/cluster/run_report.h"
#include "worker/rounds/group_driver.h"
#include "worker/rounds/round_event_log.h"

namespace paceline {

// Runs what is posted, and ticks the driver when it is due; after each run its
// report is there for all, and then the observer hears of what has changed in
// it.  Thread-safe.  Driver: DueAt(), OnTick(), Report(now), Stats(),
// TakeChanged().
template <typename Driver>
class DriverLoop {
 public:
  using Task = std::function<void(Driver&)>;

  // Both outlive this.
  DriverLoop(const Clock& clock, RoundObserver& observer)
      : clock_(clock), observer_(observer) {}
  ~DriverLoop() {
    End();
    Join();
  }

  // make: called on the thread.
  void Start(std::function<std::unique_ptr<Driver>()> make) {
    thread_ =
        Thread("rounds", [this, make = std::move(make)] { Run(*make()); });
  }
  // Nothing is taken any more.
  void End() {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  // Drops what waits.
  void Join() {
    thread_.Join();
    std::deque<Task> dropped;  // without the lock: some hold a part's memory
    const absl::MutexLock lock(&mutex_);
    dropped.swap(tasks_);
  }

  void Post(Task task) {
    const absl::MutexLock lock(&mutex_);
    if (!stopping_) tasks_.push_back(std::move(task));
  }
  // What a peer said: dropped where too much waits, since peers repeat it.
  void PostOfPeer(Task task) {
    const absl::MutexLock lock(&mutex_);
    if (stopping_ || tasks_.size() >= kMostTasks) return;
    tasks_.push_back(std::move(task));
  }

  MemberReport Report() const {
    const absl::MutexLock lock(&mutex_);
    return report_;
  }
  RoundStats Stats() const {
    const absl::MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  // That wait when peers want to say more.
  static constexpr size_t kMostTasks = 1 << 14;

  void Await(Instant due, std::deque<Task>& tasks) {
    const auto something = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !tasks_.empty();
    };
    const absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&something), due - clock_.Now());
    tasks.swap(tasks_);
  }

  void Run(Driver& driver) {
    for (;;) {
      std::deque<Task> tasks;
      Await(driver.DueAt(), tasks);
      for (const Task& task : tasks) task(driver);
      const Instant now = clock_.Now();
      if (now >= driver.DueAt()) driver.OnTick();
      if (Keep(driver.Report(now), driver.Stats())) return;
      // Not before: who hears of it asks at once.
      if (driver.TakeChanged()) observer_.OnMemberChanged();
    }
  }

  // True: it is to end.
  bool Keep(MemberReport report, const RoundStats& stats) {
    const absl::MutexLock lock(&mutex_);
    report_ = std::move(report);
    stats_ = stats;
    return stopping_;
  }

  const Clock& clock_;
  RoundObserver& observer_;

  mutable absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  MemberReport report_ ABSL_GUARDED_BY(mutex_);
  RoundStats stats_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace paceline

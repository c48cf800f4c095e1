// Runs closures at a given time, on one thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/thread.h"

namespace paceline {

// Thread-safe.  Closures must not block; they may add others.
class TimerThread {
 public:
  explicit TimerThread(std::string name);
  ~TimerThread();  // Stop()

  // Dropped, unrun, after Stop().
  void Run(std::function<void()> task) { RunAt(absl::InfinitePast(), task); }
  void RunAt(absl::Time when, std::function<void()> task);

  // Drops what has not run, and joins (not from a closure).  Safe to repeat.
  void Stop();

 private:
  void Loop();

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // By time, then in the order they came.
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> tasks_
      ABSL_GUARDED_BY(mutex_);
  absl::CondVar changed_;

  Thread thread_;
};

}  // namespace paceline

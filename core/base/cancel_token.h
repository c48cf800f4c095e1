// Tells the work on another thread to end, and gives the reason.
#pragma once

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace paceline {

// Thread-safe.
class CancelToken {
 public:
  // why is not OK; the first one wins.
  void Cancel(absl::Status why) {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(why);
  }

  // OK while nobody cancelled.
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  // Waits for `pause`, or until a Cancel(); returns status().
  absl::Status Pause(absl::Duration pause) const {
    const auto cancelled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !status_.ok();
    };
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&cancelled), pause);
    return status_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

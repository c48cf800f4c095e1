// Tells the work on another thread to end, and gives the reason.
#pragma once

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/os/steady_wait.h"

namespace paceline {

// Thread-safe.
class CancelToken {
 public:
  // why is not OK; the first one wins.
  void Cancel(absl::Status why) {
    SteadyLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(why);
  }

  // OK while nobody cancelled.
  absl::Status status() const {
    SteadyLock lock(&mutex_);
    return status_;
  }

  // Waits for `pause`, or until a Cancel(); returns status().
  absl::Status Pause(absl::Duration pause) const {
    const auto cancelled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !status_.ok();
    };
    SteadyLock lock(&mutex_);
    mutex_.AwaitFor(absl::Condition(&cancelled), pause);
    return status_;
  }

 private:
  mutable SteadyMutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace paceline

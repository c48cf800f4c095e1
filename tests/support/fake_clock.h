// Moments, and a clock that stands still until a test moves it.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"

namespace paceline {

inline Instant At(double seconds) { return {absl::Seconds(seconds)}; }

// Thread-safe.
class FakeClock final : public Clock {
 public:
  Instant Now() const override {
    absl::MutexLock lock(&mutex_);
    return {now_};
  }
  absl::Time Today() const override {
    absl::MutexLock lock(&mutex_);
    return absl::FromUnixSeconds(1'700'000'000) + now_;
  }
  void Advance(absl::Duration step) {
    absl::MutexLock lock(&mutex_);
    now_ += step;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Duration now_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(100);
};

}  // namespace paceline

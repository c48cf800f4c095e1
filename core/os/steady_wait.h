// Waits with a time that go by the monotonic clock.  Debian 12's Abseil waits
// for a time of day: after somebody sets the clock back by an hour, a wait of a
// second ends an hour late.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"

namespace paceline {

// The monotonic clock, which nobody sets, as SystemClock has it.
inline Instant SteadyNow() { return SystemClock().Now(); }

// As absl::Mutex, with the same conditions: Unlock() and the waits evaluate the
// conditions of all that wait, and wake those whose condition holds.  Only for
// state that somebody awaits with a time; absl::Mutex serves everywhere else.

// Thread-safe.
class ABSL_LOCKABLE SteadyMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION();

  // Gives the lock up until the condition holds.
  void Await(const absl::Condition& condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitFor(condition, absl::InfiniteDuration());
  }
  // As Await(), for at most `longest`, which may be negative or infinite.
  // Returns whether the condition holds.
  bool AwaitFor(const absl::Condition& condition, absl::Duration longest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this);

 private:
  struct Waiter {
    const absl::Condition& condition;
    std::condition_variable woken;
  };

  void WakeThoseThatMay();

  std::mutex mutex_;
  std::vector<Waiter*> waiters_;  // guarded by mutex_
};

// Thread-compatible.  Holds the lock while it lives.
class ABSL_SCOPED_LOCKABLE SteadyLock {
 public:
  explicit SteadyLock(SteadyMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~SteadyLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }

 private:
  SteadyMutex& mutex_;
};

// An event that happens once.

// Thread-safe.  A waiter may destroy it as soon as its wait has ended.
class SteadyNotification {
 public:
  void Notify() {
    SteadyLock lock(&mutex_);
    notified_ = true;
  }
  bool HasBeenNotified() const { return WaitFor(absl::ZeroDuration()); }
  void WaitForNotification() const { WaitFor(absl::InfiniteDuration()); }
  // Returns whether it happened within `longest`.
  bool WaitFor(absl::Duration longest) const;

 private:
  mutable SteadyMutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

// Tells the work on another thread to end, and gives the reason.

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

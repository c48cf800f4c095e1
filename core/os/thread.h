// Waits with a time that go by the monotonic clock, and threads.  Debian 12's
// Abseil waits for a time of day: after somebody sets the clock back by an
// hour, a wait of a second ends an hour late.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
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

// --- threads ---

// A named thread that its owner joins by dropping it.

// Thread-compatible.  The destructor joins: the owner must first tell the body
// to end.
class Thread {
 public:
  Thread() = default;
  // name: at most 15 characters, as shown by top -H.
  Thread(std::string name, std::function<void()> body);
  ~Thread();
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other);

  void Join();

 private:
  std::thread thread_;
};

// A thread that calls back at a steady pace.

// Thread-safe.  Destruction stops the thread and joins it.
class Ticker {
 public:
  // Calls `tick` every `period` from a thread of that name, starting one period
  // from now.  A late tick is not made up for.
  Ticker(std::string name, absl::Duration period, std::function<void()> tick)
      : period_(period),
        tick_(std::move(tick)),
        thread_(std::move(name), [this] { Run(); }) {}
  ~Ticker() {
    {
      SteadyLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.Join();
  }

 private:
  bool WaitOrStop() {
    SteadyLock lock(&mutex_);
    return mutex_.AwaitFor(absl::Condition(&stopping_), period_);
  }
  void Run() {
    while (!WaitOrStop()) tick_();
  }

  // Constant after construction.
  const absl::Duration period_;
  const std::function<void()> tick_;

  SteadyMutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread thread_;
};

// One thread that runs closures in the order they were posted.  A state machine
// that lives on this thread needs no lock of its own.

// Thread-safe.  Destruction refuses new tasks, runs what is queued, joins.
class TaskLoop {
 public:
  using Task = std::function<void()>;

  // after_batch runs on the loop's thread whenever the queue has just been
  // emptied (one database transaction, one flush); may be null.
  // capacity bounds the queue for TryPost().
  explicit TaskLoop(std::string name, Task after_batch = nullptr,
                    size_t capacity = 1 << 16);
  ~TaskLoop();

  // For consequences of accepted work, such as an answer: never refused,
  // however long the queue is.  The caller bounds their number.  After Stop()
  // the task is dropped, since no thread waits for it any more.
  void Post(Task task);

  // For requests from outside, which nothing else bounds.  Returns false when
  // the queue is full or the loop stops.  The task is then dropped, and the
  // caller answers the sender.
  [[nodiscard]] bool TryPost(Task task);

  // Refuses new tasks, runs what is queued, joins.  Safe to repeat.  Not from
  // a task.
  void Stop();

 private:
  bool Add(Task task, size_t capacity);
  void Run();

  // Constant after construction.
  const Task after_batch_;
  const size_t capacity_;

  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread thread_;
};

}  // namespace paceline

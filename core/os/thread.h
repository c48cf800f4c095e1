// A named thread that its owner joins by dropping it; one that calls back at a
// steady pace; one that runs closures in order.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/os/steady_wait.h"

namespace paceline {

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

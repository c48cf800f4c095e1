// One thread that runs closures in the order they were posted.  A state machine
// that lives on this thread needs no lock of its own.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/os/thread.h"

namespace paceline {

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

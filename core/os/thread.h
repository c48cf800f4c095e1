// A named thread that its owner joins by dropping it; one that calls back at a
// steady pace.
#pragma once

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

}  // namespace paceline

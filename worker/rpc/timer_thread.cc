#include "worker/rpc/timer_thread.h"

#include "absl/time/clock.h"

namespace paceline {

TimerThread::TimerThread(std::string name)
    : thread_(std::move(name), [this] { Loop(); }) {}

TimerThread::~TimerThread() { Stop(); }

void TimerThread::RunAt(absl::Time when, std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  const auto at = tasks_.emplace(std::make_pair(when, next_id_++), task).first;
  if (at == tasks_.begin()) changed_.Signal();
}

void TimerThread::Stop() {
  // Freed without the lock: what a closure holds may end with it and come back
  // here.
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
    changed_.Signal();
  }
  thread_.Join();
}

void TimerThread::Loop() {
  for (;;) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      for (;;) {
        if (stopping_) return;
        if (tasks_.empty()) {
          changed_.Wait(&mutex_);
        } else if (tasks_.begin()->first.first <= absl::Now()) {
          break;
        } else {
          changed_.WaitWithDeadline(&mutex_, tasks_.begin()->first.first);
        }
      }
      task = std::move(tasks_.extract(tasks_.begin()).mapped());
    }
    task();
  }
}

}  // namespace paceline

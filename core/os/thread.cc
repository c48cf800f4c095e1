#include "core/os/thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace paceline {

Thread::Thread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        body();
      }) {}

Thread::~Thread() { Join(); }

Thread& Thread::operator=(Thread&& other) {
  Join();
  thread_ = std::move(other.thread_);
  return *this;
}

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

TaskLoop::TaskLoop(std::string name, Task after_batch, size_t capacity)
    : after_batch_(std::move(after_batch)),
      capacity_(capacity),
      thread_(std::move(name), [this] { Run(); }) {}

TaskLoop::~TaskLoop() { Stop(); }

void TaskLoop::Post(Task task) {
  Add(std::move(task), std::numeric_limits<size_t>::max());
}

bool TaskLoop::TryPost(Task task) { return Add(std::move(task), capacity_); }

bool TaskLoop::Add(Task task, size_t capacity) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || tasks_.size() >= capacity) return false;
  tasks_.push_back(std::move(task));
  return true;
}

void TaskLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.Join();
}

void TaskLoop::Run() {
  const auto something_to_do = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !tasks_.empty();
  };
  for (;;) {
    std::deque<Task> batch;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&something_to_do));
      if (tasks_.empty()) return;
      batch.swap(tasks_);
    }
    for (Task& task : batch) task();
    if (after_batch_) after_batch_();
  }
}

void SteadyMutex::Unlock() {
  WakeThoseThatMay();
  mutex_.unlock();
}

bool SteadyMutex::AwaitFor(const absl::Condition& condition,
                           absl::Duration longest) {
  // Far enough away for "never", and no overflow of the clock.
  constexpr absl::Duration kForever = absl::Hours(24 * 365 * 100);
  const auto end = std::chrono::steady_clock::now() +
                   absl::ToChronoNanoseconds(
                       std::clamp(longest, absl::ZeroDuration(), kForever));
  Waiter self{condition, {}};
  waiters_.push_back(&self);
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  bool holds = condition.Eval();
  for (bool in_time = true; !holds && in_time; holds = condition.Eval()) {
    WakeThoseThatMay();  // the wait gives the lock up, as Unlock() does
    in_time = self.woken.wait_until(lock, end) == std::cv_status::no_timeout;
  }
  lock.release();  // the caller holds it again
  std::erase(waiters_, &self);
  return holds;
}

void SteadyMutex::WakeThoseThatMay() {
  for (Waiter* waiter : waiters_) {
    if (waiter->condition.Eval()) waiter->woken.notify_one();
  }
}

bool SteadyNotification::WaitFor(absl::Duration longest) const {
  SteadyLock lock(&mutex_);
  return mutex_.AwaitFor(absl::Condition(&notified_), longest);
}

}  // namespace paceline

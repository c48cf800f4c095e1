#include "core/os/steady_wait.h"

#include <algorithm>
#include <chrono>

namespace paceline {

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

#include "coordinator/ticker.h"

#include <utility>

namespace paceline {

Ticker::Ticker(absl::Duration period, std::function<void()> tick)
    : period_(period),
      tick_(std::move(tick)),
      thread_("ticker", [this] { Run(); }) {}

Ticker::~Ticker() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.Join();
}

void Ticker::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), period_)) return;
    }
    tick_();
  }
}

}  // namespace paceline

#include "core/rpc/call_deadline.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace paceline {

struct CallDeadline::State {
  absl::Mutex mutex;
  std::function<void()> expired ABSL_GUARDED_BY(mutex);  // null: not any more
};

CallDeadline::CallDeadline(absl::Duration after, std::function<void()> expired)
    : state_(std::make_shared<State>()) {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->expired = std::move(expired);
  }
  alarm_.Set(absl::ToChronoTime(absl::Now() + after),
             [state = state_](bool rang) {
               absl::MutexLock lock(&state->mutex);
               if (rang && state->expired != nullptr) state->expired();
             });
}

CallDeadline::~CallDeadline() {
  absl::MutexLock lock(&state_->mutex);
  state_->expired = nullptr;
}

}  // namespace paceline

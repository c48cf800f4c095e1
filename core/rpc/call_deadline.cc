#include "core/rpc/call_deadline.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace paceline {

struct CallDeadline::State {
  absl::Mutex mutex;
  std::function<void()> expired ABSL_GUARDED_BY(mutex);  // null: not any more
};

gpr_timespec DeadlineAfter(absl::Duration duration) {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(duration), GPR_TIMESPAN));
}

CallDeadline::CallDeadline(absl::Duration after, std::function<void()> expired)
    : state_(std::make_shared<State>()) {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->expired = std::move(expired);
  }
  alarm_.Set(DeadlineAfter(after), [state = state_](bool rang) {
    absl::MutexLock lock(&state->mutex);
    if (rang && state->expired != nullptr) state->expired();
  });
}

CallDeadline::~CallDeadline() {
  absl::MutexLock lock(&state_->mutex);
  state_->expired = nullptr;
}

}  // namespace paceline

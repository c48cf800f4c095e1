// Deadlines of calls: a client's, and a server's own for a call or a part of
// it.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"

namespace paceline {

// For ClientContext::set_deadline() and its like: on the monotonic clock, so
// that nobody who sets the clock moves it.
gpr_timespec DeadlineAfter(absl::Duration duration);

// Calls `expired` after some time, on a thread of gRPC, unless it is dropped
// before.  Thread-compatible.
class CallDeadline {
 public:
  CallDeadline(absl::Duration after, std::function<void()> expired);
  // Waits for `expired` where that is running.  Not from within it.
  ~CallDeadline();
  CallDeadline(const CallDeadline&) = delete;
  CallDeadline& operator=(const CallDeadline&) = delete;

 private:
  struct State;

  // Shared with the alarm, which gRPC may still be about to ring.
  const std::shared_ptr<State> state_;
  grpc::Alarm alarm_;
};

}  // namespace paceline

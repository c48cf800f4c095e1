// A server's own deadline for a call, or for a part of it.
#pragma once

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "grpcpp/alarm.h"

namespace paceline {

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

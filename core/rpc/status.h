// absl::Status and grpc::Status are the same words; deadlines of calls: a
// client's, and a server's own for a call or a part of it.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/text.h"
#include "grpc/support/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/status.h"

namespace paceline {

// Longer messages are cut when they leave: they travel as HTTP/2 metadata,
// three bytes for each that is not ASCII, and a status that does not fit
// (kMaxMetadataBytes, channel.h) would fail the call as something else.
constexpr int kMaxStatusMessageBytes = 16 << 10;

// Writes `error` to a message's error_code and error_message.  Its text may be
// long, and of any bytes, such as those of a file's name.
template <typename Message>
void SetError(const absl::Status& error, Message& message) {
  message.set_error_code(static_cast<int>(error.code()));
  message.set_error_message(ToUtf8(error.message(), kMaxStatusMessageBytes));
}

grpc::Status ToGrpc(const absl::Status& status);

// Codes that gRPC does not know become kUnknown.  What a server that speaks
// HTTP and no gRPC answered becomes kUnavailable: gRPC makes a code from the
// HTTP status (404: unimplemented), which would read as what our own servers
// mean by it.
absl::Status FromGrpc(const grpc::Status& status);

// Whether the call failed because what answered speaks HTTP, but not gRPC.
bool SpeaksNoGrpc(const grpc::Status& status);

// --- deadlines --------------------------------------------------------------

// For ClientContext::set_deadline() and its like: on the monotonic clock, so
// that nobody who sets the clock moves it.
gpr_timespec DeadlineAfter(absl::Duration duration);

// Calls `expired` after some time, on a thread of gRPC, unless it is dropped
// before.  Thread-compatible.
class CallDeadline {
 public:
  CallDeadline(absl::Duration after, std::function<void()> expired);
  CallDeadline(const CallDeadline&) = delete;
  // Waits for `expired` where that is running.  Not from within it.
  ~CallDeadline();

 private:
  struct State;

  // Shared with the alarm, which gRPC may still be about to ring.
  const std::shared_ptr<State> state_;
  grpc::Alarm alarm_;
};

}  // namespace paceline

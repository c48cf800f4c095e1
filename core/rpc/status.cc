#include "core/rpc/status.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"

namespace paceline {

namespace {

// At most `limit` bytes of `text`, not ending inside a UTF-8 sequence.
std::string Shortened(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end));
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      Shortened(status.message(), kMaxStatusMessageBytes));
}

bool SpeaksNoGrpc(const grpc::Status& status) {
  // gRPC 1.51 says so in its messages only: of HTTP/1 (chttp2_transport.cc,
  // try_http_parsing), and of HTTP/2 (http_client_filter.cc).
  const std::string& message = status.error_message();
  // Where HTTP/1 said "200 OK", gRPC takes that for its own code and drops the
  // words: the connection failed, and the last error is none.
  return absl::StrContains(message, "Trying to connect an http1.x server") ||
         absl::EndsWith(message, "last error: OK") ||
         absl::StrContains(message, "Received http2 header with status");
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (SpeaksNoGrpc(status)) {
    return Unavailable("what answers there speaks HTTP, but not gRPC (",
                       status.error_message(), "): is it the right port?");
  }
  const int code = status.error_code();
  const bool known = code >= 0 && code <= grpc::StatusCode::UNAUTHENTICATED;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      status.error_message());
}

// --- deadlines --------------------------------------------------------------

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

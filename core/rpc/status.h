// absl::Status and grpc::Status are the same words.
#pragma once

#include "absl/status/status.h"
#include "core/base/utf8.h"
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

}  // namespace paceline

#include "core/rpc/status.h"

#include <string>

namespace paceline {
namespace {

// At most `limit` bytes of `text`, not ending inside a UTF-8 sequence.
std::string Cut(absl::string_view text, size_t limit) {
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
                      Cut(status.message(), kMaxStatusMessageBytes));
}

absl::Status FromGrpc(const grpc::Status& status) {
  const int code = status.error_code();
  const bool known = code >= 0 && code <= grpc::StatusCode::UNAUTHENTICATED;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      status.error_message());
}

}  // namespace paceline

// How large the numbers of a message may be, and processes of a round group and
// numbers of views, as the control stream and the members' own messages both
// carry them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/round/view.h"
#include "google/protobuf/message.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// Bounds steps and everything else that is only counted up: no job comes near
// it, and two of them can be added.
inline constexpr int64_t kMaxCount = int64_t{1} << 53;

// Errors: InvalidArgument  below 0, or above `most`: "<what> is -1, need 0 to
//         9"
absl::Status CheckCount(absl::string_view what, int64_t value,
                        int64_t most = kMaxCount);
// The same, of how many of them a message has: "<what>: got 12, need 0 to 9".
absl::Status CheckSize(absl::string_view what, int64_t size, int64_t most);

// Checks all numbers of `message` and of the messages in it, but for the fields
// called `except`: counts are as CheckCount() says, other numbers finite and
// not negative, and each GroupMember names a process.
// Errors: InvalidArgument  "ViewNumber.term is -1, need 0 to 9007199254740992"
absl::Status CheckNumbers(const google::protobuf::Message& message,
                          absl::string_view except = "");

// Errors: InvalidArgument  no worker, or no incarnation
absl::StatusOr<MemberId> FromProto(const v1::GroupMember& proto);

}  // namespace paceline

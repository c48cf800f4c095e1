// Processes of a round group and numbers of views, as the control stream and
// the members' own messages both carry them; and how large a number in either
// may be.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/round/view.h"
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

v1::GroupMember ToProto(const MemberId& member);
// Errors: InvalidArgument  no worker, or no incarnation
absl::StatusOr<MemberId> FromProto(const v1::GroupMember& proto);

v1::ViewNumber ToProto(const ViewId& view);
// Errors: InvalidArgument  as CheckCount()
absl::StatusOr<ViewId> FromProto(const v1::ViewNumber& proto);

}  // namespace paceline

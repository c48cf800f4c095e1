// Round groups on the control stream: protos to the structs of core/round and
// core/cluster and back.  FromProto refuses values that no process of ours
// would send.
#pragma once

#include "absl/status/statusor.h"
#include "core/cluster/member_report.h"
#include "core/cluster/run_order.h"
#include "core/rpc/convert/member_convert.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// An uploader that is not assigned is left out.
v1::GroupOrder ToProto(const GroupOrder& group);
// Errors: InvalidArgument  as CheckView(); a share that is not positive;
//         workers twice or not by id; a member that is none of them
absl::StatusOr<GroupOrder> FromProto(const v1::GroupOrder& proto);

// Times of peers are rounded to milliseconds, never to none.
v1::MemberState ToProto(const MemberReport& report);
// Errors: InvalidArgument  a step or time out of range; a process with two
//         hashes; more processes than a group may have
absl::StatusOr<MemberReport> FromProto(const v1::MemberState& proto);

// The view alone of a group's order.  Errors: as above; one without members has
// no leveller that could be wrong.
v1::GroupOrder ViewToProto(const View& view);
absl::StatusOr<View> ViewFromProto(const v1::GroupOrder& proto);

// Errors: InvalidArgument  a number out of range or not finite; a reason that
//         is no word
absl::Status CheckRoundRecord(const v1::RoundRecord& record);

}  // namespace paceline

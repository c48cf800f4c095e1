#include "core/rpc/convert/member_convert.h"

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {

absl::Status CheckCount(absl::string_view what, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, ", need 0 to ", most));
}

absl::Status CheckSize(absl::string_view what, int64_t size, int64_t most) {
  if (size <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": got ", size, ", need 0 to ", most));
}

v1::GroupMember ToProto(const MemberId& member) {
  v1::GroupMember proto;
  proto.set_worker_id(member.worker.value);
  proto.set_incarnation(member.incarnation.value);
  return proto;
}

absl::StatusOr<MemberId> FromProto(const v1::GroupMember& proto) {
  if (proto.worker_id() >= 1 && proto.incarnation() != 0) {
    return MemberId{WorkerId{proto.worker_id()}, {proto.incarnation()}};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "member of a group: worker ", proto.worker_id(), ", incarnation ",
      proto.incarnation(), ": need a worker of at least 1 and an incarnation"));
}

v1::ViewNumber ToProto(const ViewId& view) {
  v1::ViewNumber proto;
  proto.set_term(view.term);
  proto.set_counter(view.counter);
  return proto;
}

absl::StatusOr<ViewId> FromProto(const v1::ViewNumber& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the view's term", proto.term()));
  PACELINE_RETURN_IF_ERROR(CheckCount("the view's counter", proto.counter()));
  return ViewId{proto.term(), proto.counter()};
}

}  // namespace paceline

#include "core/rpc/convert/group_convert.h"

#include <cmath>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {
namespace {

// Far beyond what one stage is replicated; who says more is none of ours.
constexpr int kMostProcesses = 4096;
constexpr size_t kMaxReasonBytes = 32;

absl::Status CheckProcesses(absl::string_view what, int count) {
  return CheckSize(what, count, kMostProcesses);
}

absl::Status CheckReason(const std::string& reason) {
  const bool is_word = !reason.empty() && reason.size() <= kMaxReasonBytes &&
                       absl::c_all_of(reason, [](unsigned char c) {
                         return absl::ascii_islower(c) || c == '-';
                       });
  if (is_word) return absl::OkStatus();
  return InvalidArgument("round record: a reason of ", reason.size(),
                         " bytes, need a word in lower case of at most ",
                         kMaxReasonBytes);
}

absl::Status CheckGroup(const GroupOrder& group) {
  PACELINE_RETURN_IF_ERROR(CheckView(group.view));
  for (size_t i = 0; i + 1 < group.workers.size(); ++i) {
    if (group.workers[i].id < group.workers[i + 1].id) continue;
    return InvalidArgument(
        "group: worker ", group.workers[i + 1].id.worker.value,
        " stands after worker ", group.workers[i].id.worker.value,
        ": they come by id, each process once");
  }
  for (const ViewMember& member : group.view.members) {
    const bool is_there = absl::c_any_of(
        group.workers,
        [&member](const GroupWorker& each) { return each.id == member.id; });
    if (is_there) continue;
    return InvalidArgument("group: worker ", member.id.worker.value,
                           " is in view ", ViewText(group.view.id),
                           " and has no address");
  }
  return absl::OkStatus();
}

// Checks the members and workers, as far as the message alone shows.
absl::Status CheckMembers(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("group: members", proto.members_size()));
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("group: workers", proto.workers_size()));
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  for (const v1::ViewMember& member : proto.members()) {
    if (member.share() > 0) continue;
    return InvalidArgument("view: worker ", member.member().worker_id(),
                           " has a share of ", member.share(),
                           ": need one above 0");
  }
  return absl::OkStatus();
}

}  // namespace

v1::GroupOrder ViewToProto(const View& view) {
  return Given<v1::GroupOrder>(view);
}

absl::StatusOr<View> ViewFromProto(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(CheckMembers(proto));
  View view = Taken<View>(proto);
  // A group whose last member is gone has no leveller.
  if (!view.members.empty()) PACELINE_RETURN_IF_ERROR(CheckView(view));
  return view;
}

v1::GroupOrder ToProto(const GroupOrder& group) {
  return Given<v1::GroupOrder>(group);
}

absl::StatusOr<GroupOrder> FromProto(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(CheckMembers(proto));
  GroupOrder group = Taken<GroupOrder>(proto);
  PACELINE_RETURN_IF_ERROR(CheckGroup(group));
  return group;
}

v1::MemberState ToProto(const MemberReport& report) {
  v1::MemberState proto = Given<v1::MemberState>(report);
  if (report.mismatch.empty()) return proto;
  proto.mutable_mismatch()->set_step(report.mismatch_step);
  for (const auto& [member, hash] : report.mismatch) {
    v1::HashMismatch::Entry& entry = *proto.mutable_mismatch()->add_entries();
    *entry.mutable_member() = ToProto(member);
    entry.set_state_hash(hash);
  }
  return proto;
}

absl::StatusOr<MemberReport> FromProto(const v1::MemberState& proto) {
  PACELINE_RETURN_IF_ERROR(CheckProcesses("member: peers", proto.peers_size()));
  PACELINE_RETURN_IF_ERROR(CheckProcesses("member: hashes that differ",
                                          proto.mismatch().entries_size()));
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  auto report = Taken<MemberReport>(proto);
  report.mismatch_step = proto.mismatch().step();
  for (const v1::HashMismatch::Entry& entry : proto.mismatch().entries()) {
    PACELINE_ASSIGN_OR_RETURN(const MemberId member, FromProto(entry.member()));
    if (report.mismatch.emplace(member, entry.state_hash()).second) continue;
    return InvalidArgument("member: worker ", member.worker.value,
                           " has two hashes in one mismatch");
  }
  return report;
}

absl::Status CheckRoundRecord(const v1::RoundRecord& record) {
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("round record: skipped", record.skipped_size()));
  PACELINE_RETURN_IF_ERROR(CheckNumbers(record, /*except=*/"cosine"));
  if (!(std::abs(record.cosine()) <= 1)) {
    return InvalidArgument("round record: a cosine of ", record.cosine());
  }
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    PACELINE_RETURN_IF_ERROR(CheckReason(skip.reason()));
  }
  return absl::OkStatus();
}

}  // namespace paceline

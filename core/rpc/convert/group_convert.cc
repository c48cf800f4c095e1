#include "core/rpc/convert/group_convert.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

// Far beyond what one stage is replicated; who says more is none of ours.
constexpr int kMostProcesses = 4096;
constexpr size_t kMaxReasonBytes = 32;

absl::Status CheckProcesses(absl::string_view what, int count) {
  return CheckSize(what, count, kMostProcesses);
}

// From 0 on and finite.
absl::Status CheckNumber(const char* what, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, ", need a number of at least 0"));
}

// At least a millisecond, where there is any: 0 means none.
int64_t ToMilliseconds(absl::Duration duration) {
  if (duration <= absl::ZeroDuration()) return 0;
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(duration));
}

absl::Status CheckReason(const std::string& reason) {
  const bool is_word =
      !reason.empty() && reason.size() <= kMaxReasonBytes &&
      std::all_of(reason.begin(), reason.end(), [](unsigned char c) {
        return absl::ascii_islower(c) || c == '-';
      });
  if (is_word) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "round record: a reason of ", reason.size(),
      " bytes, need a word in lower case of at most ", kMaxReasonBytes));
}

absl::Status CheckGroup(const GroupOrder& group) {
  PACELINE_RETURN_IF_ERROR(CheckView(group.view));
  for (size_t i = 0; i + 1 < group.workers.size(); ++i) {
    if (group.workers[i].id < group.workers[i + 1].id) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("group: worker ", group.workers[i + 1].id.worker.value,
                     " stands after worker ", group.workers[i].id.worker.value,
                     ": they come by id, each process once"));
  }
  for (const ViewMember& member : group.view.members) {
    const bool is_there = std::any_of(
        group.workers.begin(), group.workers.end(),
        [&member](const GroupWorker& each) { return each.id == member.id; });
    if (is_there) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("group: worker ", member.id.worker.value, " is in view ",
                     ViewText(group.view.id), " and has no address"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ViewMember> MemberFromProto(const v1::ViewMember& proto) {
  ViewMember member;
  PACELINE_ASSIGN_OR_RETURN(member.id, FromProto(proto.member()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("view: a member's first step", proto.from_step()));
  member.from_step = proto.from_step();
  member.share = proto.share();
  if (std::isfinite(member.share) && member.share > 0) return member;
  return absl::InvalidArgumentError(
      absl::StrCat("view: worker ", member.id.worker.value, " has a share of ",
                   member.share, ": need one above 0"));
}

absl::StatusOr<PeerReport> PeerFromProto(const v1::PeerState& proto) {
  PeerReport peer;
  PACELINE_ASSIGN_OR_RETURN(peer.peer, FromProto(proto.peer()));
  if (proto.broken_ms() < 0 || proto.owing_ms() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("member: worker ", peer.peer.worker.value,
                     " is broken for ", proto.broken_ms(), " ms and owes for ",
                     proto.owing_ms(), " ms: need neither below 0"));
  }
  peer.broken = absl::Milliseconds(proto.broken_ms());
  peer.refused = proto.refused();
  peer.owing = absl::Milliseconds(proto.owing_ms());
  peer.awaited = proto.awaited();
  return peer;
}

absl::Status TakeMismatch(const v1::HashMismatch& proto, MemberReport& report) {
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("member: hashes that differ", proto.entries_size()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("member: the step of states that differ", proto.step()));
  report.mismatch_step = proto.step();
  for (const v1::HashMismatch::Entry& entry : proto.entries()) {
    PACELINE_ASSIGN_OR_RETURN(const MemberId member, FromProto(entry.member()));
    if (report.mismatch.emplace(member, entry.state_hash()).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("member: worker ", member.worker.value,
                     " has two hashes in one mismatch"));
  }
  return absl::OkStatus();
}

}  // namespace

v1::GroupOrder ViewToProto(const View& view) {
  v1::GroupOrder proto;
  *proto.mutable_view() = ToProto(view.id);
  for (const ViewMember& member : view.members) {
    v1::ViewMember& into = *proto.add_members();
    *into.mutable_member() = ToProto(member.id);
    into.set_from_step(member.from_step);
    into.set_share(member.share);
  }
  *proto.mutable_leveller() = ToProto(view.leveller);
  return proto;
}

absl::StatusOr<View> ViewFromProto(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("group: members", proto.members_size()));
  View view;
  PACELINE_ASSIGN_OR_RETURN(view.id, FromProto(proto.view()));
  // A group whose last member is gone has no leveller.
  if (proto.members().empty()) return view;
  for (const v1::ViewMember& member : proto.members()) {
    PACELINE_ASSIGN_OR_RETURN(view.members.emplace_back(),
                              MemberFromProto(member));
  }
  PACELINE_ASSIGN_OR_RETURN(view.leveller, FromProto(proto.leveller()));
  PACELINE_RETURN_IF_ERROR(CheckView(view));
  return view;
}

v1::GroupOrder ToProto(const GroupOrder& group) {
  v1::GroupOrder proto = ViewToProto(group.view);
  for (const GroupWorker& worker : group.workers) {
    v1::GroupWorker& into = *proto.add_workers();
    *into.mutable_member() = ToProto(worker.id);
    into.set_name(worker.name);
    into.set_address(worker.address);
  }
  if (group.uploader.worker.assigned()) {
    *proto.mutable_uploader() = ToProto(group.uploader);
  }
  proto.set_lease_ms(absl::ToInt64Milliseconds(group.lease));
  proto.set_deposit_every(group.deposit_every);
  proto.set_deposit_from(group.deposit_from);
  return proto;
}

absl::StatusOr<GroupOrder> FromProto(const v1::GroupOrder& proto) {
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("group: workers", proto.workers_size()));
  GroupOrder group;
  PACELINE_ASSIGN_OR_RETURN(group.view, ViewFromProto(proto));
  for (const v1::GroupWorker& worker : proto.workers()) {
    GroupWorker& into = group.workers.emplace_back();
    PACELINE_ASSIGN_OR_RETURN(into.id, FromProto(worker.member()));
    into.name = worker.name();
    into.address = worker.address();
  }
  if (proto.has_uploader()) {
    PACELINE_ASSIGN_OR_RETURN(group.uploader, FromProto(proto.uploader()));
  }
  if (proto.lease_ms() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("group: a lease of ", proto.lease_ms(), " ms"));
  }
  if (proto.lease_ms() > 0) group.lease = absl::Milliseconds(proto.lease_ms());
  PACELINE_RETURN_IF_ERROR(
      CheckCount("group: deposit_every", proto.deposit_every()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("group: deposit_from", proto.deposit_from()));
  group.deposit_every = proto.deposit_every();
  group.deposit_from = proto.deposit_from();
  PACELINE_RETURN_IF_ERROR(CheckGroup(group));
  return group;
}

v1::MemberState ToProto(const MemberReport& report) {
  v1::MemberState proto;
  *proto.mutable_view() = ToProto(report.view);
  proto.set_next(report.next);
  proto.set_has_taken_part(report.has_taken_part);
  proto.set_level(report.level);
  proto.set_state_step(report.state_step);
  proto.set_state_hash(report.state_hash);
  proto.set_turn(report.turn);
  if (report.idle.has_value()) proto.set_idle_ms(ToMilliseconds(*report.idle));
  proto.set_slowest_ms(ToMilliseconds(report.slowest));
  for (const PeerReport& peer : report.peers) {
    v1::PeerState& into = *proto.add_peers();
    *into.mutable_peer() = ToProto(peer.peer);
    into.set_broken_ms(ToMilliseconds(peer.broken));
    into.set_refused(peer.refused);
    into.set_owing_ms(ToMilliseconds(peer.owing));
    into.set_awaited(peer.awaited);
  }
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
  PACELINE_RETURN_IF_ERROR(CheckCount("member: steps applied", proto.next()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("member: the state's step", proto.state_step()));
  PACELINE_RETURN_IF_ERROR(CheckCount("member: the turn", proto.turn()));
  MemberReport report;
  PACELINE_ASSIGN_OR_RETURN(report.view, FromProto(proto.view()));
  report.next = proto.next();
  report.has_taken_part = proto.has_taken_part();
  report.level = proto.level();
  report.state_step = proto.state_step();
  report.state_hash = proto.state_hash();
  report.turn = proto.turn();
  PACELINE_RETURN_IF_ERROR(CheckCount("member: idle_ms", proto.idle_ms()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("member: slowest_ms", proto.slowest_ms()));
  if (proto.has_idle_ms()) report.idle = absl::Milliseconds(proto.idle_ms());
  report.slowest = absl::Milliseconds(proto.slowest_ms());
  for (const v1::PeerState& peer : proto.peers()) {
    PACELINE_ASSIGN_OR_RETURN(report.peers.emplace_back(), PeerFromProto(peer));
  }
  if (proto.has_mismatch()) {
    PACELINE_RETURN_IF_ERROR(TakeMismatch(proto.mismatch(), report));
  }
  return report;
}

absl::Status CheckRoundRecord(const v1::RoundRecord& record) {
  PACELINE_RETURN_IF_ERROR(
      CheckProcesses("round record: skipped", record.skipped_size()));
  PACELINE_RETURN_IF_ERROR(FromProto(record.view()).status());
  PACELINE_RETURN_IF_ERROR(CheckCount("round record: step", record.step()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("round record: contributors", record.contributors()));
  PACELINE_RETURN_IF_ERROR(
      CheckNumber("round record: seconds", record.seconds()));
  PACELINE_RETURN_IF_ERROR(
      CheckNumber("round record: takeover_seconds", record.takeover_seconds()));
  if (!(std::abs(record.cosine()) <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("round record: a cosine of ", record.cosine()));
  }
  PACELINE_RETURN_IF_ERROR(CheckCount("round record: server", record.server()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("round record: lost_server", record.lost_server()));
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    PACELINE_RETURN_IF_ERROR(
        CheckCount("round record: a skipped worker", skip.worker_id()));
    PACELINE_RETURN_IF_ERROR(CheckReason(skip.reason()));
  }
  return absl::OkStatus();
}

}  // namespace paceline

#include "core/cluster/hang.h"

#include <algorithm>

namespace paceline {
namespace {

// Null: not one to be judged.
const MemberWork* WorkOf(const std::map<MemberId, MemberWork>& work,
                         const ViewMember& member) {
  const auto found = work.find(member.id);
  if (found == work.end() || found->second.phase != RunPhase::kRunning ||
      found->second.next < member.from_step) {
    return nullptr;
  }
  return &found->second;
}

bool IsIdle(const MemberWork& work, absl::Duration bound) {
  return work.heard - work.progress_since >= bound;
}

}  // namespace

std::optional<Hang> DecideHang(const View& view,
                               const std::map<MemberId, MemberWork>& work,
                               absl::Duration bound) {
  // Where a round waits for all parts nobody goes on; but who has handed its
  // own in for so long has computed all of it meanwhile.
  const bool somebody_waits = std::any_of(
      view.members.begin(), view.members.end(), [&](const ViewMember& member) {
        const MemberWork* const each = WorkOf(work, member);
        return each != nullptr && each->turn == 0 && IsIdle(*each, bound);
      });
  for (const ViewMember& member : view.members) {
    const MemberWork* const each = WorkOf(work, member);
    if (each == nullptr) continue;
    const bool left_behind = each->left_behind.has_value() &&
                             each->heard - *each->left_behind >= bound;
    const bool at_work = each->turn > 0 && IsIdle(*each, bound);
    if (left_behind || (at_work && somebody_waits)) {
      return Hang{member.id, each->heard - each->progress_since};
    }
  }
  return std::nullopt;
}

}  // namespace paceline

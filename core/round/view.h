// A view lists the members of a group's rounds.  Only the coordinator makes
// views; a higher one replaces a lower one for good.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"

namespace paceline {

// Ordered by the coordinator's term, then by its count of views.
struct ViewId {
  int64_t term = 0;
  int64_t counter = 0;  // 0: no view yet

  friend auto operator<=>(const ViewId&, const ViewId&) = default;
};
std::string ViewText(ViewId id);  // "2.17"

// A process; after a restart it is another member.
struct MemberId {
  WorkerId worker;
  Incarnation incarnation;

  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};

struct ViewMember {
  MemberId id;
  // Earlier steps run without this member: it only takes their results.
  int64_t from_step = 0;
  double share = 1;  // of a batch's micro-batches, in any unit; positive

  friend bool operator==(const ViewMember&, const ViewMember&) = default;
};

struct View {
  ViewId id;
  std::vector<ViewMember> members;  // by id
  // Brings all members level before rounds go on.  It is no joiner: it takes
  // part in the open step.
  MemberId leveller;

  friend bool operator==(const View&, const View&) = default;
};

// Errors: InvalidArgument  no members, members that are listed twice or not by
// id, or a leveller that is no member
absl::Status CheckView(const View& view);

bool Contains(const View& view, const MemberId& member);

// The members that the round of `step` counts, by id: those with from_step <=
// step.
std::vector<MemberId> MembersAt(const View& view, int64_t step);

// Names how the batch of `step` is divided among members: equal names for equal
// members of the step with equal shares.
uint64_t DivisionOf(const View& view, int64_t step);

// The micro-batches of [0, micro_batches) that are `self`'s in that division,
// ascending; empty where it is not counted in the step.
std::vector<int> MicroBatchesOf(const View& view, int64_t step,
                                const MemberId& self, int micro_batches);

// Whether the server's role rolls.
enum class ServerMode : uint8_t { kRolling, kCentral };

// The server of shard `shard` of step `step`: ids[(step + shard) mod n] of the
// n members of that step; `central`: ids[shard mod n] at every step.  The step
// has members.
MemberId ServerOf(const View& view, ServerMode mode, int64_t step, int shard);

}  // namespace paceline

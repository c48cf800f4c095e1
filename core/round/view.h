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

// Ordered: a later coordinator's term, then what it counts.
struct ViewId {
  int64_t term = 0;
  int64_t counter = 0;  // 0: no view yet

  friend auto operator<=>(const ViewId&, const ViewId&) = default;
};
std::string ViewText(ViewId id);  // "2.17"

// A process: one that was started again is another member.
struct MemberId {
  WorkerId worker;
  Incarnation incarnation;

  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};

struct ViewMember {
  MemberId id;
  // Steps before it run without this member: it only takes their results.
  int64_t from_step = 0;
  double share = 1;  // of a batch's micro-batches, in any unit; positive

  friend bool operator==(const ViewMember&, const ViewMember&) = default;
};

struct View {
  ViewId id;
  std::vector<ViewMember> members;  // by id
  // Brings all members level before rounds go on.  No joiner: it takes part in
  // the step that is open.
  MemberId leveller;

  friend bool operator==(const View&, const View&) = default;
};

// Errors: InvalidArgument  no members, not by id, twice, or a leveller that is
// none of them
absl::Status CheckView(const View& view);

bool Contains(const View& view, const MemberId& member);

// The members that the round of `step` counts, by id: those with from_step <=
// step.
std::vector<MemberId> MembersAt(const View& view, int64_t step);

// How the batch of step `step` is divided among its members: a name for
// (members of the step, their shares), equal where these are.
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

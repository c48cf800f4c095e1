// Decides which member of a round group goes although its process lives: one
// that owes the others an answer, one whose compute thread hangs, or one whose
// state differs from the majority's.
//
// Assumes: reports are of members whose control streams are in order; who is
// lost altogether is Membership's matter.  A broken link by itself removes
// nobody: only an answer that is owed for a lease does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/cluster/run_report.h"
#include "core/round/view.h"

namespace paceline {

struct Eviction {
  MemberId member;
  MemberId accuser;
  std::string why;  // without names: "owes an answer for 3.2 s"
};

// The next one to go; nothing: all may stay.  One at a time, since a view
// without it changes what the others owe.
//
// reports: of the members of `view` that have adopted it; those of others, or
// about others, count for nothing.  Who waits for somebody itself is excused,
// for less than a lease too; if they all wait in a circle, it is for a link
// that is cut, where there is one.  Of two whose link is cut, the one with
// fewer working links goes; tie: the higher id.
std::optional<Eviction> DecideEviction(
    const View& view, const std::map<MemberId, MemberReport>& reports,
    absl::Duration lease);

// To a member's report: these are PeerReport::awaited.
void AddAwaited(const std::vector<MemberId>& awaited,
                std::vector<PeerReport>& peers);

// The coordinator's knowledge of a member's compute thread.
struct MemberWork {
  RunPhase phase = RunPhase::kNone;
  int64_t next = 0;        // steps applied
  int64_t turn = 0;        // it is at work on; 0: it waits
  Instant heard;           // last
  Instant progress_since;  // it has finished no instruction since then
  // Since when the group is known to go on while it makes no progress; nothing:
  // it does not.
  std::optional<Instant> left_behind;
};

struct Hang {
  MemberId member;
  absl::Duration idle;  // as far as it has been heard
};

// The first member, by id, that answers but whose compute thread does nothing;
// nothing: nobody does.  One at a time: the others may have waited for it.  As
// long as nobody goes on, all may wait for one another, and one that has waited
// as long as all needs time to hear that it is over; but one that is at work
// waits for nobody.
//
// work:  of the members of `view`; who is missing, or prepares still, is not
//        judged, nor a joiner before its step
// bound  on one instruction
std::optional<Hang> DecideHang(const View& view,
                               const std::map<MemberId, MemberWork>& work,
                               absl::Duration bound);

struct MismatchVerdict {
  std::vector<MemberId> minority;  // are to go, by id
  size_t majority = 0;             // who agree
  // Several states have as many members: none is to be believed, and the
  // group's state is restored in a new attempt.
  bool torn = false;
};

// states: hashes of the state after one step, as a round's server found them;
// 0: not known.  Those of others than the view's members count for nothing.
// Where all are equal nobody goes.
MismatchVerdict DecideMismatch(const View& view,
                               const std::map<MemberId, uint64_t>& states);

}  // namespace paceline

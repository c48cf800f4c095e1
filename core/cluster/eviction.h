// Which live member of a round group is to go because others wait for it in
// vain: DESIGN 4 and 7.6.
//
// Assumes: reports are of members whose control streams are in order; who is
// lost altogether is Membership's matter.  A broken link by itself removes
// nobody: only an answer that is owed for a lease does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
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

}  // namespace paceline

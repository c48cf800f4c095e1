// A view lists the members of a group's rounds.  Only the coordinator makes
// views, by a ViewKeeper; a higher one replaces a lower one for good.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
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

// --- The coordinator's side
// ---------------------------------------------------

// Store this view for good, then call OnStored.  Only then may another process
// see it: a coordinator that forgot a view would give its number to another
// one.
struct StoreView {
  View view;
};
struct SendView {
  MemberId to;
  View view;
};
// No member that has taken part in a step is alive.  The group's state is to be
// restored in a new attempt.
struct GroupLost {};

using ViewAction = std::variant<StoreView, SendView, GroupLost>;
using ViewActions = std::vector<ViewAction>;

// The machine (state, event) -> (state, actions) of one group in one attempt.
// Assumes: no other code makes views of this group, and `term` is greater than
// that of any coordinator before.  Thread-compatible.
class ViewKeeper {
 public:
  // stored: the last view that an earlier coordinator kept.
  ViewKeeper(int64_t term, std::optional<View> stored)
      : term_(term), view_(stored), durable_(std::move(stored)) {}

  // The first view of an attempt: members that all begin at step `next`.
  // At least one; none stored before.
  void Begin(std::vector<MemberId> members, int64_t next, ViewActions& actions);

  // Sets the share of a batch that a worker computes; default 1.  Counts for
  // all members of Begin(), and for members that are added from now on.
  void SetShare(WorkerId worker, double share) { shares_[worker] = share; }

  // A member reports the steps that it has applied, the view that it has
  // adopted, and whether it has ever taken part in a step.  An old view is
  // answered with the present one.
  void OnReport(const MemberId& member, int64_t next, ViewId adopted,
                bool has_taken_part, ViewActions& actions);
  // The member is lost, was evicted, or runs as another process now.
  void OnLost(const MemberId& member, ViewActions& actions);
  // A listener has the group's state after `next` steps, or all but a few.
  // Ignored while an earlier process of its worker is a member, and while a
  // coordinator that has just started knows no member that takes part.
  // Repeating changes nothing.
  void OnListenerLevel(const MemberId& member, int64_t next,
                       ViewActions& actions);
  void OnStored(ViewId id, ViewActions& actions);

  // The last one decided, stored or not; nothing before Begin.
  const std::optional<View>& view() const { return view_; }
  bool lost() const { return lost_; }
  // True if it was lost once: only another process of its worker may come back.
  bool IsExcluded(const MemberId& member) const {
    return gone_.count(member) > 0;
  }

 private:
  void Decide(std::vector<ViewMember> members, ViewActions& actions);
  bool CheckLost(ViewActions& actions);
  bool HasMember() const;
  double ShareOf(const MemberId& member) const;
  MemberId PickLeveller(const std::vector<ViewMember>& members) const;

  const int64_t term_;
  std::optional<View> view_;
  std::optional<View> durable_;
  std::map<MemberId, int64_t> next_;  // as reported
  // Members that are no joiners: they began the attempt, or a step of a level
  // view has counted them.  A later view than the one that added them is not
  // enough (core/round/model, `one-view-joiner`).
  std::set<MemberId> taking_part_;
  std::set<MemberId> gone_;
  std::map<WorkerId, double> shares_;
  bool lost_ = false;
};

}  // namespace paceline

// Membership knows which workers are in the mesh, and which count as lost.
//
// Assumes: names are unique; a process that restarts draws a new incarnation;
// time only grows.  A broken stream alone proves nothing (a switch may have
// hiccupped), so its worker has `grace` to come back; a silent one has the
// lease, and so has one that said that it executes itself anew.  A second
// witness (a neighbour's broken link, a refused connection) turns a worker
// whose stream is broken into a lost one at once; without that it proves
// nothing either.  A worker that said that it stops is stopped at once.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/round/view.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

struct MembershipPolicy {
  absl::Duration lease = absl::Seconds(3);
  absl::Duration grace = absl::Milliseconds(500);
};

// One attach; grows, never used twice in a coordinator's life.
using StreamId = Id<struct StreamTag>;

enum class MemberState : uint8_t {
  kLive,
  kSuspect,
  kLost,
  kStopped,  // it said that it stops
};
absl::string_view MemberStateName(MemberState state);
// Lost or stopped: no process needs to wait for it.
bool IsGone(MemberState state);

struct Member {
  Incarnation incarnation() const { return {registration.incarnation()}; }
  MemberId process() const { return {id, incarnation()}; }

  WorkerId id;
  v1::Registration registration;
  MemberState state = MemberState::kLost;
  std::string why;    // for people; empty while kLive
  StreamId stream;    // unassigned: none is open
  bool seen = false;  // attached since this coordinator started
  // The worker has said that it executes itself anew.  Until it attaches again,
  // a broken stream is expected, and it has the lease to come back.
  bool restarting = false;
  Instant last_heard;  // of this coordinator's life
  Instant gone_since;  // when it was last known to be there; not kLive only
};

enum class Arrival : uint8_t {
  kNew,         // the name was never seen before
  kReattached,  // the same process, on a new stream
  kRestarted,   // the same name, another process
};

struct AttachVerdict {
  WorkerId id;
  Arrival arrival = Arrival::kNew;
  StreamId replaced;  // the stream to end; unassigned: none
};

// A member that just changed its state; `why` is in the member.
struct MembershipChange {
  WorkerId id;
  MemberState state;
};

// Thread-compatible.  Pure: no clock, no I/O.
class Membership {
 public:
  Membership(const MembershipPolicy& policy, Instant start)
      : policy_(policy), start_(start) {}

  // Puts back a worker that an earlier coordinator knew.  The worker counts as
  // lost until it attaches.  Called before any other method.
  void Restore(WorkerId id, const v1::Registration& registration);

  // `registration` is checked.
  //
  // Errors:
  //   AlreadyExists  the name is held by a worker of another machine, which
  //                  may be lost soon: to be tried again
  //   Aborted        that worker was heard for three leases after this
  //                  incarnation had asked for its name, so that both live; or
  //                  this incarnation was replaced by a newer one of its name
  absl::StatusOr<AttachVerdict> OnAttach(const v1::Registration& registration,
                                         StreamId stream, Instant now);

  // The stream ended, whichever side ended it.  A stream that was replaced is
  // ignored.  Returns the change if a second witness had already reported.
  std::optional<MembershipChange> OnStreamBroken(StreamId stream, Instant now);

  // `witness` reports all members to which its link is broken, and how it knows
  // ("its link broke").  The report replaces its earlier one, and counts while
  // the witness is live.  Returns the members that are lost by it, by id.
  std::vector<MembershipChange> OnLinks(WorkerId witness,
                                        std::map<WorkerId, std::string> broken,
                                        Instant now);

  // A message came over the stream.  Returns the member.  Null: the stream is
  // not the present one of any member, and the caller drops the message.
  const Member* OnHeard(StreamId stream, Instant now);

  // The worker of this stream is about to execute itself anew.  Ignored on a
  // stream that is no member's present one.
  void OnRestarting(StreamId stream) {
    Member* const member = FindByStream(stream);
    if (member != nullptr) member->restarting = true;
  }

  // The worker of this stream ends on request and counts as stopped from now
  // on.  Returns the change; nothing if the stop was known, or if the stream is
  // not the present one of any member.
  std::optional<MembershipChange> OnStopping(StreamId stream, Instant now);
  // The same of a member, for another reason.
  std::optional<MembershipChange> Stop(WorkerId id, const std::string& why,
                                       Instant now);

  // This coordinator did nothing for `duration` until now and read no message,
  // so no member counts as silent in that time.  A member that was heard since
  // then has no more than its lease.  After a standstill of a lease or longer,
  // streams may have broken on both sides: no member is lost for lease + grace,
  // as after a restart.  A further standstill in that time does not prolong it.
  void OnStandstill(absl::Duration duration, Instant now);

  // Judges all members.  Returns those whose state changed, by id.  A lost
  // member still has its stream: the caller ends it, and OnStreamBroken() then
  // forgets it.
  std::vector<MembershipChange> OnTick(Instant now);

  // Removes a member that is gone, as if it had never been here.  Its number is
  // not used again.
  void Forget(WorkerId id);

  // null: unknown
  const Member* Find(WorkerId id) const {
    const auto found = members_.find(id);
    return found == members_.end() ? nullptr : &found->second;
  }
  const std::map<WorkerId, Member>& members() const { return members_; }

 private:
  Member* FindByName(const std::string& name);
  Member* FindByStream(StreamId stream) {
    const auto found = by_stream_.find(stream);
    return found == by_stream_.end() ? nullptr : &members_.at(found->second);
  }
  bool IsPatient(Instant now) const {
    return patient_until_.has_value() && now < *patient_until_;
  }
  void Judge(Member& member, Instant now) const;
  // Names the members that report this member gone, and how they know.  Empty:
  // no member does.
  std::string Testimony(const Member& member) const;

  const MembershipPolicy policy_;
  const Instant start_;
  // No member is lost before that time; set after a standstill.
  std::optional<Instant> patient_until_;
  std::map<WorkerId, Member> members_;
  std::map<StreamId, WorkerId> by_stream_;  // present streams
  WorkerId last_id_{0};                     // that was given to a member
  // The broken links that each witness reports.
  std::map<WorkerId, std::map<WorkerId, std::string>> broken_links_;
  // When incarnations first asked for a name that another machine has.
  std::map<std::pair<WorkerId, Incarnation>, Instant> claims_;
  // Incarnations that a newer one has replaced, oldest first.
  std::map<WorkerId, std::deque<Incarnation>> replaced_;
};

}  // namespace paceline

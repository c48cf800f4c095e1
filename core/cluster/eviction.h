// Decides which member of a round group, or which worker of a pipeline, goes
// although its process lives: one that owes the others an answer, one whose
// compute thread hangs, or one whose state differs from the majority's.
//
// Assumes: the reports are of members whose control streams are in order.
// Membership decides about members that are lost altogether.  A broken link by
// itself removes no member: only an answer that is owed for a lease does.
//
// A member reports itself and the others.  The message (v1::MemberState) can
// name a process that cannot be, or a process twice; MemberReport cannot, and
// core/rpc/convert/report_convert.h refuses such a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/round/view.h"

namespace paceline {

// A member of a round group finds another one in this state.
struct PeerReport {
  MemberId peer;
  // The stream to it is, since so long; zero: it is not.
  absl::Duration broken = absl::ZeroDuration();
  bool refused = false;  // nobody listens there any more, or another process
  // Owes an answer, since so long; zero: no.
  absl::Duration owing = absl::ZeroDuration();
  // Something is to come from it, however long that may take: owed where the
  // link is broken, whichever end sees that.
  bool awaited = false;

  friend bool operator==(const PeerReport&, const PeerReport&) = default;
};

struct MemberReport {
  ViewId view;       // adopted
  int64_t next = 0;  // steps applied
  bool has_taken_part = false;
  // A listener has the group's state, or all but a few steps of it.
  bool level = false;
  int64_t state_step = 0;   // of state_hash
  uint64_t state_hash = 0;  // parameters, optimizer, buffers; 0: not known
  std::vector<PeerReport> peers;
  // Which of its turns the compute thread is at, from 1 on; 0: at none, it
  // waits for the others or hands the weights over.
  int64_t turn = 0;
  // Its thread "rounds" has handled nothing for so long; nothing: not known.
  std::optional<absl::Duration> idle = std::nullopt;
  absl::Duration slowest = absl::ZeroDuration();  // of its last 64 answers
  // Found by a server: states differ after mismatch_step; empty: none do.
  int64_t mismatch_step = 0;
  std::map<MemberId, uint64_t> mismatch;
};

struct Eviction {
  MemberId member;
  MemberId accuser;
  std::string why;  // without names: "owes an answer for 3.2 s"
};

// Returns the next member to go; nothing: all may stay.  It returns one at a
// time, since a view without that member changes what the others owe.
//
// reports: of the members of `view` that have adopted it.  Reports of other
// processes, or about them, do not count.  A member that is waiting for another
// member is not suspected, even if it has waited for less than a lease.  If all
// accused members are waiting, an accusation over a cut link decides, where
// there is one.  Of the two ends of a cut link, the one with fewer working
// links goes; tie: the higher id.
//
// Where no link is cut, a debt counts only while the debtor's thread "rounds"
// has handled nothing for max(lease, 5 x its slowest answer, delay): a starved
// machine answers late, and its accuser may not have read what came.  What is
// awaited of a thread that hangs for as long is owed.
//
// delay: the coordinator's own, with which it has read reports lately.
std::optional<Eviction> DecideEviction(
    const View& view, const std::map<MemberId, MemberReport>& reports,
    absl::Duration lease, absl::Duration delay = absl::ZeroDuration());

// To a member's report: these are PeerReport::awaited.
void AddAwaited(const std::vector<MemberId>& awaited,
                std::vector<PeerReport>& peers);

// The coordinator's knowledge of the compute thread of a group's member, or of
// a worker that holds stages.
struct MemberWork {
  // The process was heard, whatever it said.  After a silence of half the lease
  // nobody knows what it did meanwhile, so its time begins anew.
  void OnHeard(Instant now, absl::Duration lease) {
    if (now - heard > lease / 2) Excuse(now);
    heard = std::max(heard, now);
  }
  // It says this of itself.  Its time begins anew where anything has changed:
  // preparing is no instruction, and neither is another turn the one before.
  void OnReport(bool is_running, int64_t its_turn, int64_t its_progress,
                Instant now);
  // Its time begins anew: what was until now cannot be held against it.
  void Excuse(Instant now) {
    progress_since = now;
    left_behind.reset();
  }
  // It has finished no instruction for `bound`, as far as it was heard.
  bool IsIdle(absl::Duration bound) const {
    return heard - progress_since >= bound;
  }

  bool running = false;  // it neither prepares nor has ended
  int64_t next = 0;      // steps applied
  int64_t turn = 0;      // it is at work on; 0: it waits
  int64_t progress = 0;  // instructions finished
  Instant heard = {};    // last
  // It has finished no instruction since then.
  Instant progress_since = {};
  // The moment since when the group is known to go on while this member makes
  // no progress; nothing: the group does not go on.
  std::optional<Instant> left_behind = {};
};

// Whether the worker of a pipeline is at work on one instruction for `bound`,
// which is the limit for one.  A worker that waits for others is not suspected.
bool IsHung(const MemberWork& work, absl::Duration bound);

struct Hang {
  MemberId member;
  absl::Duration idle;  // as far as it has been heard
};

// Returns the first member, by id, that answers but whose compute thread does
// nothing; nothing: there is none.  It returns one at a time, since the others
// may have waited for that member.  While no member goes on, all may be waiting
// for one another, and a member that has waited as long as all others needs
// time to hear that the wait is over.  A member that is at work waits for no
// other.
//
// work: of the members of `view`.  Not judged are members without an entry,
// members that still prepare, and joiners before their step.
//
// bound: the limit for one instruction.
std::optional<Hang> DecideHang(const View& view,
                               const std::map<MemberId, MemberWork>& work,
                               absl::Duration bound);

struct MismatchVerdict {
  std::vector<MemberId> minority;  // are to go, by id
  size_t majority = 0;             // who agree
  // Several states have equally many members.  None of them is trusted: the
  // group's state is restored in a new attempt.
  bool torn = false;
};

// states: hashes of the state after one step, as a round's server found them;
// 0: not known.  Hashes of processes outside the view do not count.  If all are
// equal, no member goes.
MismatchVerdict DecideMismatch(const View& view,
                               const std::map<MemberId, uint64_t>& states);

}  // namespace paceline

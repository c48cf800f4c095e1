// JobGroup keeps the round group of one data-parallel job in one attempt: its
// members, its listeners, and which process is taken out and why.
//
// Assumes: what this decides is stored before anybody outside sees it, as the
// brain promises of all its actions (Actions::writes), so that a view counts
// as kept for good when it is decided.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/statistics.h"
#include "core/cluster/eviction.h"
#include "core/cluster/member_report.h"
#include "core/cluster/run_order.h"
#include "core/model/job_spec.h"
#include "core/round/view.h"
#include "core/round/view_keeper.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

struct GroupOptions {
  int64_t term = 1;  // greater than that of any coordinator before
  int64_t min_parts = 1;
  absl::Duration lease = absl::Seconds(3);
  // A compute thread that is at work and finishes no instruction for as long,
  // while others go on or have waited for as long, hangs.
  absl::Duration instruction_bound = absl::Seconds(3);
};

// Why a process left a group; a label of a metric.
enum class GroupExit : uint8_t {
  kLost,       // its control stream: Membership
  kRestarted,  // another process of its worker is there
  kSilent,     // alive, but it owes the others an answer
  kHung,       // alive, but its compute thread does nothing
  kMismatch,   // its state is another one than the majority's
  kDrained,
  kFailed,   // it said so
  kStopped,  // its process ended on request
};
constexpr int kGroupExits = 8;
absl::string_view GroupExitName(GroupExit exit);  // "lost", "restarted", ...

// A process that left; it may come back as another one only.
struct GroupLeaver {
  MemberId id;
  GroupExit exit;
};

struct GroupEvent {
  std::string kind;  // joined, lost, evicted, left, paused, resumed, mismatch
  std::string text;
};

// The events since the last TakeNews() lead to this.
struct GroupNews {
  std::optional<View> view;  // the newest one, to be stored
  int64_t views = 0;         // that were decided
  std::vector<GroupLeaver> leavers;
  std::vector<GroupEvent> events;
};

// Thread-compatible; lives on the coordinator's loop.  Pure.
class JobGroup {
 public:
  // stored: the view that an earlier coordinator kept for this attempt;
  // excluded: processes that were taken out before, none of them in it.
  JobGroup(const GroupOptions& options, std::optional<View> stored,
           const std::map<WorkerId, Incarnation>& excluded = {});

  // The first view of an attempt, from step 0: at least one; none was stored.
  void Begin(const std::vector<GroupWorker>& workers,
             const std::map<WorkerId, double>& shares, Instant now);

  // It is there and has the order: a member of the present view, or one who
  // shall become some.  Again: its address may be another one.  One that was
  // taken out is not let in.
  void Admit(const GroupWorker& worker, double share, Instant now);

  // report: nothing where it said nothing of the group.
  void OnReport(const MemberId& member, v1::RunState::Phase phase,
                const std::optional<MemberReport>& report, int64_t progress,
                Instant now);
  // Its worker's last heartbeat, whatever was in it.
  void OnHeard(const MemberId& member, Instant heard);
  // It leaves, whatever it is.  why: without its name, for people.
  void OnGone(const MemberId& member, GroupExit exit, const std::string& why);
  // It is let go as soon as somebody stays who has the state; takes it back
  // with false.
  void SetDraining(WorkerId worker, bool draining);

  // GroupOptions': who joins may be slower than all before.
  void SetInstructionBound(absl::Duration bound) {
    options_.instruction_bound = bound;
  }

  // Judges those who are there.  The time since the call before is that of
  // which this coordinator may know only now.
  void OnTick(Instant now);

  // Nothing: it takes no part (any more).
  std::optional<GroupOrder> OrderOf(const MemberId& member) const;
  bool Has(const MemberId& member) const {
    return processes_.count(member) > 0;
  }
  // It was taken out, or says that it took part in an earlier view and is in
  // none: only another process of its worker may come back.
  bool IsExcluded(const MemberId& member) const {
    return keeper_.IsExcluded(member);
  }
  // The process of a worker that takes part; null: none does.
  const MemberId* FindProcess(WorkerId worker) const;
  bool IsMember(const MemberId& member) const;

  // Nobody lives that has the group's state: a new attempt.
  bool lost() const { return keeper_.lost(); }
  // States differ, and no majority says which is right: a new attempt.
  bool torn() const { return torn_; }
  // Somebody has the model ready: a process that is lost from here on is not
  // one that starts anew before the run.
  bool begun() const { return begun_; }
  bool paused() const { return paused_; }
  // "2 of the 3 members that a round needs are there"; empty: not paused.
  std::string PausedText() const;
  // All members are done, and the one that hands the weights over has known
  // that it is the one.
  bool AllDone() const;

  // The last one decided; a group that has begun has one.
  const std::optional<View>& view() const { return keeper_.view(); }
  // The processes said this of themselves last.
  std::map<WorkerId, v1::JobMember> Members() const;
  // Returns the server of the round after the last one that somebody applied;
  // 0: there is none.
  WorkerId Server(const JobSpec& spec) const;
  int members() const;
  int listeners() const;
  int64_t furthest() const { return furthest_; }  // steps applied by somebody

  GroupNews TakeNews();

 private:
  struct Process {
    GroupWorker worker;
    v1::RunState::Phase phase = v1::RunState::PHASE_UNSPECIFIED;
    MemberReport report = {};
    MemberWork work = {};
  };

  std::string NameOf(const MemberId& member) const;
  std::string ViewNote() const;  // "view 1.3 of 4 members"
  void Carry(ViewActions actions);
  void OnFurther(int64_t next, Instant now);
  void OnViewChanged();
  void TakeMismatch(const MemberReport& report);
  void Remove(const MemberId& member, GroupExit exit);
  void EvictSilent(Instant now);
  void EvictHung();
  void LetDrainedGo();
  bool HasStayer(const MemberId& leaving) const;
  void AddEvent(std::string kind, std::string text);

  GroupOptions options_;
  ViewKeeper keeper_;
  std::map<MemberId, Process> processes_;  // members and listeners
  std::map<MemberId, std::string> names_;  // also of those who left
  std::set<MemberId> taken_part_;
  std::set<WorkerId> draining_;
  bool begun_ = false;
  bool torn_ = false;
  bool paused_ = false;
  int64_t furthest_ = 0;
  std::optional<Instant> ticked_;
  RecentLongest delays_;  // between ticks
  GroupNews news_;
};

}  // namespace paceline

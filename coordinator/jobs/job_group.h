// JobGroup keeps the round group of one data-parallel job in one attempt: its
// members and listeners.  It decides which process is removed and why.
//
// Assumes: the brain stores its decisions before anything outside sees them
// (Actions::writes), so that a view counts as durable when it is decided.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/statistics.h"
#include "core/cluster/eviction.h"
#include "core/cluster/run_order.h"
#include "core/job/spec/job_spec.h"
#include "core/recover/job_recovery.h"
#include "core/round/view.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

struct GroupOptions {
  int64_t term = 1;  // greater than that of any coordinator before
  int64_t min_parts = 1;
  absl::Duration lease = absl::Seconds(3);
  // A working compute thread hangs if it finishes no instruction for this long
  // while others go on or have waited for this long.
  absl::Duration instruction_bound = absl::Seconds(3);
};

// Why a process left a group; a label of a metric.
enum class GroupExit : uint8_t {
  kLost,       // Membership lost its control stream
  kRestarted,  // its worker runs another process
  kSilent,     // alive, but owes the others an answer
  kHung,       // alive, but its compute thread is stuck
  kMismatch,   // its state differs from the majority's
  kDrained,
  kFailed,   // it reported an error
  kStopped,  // its process ended on request
};
constexpr int kGroupExits = 8;
absl::string_view GroupExitName(GroupExit exit);  // "lost", "restarted", ...

// A process that left.  Only a new process of its worker may join again.
struct GroupLeaver {
  MemberId id;
  GroupExit exit;
};

struct GroupEvent {
  // joining, joined, lost, evicted, left, paused, resumed or mismatch.
  std::string kind;
  std::string text;
};

// The results of the events since the last TakeNews().
struct GroupNews {
  std::optional<View> view;  // the newest view, to be stored
  int64_t views = 0;         // decided
  std::vector<GroupLeaver> leavers;
  std::vector<GroupEvent> events;
};

// Thread-compatible; lives on the coordinator's loop.  Pure.
class JobGroup {
 public:
  // stored: the view that an earlier coordinator stored for this attempt;
  // excluded: processes that were removed before.
  JobGroup(const GroupOptions& options, std::optional<View> stored,
           const std::map<WorkerId, Incarnation>& excluded = {});

  // Makes the first view of an attempt, whose base has `step` steps.  workers:
  // at least one.  No view was stored.
  void Begin(const std::vector<GroupWorker>& workers,
             const std::map<WorkerId, double>& shares, int64_t step,
             Instant now);
  // Ends the group, which counts as lost from now on.  why: for people.
  void End(std::string why) { ended_ = std::move(why); }

  // Takes in an attached process: a present or a future member.  A repeated
  // call updates its address.  Ignores a process that was removed.
  void Admit(const GroupWorker& worker, double share, Instant now);

  // report: nothing where the heartbeat has no part on the group.
  void OnReport(const MemberId& member, v1::RunState::Phase phase,
                const std::optional<MemberReport>& report, int64_t progress,
                Instant now);
  // heard: the time of its worker's last heartbeat of any content.
  void OnHeard(const MemberId& member, Instant heard);
  // The member or listener leaves.  why: for people, without its name.
  void OnGone(const MemberId& member, GroupExit exit, const std::string& why);
  // With true, the worker leaves once another member has the state.  False
  // takes the drain back.
  void SetDraining(WorkerId worker, bool draining);

  // Sets GroupOptions::instruction_bound: a joiner may be slower than all
  // others.
  void SetInstructionBound(absl::Duration bound) {
    options_.instruction_bound = bound;
  }

  // Removes members that are silent or hang, and lets drained ones go.  The
  // time between two calls counts as the coordinator's own delay.
  void OnTick(Instant now);

  // Nothing: it takes no part in the group.
  std::optional<GroupOrder> OrderOf(const MemberId& member) const;
  bool Has(const MemberId& member) const {
    return processes_.count(member) > 0;
  }
  // It was removed, or took part in an earlier view and is in none now.  Only
  // another process of its worker may come back.
  bool IsExcluded(const MemberId& member) const {
    return keeper_.IsExcluded(member);
  }
  // The worker's process that takes part; null: none.
  const MemberId* FindProcess(WorkerId worker) const;
  bool IsMember(const MemberId& member) const {
    return view().has_value() && Contains(*view(), member);
  }

  // No live process has the group's state, or it was ended: a new attempt is
  // needed.
  bool lost() const { return ended() || keeper_.lost(); }
  bool ended() const { return !ended_.empty(); }
  // States differ without a majority: a new attempt is needed.
  bool torn() const { return torn_; }
  // A member has the model ready: a later loss is no longer a restart before
  // the run.
  bool begun() const { return begun_; }
  bool paused() const { return paused_; }
  // "2 of the 3 members that a round needs are there"; empty: not paused.
  std::string PausedText() const;
  // All members are done, and the leveller, which uploads the weights, has
  // reported the present view.
  bool AllDone() const;
  // Compares the states after the last step, of which no further hold tells.
  // Returns whether some differ: a minority is removed, or the group is torn.
  bool FindLastMismatch(int64_t steps);

  // The last decided view; a group that has begun has one.
  const std::optional<View>& view() const { return keeper_.view(); }
  // The last reports of the processes.
  std::map<WorkerId, v1::JobMember> Members() const;
  // The server of the round after the last applied one; 0: none.
  WorkerId Server(const JobSpec& spec) const;
  int members() const {
    return view().has_value() ? static_cast<int>(view()->members.size()) : 0;
  }
  int listeners() const;
  // Most steps applied, and whether these are more than at the beginning.
  int64_t furthest() const { return furthest_; }
  bool advanced() const { return furthest_ > began_at_; }
  // Its members, of all layers, for JobRecovery.
  Roster MakeRoster(int layers) const;
  absl::Duration instruction_bound() const {
    return options_.instruction_bound;
  }

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
  void AddEvent(std::string kind, std::string text) {
    news_.events.push_back({std::move(kind), std::move(text)});
  }

  GroupOptions options_;
  ViewKeeper keeper_;
  std::map<MemberId, Process> processes_;  // members and listeners
  std::map<MemberId, std::string> names_;  // also of those that left
  std::set<MemberId> taken_part_;
  std::set<WorkerId> draining_;
  bool begun_ = false;
  bool torn_ = false;
  int64_t mismatch_step_ = 0;  // torn: states differ after so many steps
  std::string ended_;          // why
  bool paused_ = false;
  int64_t began_at_ = 0;
  int64_t furthest_ = 0;
  std::optional<Instant> ticked_;
  RecentLongest delays_;  // between ticks
  GroupNews news_;
};

// --- events and evaluations -------------------------------------------------

// The evaluation of `samples`.  loss, correct: the sums of their losses and
// right answers.  Nothing without samples.
std::optional<v1::EvaluationRecord> EvaluationOf(int64_t step, int64_t samples,
                                                 double loss, double correct);

// Turns the round records of a job's members into events for people, and adds
// up the members' partial evaluations.  Thread-compatible; lives on the
// coordinator's loop.  Pure.
class GroupEventLog {
 public:
  using Names = std::function<std::string(WorkerId)>;

  // The event (takeover, void or skipped) for `record`.  Nothing where all went
  // well, where the same event was told before, and after kMostAlike events
  // that differ only in the step or kMostOfAKind of a kind; those are only
  // counted.  Parts that the rule leaves out are only counted, too.
  std::optional<GroupEvent> OnRecord(const v1::RoundRecord& record,
                                     const Names& names);

  // "rounds: 3 void, 2 servers replaced, parts skipped: 4 late, 1 lost,
  // outvoted: w4 60, w1 2"; empty where nothing happened.
  std::string Summary() const;

  // Takes a member's evaluation over its own samples.  Returns the sum of all
  // parts of that step so far; a repeated part changes nothing.  Nothing for a
  // step so old that its other parts are forgotten.
  std::optional<v1::EvaluationRecord> OnEvaluation(
      WorkerId member, const v1::EvaluationRecord& part);
  // The members whose parts of `step` have come.
  std::set<WorkerId> EvaluatedBy(int64_t step) const;
  // Ignores evaluations up to `step`: an earlier coordinator stored them, whole
  // or not.  -1: a new attempt begins, and all are expected.
  void ForgetEvaluations(int64_t step);

 private:
  using Told = std::tuple<int64_t, std::string, std::string>;

  bool IsNew(const Told& told);
  void CountOutvoted(const v1::RoundRecord& record, const Names& names);
  // alike: the text without the step.
  std::optional<GroupEvent> Count(const std::string& kind,
                                  const std::string& alike, std::string text);

  std::map<std::string, int64_t> told_;      // events, by kind
  std::map<std::string, int64_t> alike_;     // of them, by `alike`
  std::map<std::string, int64_t> skipped_;   // parts, by reason
  std::map<std::string, int64_t> outvoted_;  // parts, by member
  int64_t voids_ = 0;
  int64_t takeovers_ = 0;
  // (step, kind, text) of the newest events: a record comes again after a lost
  // acknowledgement, and from several members.
  std::set<Told> seen_;
  std::map<int64_t, std::map<WorkerId, v1::EvaluationRecord>>
      parts_;  // by step
  int64_t forgotten_ = -1;
};

}  // namespace paceline

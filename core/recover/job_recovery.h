// JobRecovery keeps one job alive for the coordinator.  It answers every change
// alike: all workers leave, it chooses a cut, and a new attempt begins.  A
// kill, a hang, a drain, a join and a re-partition differ only in where the
// pieces are.
//
// Assumes: reports of one process come in order; a lost process was silent for
// the lease or has a second witness against it; each number of `orders` is used
// once; time never goes back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/recover/job_phases.h"
#include "core/recover/order.h"

namespace paceline {

struct RecoveryPolicy {
  int layers = 1;
  int copies = 2;  // of each piece, besides its owner's
  // max(lease, 5 x the predicted instruction).  A process that has not left by
  // then is excluded.
  absl::Duration leave_bound = absl::Seconds(3);
  // How long the job waits for lost processes and their pieces before it goes
  // on from a cut below the floor.
  absl::Duration return_period = absl::Seconds(30);
  int most_failures = 3;  // in a row, without a new step
  int most_losses = 10;   // in a row, without a new floor
  absl::Duration loss_pause = absl::Minutes(1);
  // After too many failures that a person can repair, such as a full disk.
  absl::Duration hindrance_pause = absl::Seconds(10);
  // Workers hold nothing of the job: every base is a checkpoint, and a planned
  // change leaves the attempt at once.
  bool stateless = false;
  // Every attempt is a round group: each member holds all layers, and views
  // change the members within an attempt (OnRoster()).
  bool views = false;
  // The members' states differ (gossip): a cut is taken from one process.
  bool states_differ = false;
};

// A live process that the planner may place stages on.
struct RunCandidate {
  MemberId process;
  MachineId machine;
  std::string unfit = {};  // why it cannot be used; empty: it can
  // Why it cannot hold the first stage, which reads the data; empty: it can.
  std::string no_data = {};
};

// The layers and the process of each stage, in order; nothing: the plan is
// being made, and a tick follows when it is.
// Errors: any code; the message tells people what is missing.
using PlacedStages = std::optional<absl::StatusOr<std::vector<RunPlace>>>;
using PlacementPlanner =
    std::function<PlacedStages(const std::vector<RunCandidate>& by_id)>;

// The members of a group's attempt.  A view is stored before it is told here.
struct Roster {
  enum class State : uint8_t {
    kGoesOn,
    kLost,  // no member is left that has taken part
    kTorn,  // states differ, and no majority has the same one
  };

  State state = State::kGoesOn;
  std::string why;                // why it does not go on
  int64_t sound_step = 0;         // kTorn: states were equal up to this step
  std::vector<RunPlace> members;  // the one that others copy comes first
  std::set<MemberId> listeners;   // have the order to run, and join later

  friend bool operator==(const Roster&, const Roster&) = default;
};

// Numbers all orders of a coordinator.
struct OrderCounter {
  OrderNumber last;  // its term is greater than that of any coordinator before

  OrderNumber Next() { return {last.term, ++last.n}; }
};

// --- Actions for the caller, in this order -----------------------------------

// Store the row and the places in one transaction, in the place of any row of
// this attempt or a later one, again until that works; then call OnStored().
struct StoreAttempt {
  AttemptRow row;
  std::vector<RunPlace> places;
};
// Send the process this standing order: it has changed.
struct SendOrder {
  MemberId to;
  JobOrder order;
};
// The process does not carry out its order: ask it to end.  Only another
// process of its worker may take part again.
struct ExcludeProcess {
  MemberId process;
};
struct RecoveryEvent {
  std::string kind;  // lost, failed, left, excluded, attempt, safe, ...
  std::string text;
};

using RecoveryAction = std::variant<StoreAttempt, SendOrder, ExcludeProcess,
                                    JobTransition, RecoveryEvent>;
using RecoveryActions = std::vector<RecoveryAction>;

// When an event comes, and the actions that it causes.
struct RecoveryTurn {
  Instant now;
  RecoveryActions actions = {};
};

// The machine (state, event, now) -> (state, actions) of one job.  Lives on the
// coordinator's loop.  Thread-compatible.
class JobRecovery {
 public:
  // orders: shared by all jobs of the coordinator; outlives this.
  JobRecovery(const RecoveryPolicy& policy, OrderCounter& orders,
              PlacementPlanner planner);
  virtual ~JobRecovery() = default;

  // The job's turn in the queue has come.
  void Begin(RecoveryTurn& turn);
  // Replaces Begin() for a job that an earlier coordinator began.  No process
  // gets an order until the stored attempt is adopted or left.
  //   places  of the newest row
  void Restore(std::vector<AttemptRow> rows, std::vector<RunPlace> places);

  // An earlier coordinator knew this worker: it is not lost, but not heard yet.
  void OnKnown(WorkerId worker, MachineId machine, const std::string& name);
  // The process has attached; an earlier process of its worker is lost.  If it
  // attaches again it has a new stream: send it OrderOf() again.
  void OnAttached(const MemberId& process, MachineId machine,
                  const std::string& name, RecoveryTurn& turn);
  void OnLost(WorkerId worker, const std::string& why, RecoveryTurn& turn);
  void OnReport(const MemberId& process, const JobReport& report,
                RecoveryTurn& turn);
  // The process hangs, or its link to a neighbour is broken.
  void OnStuck(const MemberId& process, const std::string& why,
               RecoveryTurn& turn);
  // A cut link keeps stages from the worker.  Empty `why`: no link is cut.
  void SetCutOff(WorkerId worker, const std::string& why, RecoveryTurn& turn);
  void SetDraining(WorkerId worker, bool draining, RecoveryTurn& turn);
  // A better plan pays for the move to it.  Ignored unless the job runs.  A
  // stateless job leaves its attempt at once.
  void OnBetterPlan(const std::string& why, RecoveryTurn& turn);
  // The group of the present attempt has changed.
  void OnRoster(const Roster& roster, RecoveryTurn& turn);
  // The process has a state that most members of its group do not have: its
  // pieces do not count.
  void Distrust(const MemberId& process) {
    distrusted_.insert(process);
    holdings_.Remove(process);
    changed_.holdings = true;
  }
  // The planner may find a plan that it did not find before: another job has
  // released workers, or a profile has come.
  void OnPlansChanged(RecoveryTurn& turn) {
    if (phase_ != JobPhase::kPaused && !drain_refused_) return;
    OnMembersChanged();
    Advance(turn);
  }
  void OnStored(int64_t attempt, RecoveryTurn& turn);

  // Records and due evaluations of all steps up to this one are stored.
  void OnRecorded(int64_t step) { recorded_ = step; }
  // The coordinator itself can serve these cuts, instead of those before.
  void OnCheckpoints(const std::set<Cut>& cuts) {
    changed_.holdings = changed_.holdings || cuts != checkpoints_;
    checkpoints_ = cuts;
  }
  // All results of a stateless job are stored: it ends at the next event.
  void OnAllStored() { all_stored_ = true; }
  // Keeps a cut while the coordinator copies it.
  void SetPin(Cut cut, bool pinned, RecoveryTurn& turn) {
    if (pinned) pins_.insert(cut);
    if (!pinned) pins_.erase(cut);
    changed_.orders = true;
    Advance(turn);
  }

  void OnTick(RecoveryTurn& turn) { Advance(turn); }
  // The coordinator itself stood still for `duration`, until now.  That time
  // counts against no process.  Call it before the first event after that.
  void OnStandstill(absl::Duration duration, Instant now);

  JobPhase phase() const { return phase_; }
  // Why it is in this phase, for people.
  const std::string& why() const { return why_; }
  bool Knows(WorkerId worker) const { return peers_.count(worker) > 0; }
  // The worker may run the job or hold pieces of it, and has not said so yet.
  bool IsUnheard(WorkerId worker) const {
    const auto found = peers_.find(worker);
    return found != peers_.end() &&
           found->second.presence == Peer::Presence::kUnheard &&
           (found->second.was_ordered || found->second.has_pieces);
  }
  // True after a planned change of placement, until an attempt ends otherwise.
  bool moves() const { return moves_; }
  int64_t attempt() const { return attempt_; }  // 0: none began
  Cut base() const { return base_; }
  const std::vector<RunPlace>& places() const { return places_; }
  const Lineage& lineage() const { return lineage_; }
  // Nothing: not known yet, since this coordinator has just started.
  const std::optional<Cut>& floor() const { return floor_; }
  // The number of machines besides the owner's that shall hold each piece.
  int followers() const;
  // True if it was excluded: only another process of its worker may come back.
  bool Excludes(const MemberId& process) const {
    return excluded_.count(process) > 0;
  }
  // Replaces RecoveryPolicy::leave_bound from now on.
  void SetLeaveBound(absl::Duration bound) { policy_.leave_bound = bound; }
  // [layers]: processes that hold the cut's piece, by id.
  std::vector<std::vector<MemberId>> HoldersOf(Cut cut) const {
    return holdings_.HoldersOf(cut);
  }
  // The newest step that a worker has applied; of a group in the present
  // attempt.
  int64_t furthest() const { return furthest_; }
  // The group lies on fewer machines than shall hold its state: its members
  // deposit states, and idle machines copy them.
  bool NeedsFollowers() const;
  // Whether the job loses nothing safe when this draining worker goes.
  bool MayGo(WorkerId worker) const;
  // The job cannot go on without the workers that drain.
  bool drain_refused() const { return drain_refused_; }
  // Null: the process has no order.
  const JobOrder* OrderOf(const MemberId& process) const {
    const auto found = issued_.find(process);
    return found == issued_.end() ? nullptr : &found->second;
  }
  // Asks the planner for the best plan on the live processes.
  PlacedStages PlanNow() const { return planner_(Candidates()); }

 protected:
  struct Peer {
    enum class Presence : uint8_t { kUnheard, kLive, kLost };

    MemberId process;
    MachineId machine;
    std::string name;
    Presence presence = Presence::kUnheard;
    Instant since;     // of the presence
    JobReport report;  // without the pieces
    bool has_pieces = false;
    // It had an order to run or to follow in this attempt.  A lost process
    // keeps the mark in later attempts, since it may hold pieces.
    bool was_ordered = false;
    bool missed = false;  // an event has told of its loss
    std::string unfit;    // why it gets no stage; empty: it may
    std::string no_data;
    std::string cut_off;
    bool draining = false;
  };

  // Virtual for the simulation's flaws.
  virtual bool IsValid(Cut cut) const { return lineage_.IsValid(cut); }
  virtual bool HasLeft(const Peer& peer) const {
    return peer.report.echo > leaving_.mark;
  }
  virtual bool IsExcluded(const MemberId& process) const {
    return excluded_.count(process) > 0;
  }
  virtual int64_t NextAttempt() const {
    return std::max(lineage_.newest(), seen_attempt_) + 1;
  }
  virtual bool AllHeard() const;  // no peer is kUnheard
  // The machines that may hold pieces of other machines' stages.
  virtual std::set<MachineId> UsableMachines() const;
  virtual Cut FloorAfter(Cut floor, Cut computed) const {
    return std::max(floor, computed);
  }

  std::map<WorkerId, Peer> peers_;
  Lineage lineage_;
  // The newest attempt that a worker which was told of the job has reported.
  int64_t seen_attempt_ = 0;

 private:
  // The most attempts that a store restored from a copy may lack, of those that
  // workers report.
  static constexpr int64_t kMostLostRows = 1000;

  // How far the members are in the stop that a move asks for.
  enum class Stop : uint8_t { kNotAsked, kAsked, kAllStopped };
  struct Pending {
    AttemptRow row;
    std::vector<RunPlace> places;
  };
  // Between two attempts; new with each.
  struct Choice {
    PlacedStages plan;  // present
    std::set<MemberId> settling;
    Instant settling_since;
    bool waited = false;  // for a return, since the plan was made
    std::optional<Pending> storing;
    std::optional<Instant> paused_until;
    std::string last_pause;  // why
  };
  struct Leaving {
    OrderNumber mark;  // orders after it are without the run
    Instant since;
  };
  struct Finishing {
    int64_t step = 0;
    Instant since;
  };
  struct Failures {
    int in_row = 0;
    bool to_begin = false;  // the last one, before its attempt ran
    int64_t furthest = -1;  // at the last one
    int64_t base = 0;       // likewise
    std::string hindrance;  // why it waits: memory, a disk, a link
  };
  // Changes that Advance() has not answered yet.
  struct Changed {
    bool holdings = false;  // or the peers that count
    bool members = false;   // since a plan was asked for
    bool orders = false;    // or values that they depend on
  };

  void Advance(RecoveryTurn& turn);
  // Each handles one phase, and returns whether Step() must run again.
  bool Step(RecoveryTurn& turn);
  bool Adopt(RecoveryTurn& turn);
  bool AdoptGroup(RecoveryTurn& turn);
  bool Watch(RecoveryTurn& turn);
  bool WatchGroup(RecoveryTurn& turn);
  bool WatchWork(RecoveryTurn& turn);
  bool WaitForLeave(RecoveryTurn& turn);
  bool WaitForFinish(RecoveryTurn& turn);
  bool Reconsider(RecoveryTurn& turn);
  bool Choose(RecoveryTurn& turn);

  bool Go(JobCause cause, std::string why, RecoveryTurn& turn);
  bool Leave(JobCause cause, const std::string& why, RecoveryTurn& turn);
  bool Drain(RecoveryTurn& turn);
  bool Move(const std::string& why, RecoveryTurn& turn);
  bool OnFailure(const Peer& peer, RecoveryTurn& turn);
  void Exclude(const Peer& peer, const std::string& why, RecoveryTurn& turn);
  bool Pause(JobCause cause, const std::string& why, RecoveryTurn& turn);
  bool PauseFor(absl::Duration pause, const std::string& why,
                RecoveryTurn& turn);
  void Announce(RecoveryTurn& turn);
  void OnMembersChanged();
  void OnGone(const Peer& peer);

  bool AllLeft() const;
  // The process, lost or not, is not known to lack anything.
  static bool IsFit(const Peer& peer) {
    return peer.unfit.empty() && peer.no_data.empty();
  }
  bool AnyFit() const {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& entry) { return IsFit(entry.second); });
  }
  std::optional<int64_t> StepToFinish() const;
  bool WaitsForReturn(Cut base, Instant now);
  bool WaitsForSettling(const std::vector<RunPlace>& places,
                        RecoveryTurn& turn);
  Cut ChooseBase() const;
  std::vector<RunCandidate> Candidates() const;
  std::function<bool(Cut)> IsValidCut() const {
    return [this](Cut cut) { return IsValid(cut); };
  }

  const Peer* FindLive(const MemberId& process) const;  // null: gone, unheard
  bool IsGone(const MemberId& process) const;
  bool IsCounted(const Peer& peer) const {
    return peer.presence == Peer::Presence::kLive && !IsExcluded(peer.process);
  }
  bool IsMember(const MemberId& process) const {
    return std::any_of(
        places_.begin(), places_.end(),
        [&](const RunPlace& place) { return place.process == process; });
  }
  // The process has, or may have, a run or pieces of the job.
  bool IsConcerned(const Peer& peer) const {
    return IsMember(peer.process) || peer.report.attempt > 0 ||
           peer.has_pieces || peer.report.follows || peer.was_ordered ||
           roster_.listeners.count(peer.process) > 0;
  }
  // The machines that shall hold a cut before it is the floor.  The members of
  // a group hold its state anyway.
  int CopiesWanted() const {
    return policy_.views && places_.size() > 1 ? 1 : followers() + 1;
  }
  // The process runs the present attempt, or has done so to its end.
  bool Runs(const RunPlace& place) const {
    const Peer* const peer = FindLive(place.process);
    return peer != nullptr && peer->report.attempt == attempt_ &&
           (peer->report.phase == WorkPhase::kRunning ||
            peer->report.phase == WorkPhase::kDone);
  }
  // Whether the members have orders to run.
  bool IsOrdered() const {
    return phase_ == JobPhase::kStarting || phase_ == JobPhase::kRunning ||
           phase_ == JobPhase::kStopping;
  }
  Cut NewestCheckpoint() const {
    return checkpoints_.empty() ? Cut() : *checkpoints_.rbegin();
  }
  std::set<MemberId> Draining() const;
  std::string NameOf(const MemberId& process) const;

  void UpdateFloor(RecoveryTurn& turn);
  std::map<MemberId, std::vector<Follow>> Followers() const;
  JobOrder MakeOrder(const MemberId& process) const;
  void SendOrders(RecoveryTurn& turn);

  RecoveryPolicy policy_;
  OrderCounter& orders_;
  const PlacementPlanner planner_;

  JobPhase phase_ = JobPhase::kQueued;
  std::string why_;
  bool moves_ = false;
  Choice choice_;
  Leaving leaving_;
  std::optional<Finishing> finishing_;
  Failures failures_;
  int losses_ = 0;
  Changed changed_;
  bool drain_refused_ = false;
  std::string last_refusal_;

  Holdings holdings_;
  std::set<MemberId> excluded_;
  std::set<MemberId> distrusted_;
  // Workers that this or an earlier coordinator may have told of the job.
  std::set<WorkerId> told_;
  int64_t lost_rows_ = 0;  // that a restored store may lack
  std::map<MemberId, JobOrder> issued_;

  // The newest attempt.
  int64_t attempt_ = 0;
  Cut base_;
  std::vector<RunPlace> places_;
  Roster roster_;  // of a group
  std::vector<std::vector<MemberId>> sources_;
  Stop stop_ = Stop::kNotAsked;
  bool recovered_ = true;  // its first snapshot is safe
  bool all_stored_ = false;

  std::optional<Cut> floor_;
  Cut reported_floor_;
  std::set<Cut> pins_;
  std::set<Cut> checkpoints_;
  std::optional<int64_t> recorded_;
  int64_t furthest_ = 0;  // the newest applied step
};

}  // namespace paceline

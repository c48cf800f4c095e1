// JobRecovery keeps one job alive for the coordinator.  Whatever happens, its
// way is the same: all leave, a cut is chosen, a new attempt begins.  A kill, a
// hang, a drain, a join and a re-partition differ only in where the pieces are.
//
// Assumes: reports of one process come in order; whoever is lost was silent for
// the lease or has a second witness against it; a number of `orders` is used
// once; time only grows.
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
  // max(lease, 5 x the predicted instruction): who has not left until then is
  // excluded.
  absl::Duration leave_bound = absl::Seconds(3);
  // For so long lost processes may come back with what they hold, before the
  // job goes on from less than was safe.
  absl::Duration return_period = absl::Seconds(30);
  int most_failures = 3;  // in a row, without a new step
  int most_losses = 10;   // in a row, without a new floor
  absl::Duration loss_pause = absl::Minutes(1);
  // After too many failures that a person may mend: a disk is full, say.
  absl::Duration hindrance_pause = absl::Seconds(10);
  absl::Duration store_retry = absl::Seconds(1);
  // The job ends when the last state of all layers is uploaded, not only
  // computed.
  bool needs_upload = false;
  // Workers hold nothing of the job: every base is a checkpoint, and a planned
  // change leaves the attempt as it is.
  bool stateless = false;
};

// A live process that the planner may place stages on.
struct RunCandidate {
  MemberId process;
  MachineId machine;
  std::string unfit = {};  // why it cannot be used; empty: it can
  // Why it cannot hold the first stage, which reads the data; empty: it can.
  std::string no_data = {};
};

// Which process holds which layers, by stage.
// Errors: with what is missing, for people; any code.
using PlacementPlanner = std::function<absl::StatusOr<std::vector<RunPlace>>(
    const std::vector<RunCandidate>& by_id)>;

// The numbers of all orders of a coordinator.
struct OrderCounter {
  OrderNumber last;  // its term is greater than that of any coordinator before

  OrderNumber Next() { return {last.term, ++last.n}; }
};

// --- What the caller has to do, in this order --------------------------------

// Store the row and who takes part in one transaction, in the place of any row
// of this attempt or a later one; then call OnStored().
struct StoreAttempt {
  AttemptRow row;
  std::vector<RunPlace> places;
};
// Its standing order has changed.
struct SendOrder {
  MemberId to;
  JobOrder order;
};
// It does not do what it is ordered to.  Only another process of its worker may
// take part again: ask it to end.
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

// The machine (state, event, now) -> (state, actions) of one job.  Lives on the
// coordinator's loop.  Thread-compatible.
class JobRecovery {
 public:
  // orders: shared by all jobs of the coordinator; outlives this.
  JobRecovery(const RecoveryPolicy& policy, OrderCounter& orders,
              PlacementPlanner planner);
  virtual ~JobRecovery() = default;

  // Its turn has come.
  void Begin(Instant now, RecoveryActions& actions);
  // Takes over what an earlier coordinator stored: the job has begun, and
  // nobody gets an order before it is known what goes on.  Instead of Begin().
  //   places  of the newest row
  void Restore(std::vector<AttemptRow> rows, std::vector<RunPlace> places);

  // A worker that an earlier coordinator knew: not lost, not heard of yet.
  void OnKnown(WorkerId worker, MachineId machine, const std::string& name);
  // The process is there; another process of its worker is lost.  Again: it
  // has a new stream, and OrderOf() is to be sent once more.
  void OnAttached(const MemberId& process, MachineId machine,
                  const std::string& name, Instant now,
                  RecoveryActions& actions);
  void OnLost(WorkerId worker, const std::string& why, Instant now,
              RecoveryActions& actions);
  void OnReport(const MemberId& process, const JobReport& report, Instant now,
                RecoveryActions& actions);
  // It hangs, or the link between it and a neighbour is broken.
  void OnStuck(const MemberId& process, const std::string& why, Instant now,
               RecoveryActions& actions);
  // A link of its is cut, so that it gets no stage.  why: empty: no longer.
  void SetCutOff(WorkerId worker, const std::string& why, Instant now,
                 RecoveryActions& actions);
  void SetDraining(WorkerId worker, bool draining, Instant now,
                   RecoveryActions& actions);
  // There is a better plan, for which it pays to move.  Ignored unless it runs.
  // A stateless job leaves at once.
  void OnBetterPlan(const std::string& why, Instant now,
                    RecoveryActions& actions);
  // The planner may find what it did not find before: other jobs have let go of
  // workers, or a profile is there.
  void OnPlansChanged(Instant now, RecoveryActions& actions);
  void OnStored(int64_t attempt, bool ok, Instant now,
                RecoveryActions& actions);

  // Records and due evaluations of all steps up to this one are stored.
  void OnRecorded(int64_t step) { recorded_ = step; }
  // A cut that the coordinator itself can serve; it takes the place of the one
  // before.
  void OnCheckpoint(Cut cut) {
    holdings_changed_ = holdings_changed_ || cut != checkpoint_;
    checkpoint_ = cut;
  }
  // The last state of these layers is stored for good.  Of another attempt
  // than the present one: ignored.
  void OnUploaded(int64_t attempt, LayerRange layers, Instant now,
                  RecoveryActions& actions);
  // Keeps a cut while it is being uploaded.
  void SetPin(Cut cut, bool pinned, Instant now, RecoveryActions& actions);

  void OnTick(Instant now, RecoveryActions& actions) { Advance(now, actions); }
  // The coordinator itself stood still for so long, until now: that time counts
  // against nobody.  Before the first event after it.
  void OnStandstill(absl::Duration duration, Instant now);

  JobPhase phase() const { return phase_; }
  // Why it is in this phase, for people.
  const std::string& why() const { return why_; }
  bool Knows(WorkerId worker) const { return peers_.count(worker) > 0; }
  // Its placement changes, or did last, though nothing was lost.
  bool moves() const { return moves_; }
  int64_t attempt() const { return attempt_; }  // 0: none began
  Cut base() const { return base_; }
  const std::vector<RunPlace>& places() const { return places_; }
  const Lineage& lineage() const { return lineage_; }
  // Nothing: not known yet, since this coordinator has just started.
  const std::optional<Cut>& floor() const { return floor_; }
  // How many machines besides its owner's hold each piece now.
  int followers() const;
  // It was taken out: only another process of its worker may come back.
  bool Excludes(const MemberId& process) const {
    return excluded_.count(process) > 0;
  }
  // RecoveryPolicy's, from now on.
  void SetLeaveBound(absl::Duration bound) { policy_.leave_bound = bound; }
  // [layers]: processes that hold the cut's piece, by id.
  std::vector<std::vector<MemberId>> HoldersOf(Cut cut) const {
    return holdings_.HoldersOf(cut);
  }
  // Whether nothing safe would be lost with a draining worker.
  bool MayGo(WorkerId worker) const;
  // The job cannot go on without the workers that drain.
  bool drain_refused() const { return drain_refused_; }
  // Null: none is out.
  const JobOrder* OrderOf(const MemberId& process) const {
    const auto found = issued_.find(process);
    return found == issued_.end() ? nullptr : &found->second;
  }
  // Asks the planner for the best plan on those who are there.
  absl::StatusOr<std::vector<RunPlace>> PlanNow() const {
    return planner_(Candidates());
  }

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
    bool missed = false;  // an event says that it is lost
    std::string unfit;    // it failed for want of something
    std::string no_data;
    std::string cut_off;
    bool draining = false;
  };

  // Virtual for the simulation's flaws.
  virtual bool IsValid(Cut cut) const { return lineage_.IsValid(cut); }
  virtual bool HasLeft(const Peer& peer) const {
    return peer.report.echo > leave_mark_;
  }
  virtual bool IsExcluded(const MemberId& process) const {
    return excluded_.count(process) > 0;
  }
  virtual int64_t NextAttempt() const {
    return std::max(lineage_.newest(), seen_attempt_) + 1;
  }
  virtual bool AllHeard() const;  // nobody is awaited who may be there
  // Those that may hold pieces of others.
  virtual std::set<MachineId> UsableMachines() const;
  virtual Cut FloorAfter(Cut floor, Cut computed) const {
    return std::max(floor, computed);
  }

  std::map<WorkerId, Peer> peers_;
  Lineage lineage_;
  // The newest that anybody reported who was told of the job.
  int64_t seen_attempt_ = 0;

 private:
  // A store that was brought back from a copy lacks so many attempts of which
  // workers tell, at most.
  static constexpr int64_t kMostLostRows = 1000;

  struct Pending {
    AttemptRow row;
    std::vector<RunPlace> places;
  };

  void Advance(Instant now, RecoveryActions& actions);
  // Each looks at one phase; whether there is another one now.
  bool Step(Instant now, RecoveryActions& actions);
  bool Adopt(Instant now, RecoveryActions& actions);
  bool Watch(Instant now, RecoveryActions& actions);
  bool WatchWork(Instant now, RecoveryActions& actions);
  bool WaitForLeave(Instant now, RecoveryActions& actions);
  bool WaitForFinish(Instant now, RecoveryActions& actions);
  bool Reconsider(Instant now, RecoveryActions& actions);
  bool Choose(Instant now, RecoveryActions& actions);

  bool Go(JobCause cause, std::string why, RecoveryActions& actions);
  bool Leave(JobCause cause, const std::string& why, Instant now,
             RecoveryActions& actions);
  bool Drain(Instant now, RecoveryActions& actions);
  bool Move(const std::string& why, Instant now, RecoveryActions& actions);
  bool OnFailure(const Peer& peer, Instant now, RecoveryActions& actions);
  void Exclude(const Peer& peer, const std::string& why,
               RecoveryActions& actions);
  bool Pause(JobCause cause, const std::string& why, RecoveryActions& actions);
  bool PauseFor(absl::Duration pause, const std::string& why, Instant now,
                RecoveryActions& actions);
  void Announce(RecoveryActions& actions);
  void OnMembersChanged();
  void OnGone(const Peer& peer);

  bool AllLeft() const;
  // It is not known to lack something, be it lost or not.
  static bool IsFit(const Peer& peer) {
    return peer.unfit.empty() && peer.no_data.empty();
  }
  bool AnyFit() const {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& entry) { return IsFit(entry.second); });
  }
  std::optional<int64_t> StepToFinish() const;
  bool WaitsForReturn(Cut base, Instant now);
  bool WaitsForSettling(const std::vector<RunPlace>& places, Instant now,
                        RecoveryActions& actions);
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
  // It has, or may have, something of the job.
  bool IsConcerned(const Peer& peer) const {
    return IsMember(peer.process) || peer.report.attempt > 0 ||
           peer.has_pieces || peer.report.follows || peer.was_ordered;
  }
  bool IsUploaded(LayerRange layers) const;
  bool IsDone(const RunPlace& place) const {
    const Peer* const peer = FindLive(place.process);
    return IsUploaded(place.layers) ||
           (peer != nullptr && peer->report.attempt == attempt_ &&
            peer->report.phase == WorkPhase::kDone);
  }
  // Whether the members have orders to run.
  bool IsOrdered() const {
    return phase_ == JobPhase::kStarting || phase_ == JobPhase::kRunning ||
           phase_ == JobPhase::kStopping;
  }
  std::set<MemberId> Draining() const;
  std::string NameOf(const MemberId& process) const;

  void UpdateFloor(RecoveryActions& actions);
  std::map<MemberId, std::vector<Follow>> Followers() const;
  JobOrder MakeOrder(const MemberId& process) const;
  void SendOrders(RecoveryActions& actions);

  RecoveryPolicy policy_;
  OrderCounter& orders_;
  const PlacementPlanner planner_;

  JobPhase phase_ = JobPhase::kQueued;
  std::string why_;
  bool moves_ = false;
  Holdings holdings_;
  bool holdings_changed_ = false;  // or who counts
  bool members_changed_ = false;   // since a plan was asked for
  std::set<MemberId> excluded_;
  // Were told of the job, or may have been by an earlier coordinator.
  std::set<WorkerId> told_;
  int64_t lost_rows_ = 0;  // that the store may lack, which is restored
  std::map<MemberId, JobOrder> issued_;
  bool orders_changed_ = false;  // or what they depend on

  // The newest attempt.
  int64_t attempt_ = 0;
  Cut base_;
  std::vector<RunPlace> places_;
  std::vector<std::vector<MemberId>> sources_;
  bool stop_ = false;       // it was asked to
  bool stopped_ = false;    // all have
  bool recovered_ = true;   // its first snapshot is safe
  std::set<int> uploaded_;  // layers

  std::optional<Cut> floor_;
  Cut reported_floor_;
  std::set<Cut> pins_;
  Cut checkpoint_;
  std::optional<int64_t> recorded_;

  OrderNumber leave_mark_;  // orders after it are without the run
  Instant leave_since_;
  std::optional<int64_t> finish_;
  Instant finish_since_;
  std::optional<absl::StatusOr<std::vector<RunPlace>>> plan_;  // of now
  std::set<MemberId> settling_;
  Instant settling_since_;
  std::optional<Pending> storing_;
  // The lowest step of a base that may be in the store by now, though it is not
  // announced.
  std::optional<int64_t> undecided_step_;
  std::optional<Instant> retry_at_;
  std::optional<Instant> paused_until_;
  std::string last_pause_;  // why
  bool waited_ = false;     // for somebody to return, since the plan was made
  bool drain_refused_ = false;
  std::string last_refusal_;

  int failures_ = 0;
  bool failed_to_begin_ = false;  // the last attempt: before it ran
  int64_t furthest_ = 0;          // step that anybody has applied
  int64_t failed_furthest_ = -1;  // at the last failure
  int64_t failed_base_ = 0;       // likewise
  std::string hindrance_;         // it waits for memory, a disk or a link
  int losses_ = 0;
};

}  // namespace paceline

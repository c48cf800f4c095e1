#include "core/recover/job_recovery.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {
namespace {

void AddEvent(RecoveryTurn& turn, std::string kind, std::string text) {
  turn.actions.push_back(RecoveryEvent{std::move(kind), std::move(text)});
}

}  // namespace

JobRecovery::JobRecovery(const RecoveryPolicy& policy, OrderCounter& orders,
                         PlacementPlanner planner)
    : policy_(policy),
      orders_(orders),
      planner_(std::move(planner)),
      holdings_(policy.layers, policy.states_differ) {}

// --- Events ------------------------------------------------------------------

void JobRecovery::Begin(RecoveryTurn& turn) {
  floor_ = Cut();  // no process holds a piece yet
  Go(JobCause::kBegin, "looks for workers", turn);
  Advance(turn);
}

void JobRecovery::Restore(std::vector<AttemptRow> rows,
                          std::vector<RunPlace> places) {
  PACELINE_CHECK(!rows.empty(), "a job that began has an attempt");
  lineage_ = Lineage(std::move(rows));
  lost_rows_ = kMostLostRows;
  attempt_ = seen_attempt_ = lineage_.newest();
  base_ = lineage_.rows().back().base;
  places_ = std::move(places);
  phase_ = JobPhase::kAdopting;
  why_ = "the coordinator has started anew and listens";
}

void JobRecovery::OnKnown(WorkerId worker, MachineId machine,
                          const std::string& name) {
  Peer& peer = peers_[worker];
  peer.process.worker = worker;
  peer.machine = machine;
  peer.name = name;
  peer.has_pieces = true;  // it may
  told_.insert(worker);
}

void JobRecovery::OnAttached(const MemberId& process, MachineId machine,
                             const std::string& name, RecoveryTurn& turn) {
  Peer& peer = peers_[process.worker];
  const bool is_new = peer.process != process;
  // The events of a group tell of its members.
  const bool is_member = !policy_.views && IsMember(peer.process);
  if (peer.missed ||
      (is_new && (is_member || excluded_.count(peer.process) > 0))) {
    AddEvent(turn, "returned",
             absl::StrCat(name, is_new ? " is there as a new process"
                                       : " is there again"));
  }
  peer.missed = false;
  if (is_new) {
    OnGone(peer);
    peer = Peer();
    peer.process = process;
  }
  peer.machine = machine;
  peer.name = name;
  if (peer.presence != Peer::Presence::kLive) {
    // It becomes live with its first report.
    peer.presence = Peer::Presence::kUnheard;
    peer.since = turn.now;
  }
  OnMembersChanged();
  Advance(turn);
}

void JobRecovery::OnLost(WorkerId worker, const std::string& why,
                         RecoveryTurn& turn) {
  const auto found = peers_.find(worker);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (peer.presence == Peer::Presence::kLost) return;
  OnGone(peer);
  peer.presence = Peer::Presence::kLost;
  peer.since = turn.now;
  if (!policy_.views && IsMember(peer.process)) {
    peer.missed = true;
    AddEvent(turn, "lost", absl::StrCat(peer.name, ": ", why));
  }
  OnMembersChanged();
  Advance(turn);
}

void JobRecovery::OnReport(const MemberId& process, const JobReport& said,
                           RecoveryTurn& turn) {
  const auto found = peers_.find(process.worker);
  if (found == peers_.end() || found->second.process != process) return;
  Peer& peer = found->second;
  if (peer.presence == Peer::Presence::kLost || IsExcluded(process)) return;
  const bool is_first = peer.presence == Peer::Presence::kUnheard;
  if (is_first) {
    peer.presence = Peer::Presence::kLive;
    peer.since = turn.now;
    OnMembersChanged();
  }
  JobReport report =
      Believed(said, orders_.last,
               told_.count(process.worker) == 0
                   ? std::nullopt
                   : std::optional(lineage_.newest() + lost_rows_));
  if (!said.pieces.has_value()) {
    report.refuses_pieces = peer.report.refuses_pieces;
  }
  seen_attempt_ =
      std::max({seen_attempt_, report.attempt, report.floor.attempt});
  if (report.attempt == attempt_ && attempt_ > 0) {
    furthest_ = std::max(furthest_, report.step);
    if (policy_.views && report.step > base_.step) losses_ = 0;
  }
  if (report.floor > reported_floor_ && IsValid(report.floor)) {
    reported_floor_ = report.floor;
  }
  const bool had_pieces = peer.has_pieces;
  if (report.pieces.has_value()) {
    peer.has_pieces = !report.pieces->empty();
    if (peer.has_pieces) {
      seen_attempt_ =
          std::max(seen_attempt_, report.pieces->rbegin()->cut.attempt);
    }
    if (distrusted_.count(process) == 0) {
      holdings_.Set(process, peer.machine, *report.pieces);
    }
    changed_.holdings = true;
  }
  if (report.refuses_pieces != peer.report.refuses_pieces) {
    changed_.holdings = changed_.orders = true;
    AddEvent(turn, "copies",
             absl::StrCat(peer.name,
                          report.refuses_pieces
                              ? " takes no pieces of others: its log says why"
                              : " takes pieces of others again"));
  }
  const bool is_known =
      !is_first && !report.pieces.has_value() && report == peer.report;
  if (report.files_changed && !peer.report.files_changed && !IsFit(peer)) {
    peer.unfit.clear();
    peer.no_data.clear();
    OnMembersChanged();
    AddEvent(turn, "repaired",
             absl::StrCat("files of the job have changed on ", peer.name,
                          ": it may hold stages again"));
  }
  // The process may be concerned only now: it needs an order then.
  if (is_first || report.attempt != peer.report.attempt ||
      peer.has_pieces != had_pieces) {
    changed_.orders = true;
  }
  peer.report = report;
  peer.report.pieces.reset();
  if (!is_known) Advance(turn);
}

void JobRecovery::OnStuck(const MemberId& process, const std::string& why,
                          RecoveryTurn& turn) {
  if (!IsOrdered() || !IsMember(process) || FindLive(process) == nullptr) {
    return;
  }
  ++losses_;
  Leave(JobCause::kLoss, absl::StrCat(NameOf(process), ": ", why), turn);
  Advance(turn);
}

void JobRecovery::SetCutOff(WorkerId worker, const std::string& why,
                            RecoveryTurn& turn) {
  const auto found = peers_.find(worker);
  if (found == peers_.end() || found->second.cut_off == why) return;
  found->second.cut_off = why;
  OnMembersChanged();
  Advance(turn);
}

void JobRecovery::SetDraining(WorkerId worker, bool draining,
                              RecoveryTurn& turn) {
  const auto found = peers_.find(worker);
  if (found == peers_.end() || found->second.draining == draining) return;
  found->second.draining = draining;
  last_refusal_.clear();
  OnMembersChanged();
  Advance(turn);
}

void JobRecovery::OnBetterPlan(const std::string& why, RecoveryTurn& turn) {
  if (phase_ != JobPhase::kRunning) return;
  AddEvent(turn, "move", why);
  Move(why, turn);
  Advance(turn);
}

void JobRecovery::OnRoster(const Roster& roster, RecoveryTurn& turn) {
  if ((!IsOrdered() && phase_ != JobPhase::kAdopting) || roster == roster_) {
    return;
  }
  roster_ = roster;
  places_ = roster.members;
  if (roster.state == Roster::State::kTorn) {
    lineage_.SetSound(attempt_, roster.sound_step);
    // Members began with different states: the base is not sound either.
    if (roster.sound_step < base_.step && checkpoints_.count(base_) == 0) {
      lineage_.SetSound(base_.attempt, roster.sound_step);
    }
  }
  changed_.holdings = changed_.orders = true;
  Advance(turn);
}

void JobRecovery::OnStored(int64_t attempt, RecoveryTurn& turn) {
  if (!choice_.storing.has_value() || choice_.storing->row.attempt != attempt) {
    return;
  }
  Announce(turn);
  Advance(turn);
}

void JobRecovery::OnStandstill(absl::Duration duration, Instant now) {
  const auto shift = [&](Instant& since) {
    since = std::min(since + duration, now);
  };
  for (auto& [worker, peer] : peers_) shift(peer.since);
  shift(leaving_.since);
  if (finishing_.has_value()) shift(finishing_->since);
  shift(choice_.settling_since);
}

// --- The phases --------------------------------------------------------------

void JobRecovery::Advance(RecoveryTurn& turn) {
  do {
    UpdateFloor(turn);
  } while (Step(turn));
  UpdateFloor(turn);
  SendOrders(turn);
}

bool JobRecovery::Step(RecoveryTurn& turn) {
  switch (phase_) {
    case JobPhase::kAdopting:
      return Adopt(turn);
    case JobPhase::kChoosing:
      return Choose(turn);
    case JobPhase::kStarting:
    case JobPhase::kRunning:
    case JobPhase::kStopping:
      return Watch(turn);
    case JobPhase::kLeaving:
      return WaitForLeave(turn);
    case JobPhase::kFinishing:
      return WaitForFinish(turn);
    case JobPhase::kPaused:
      return Reconsider(turn);
    case JobPhase::kQueued:
    case JobPhase::kDone:
    case JobPhase::kFailed:
      return false;
  }
  return false;
}

// Every change of phase goes through here.
bool JobRecovery::Go(JobCause cause, std::string why, RecoveryTurn& turn) {
  for (const JobTransition& row : kJobTransitions) {
    if (row.from != phase_ || row.cause != cause) continue;
    moves_ = cause == JobCause::kAllStopped ||
             (moves_ && row.to != JobPhase::kLeaving);
    phase_ = row.to;
    changed_.orders = true;
    why_ = std::move(why);
    turn.actions.push_back(row);
    return true;
  }
  PACELINE_CHECK(false, JobCauseName(cause), " while ", JobPhaseName(phase_));
  return false;
}

bool JobRecovery::Adopt(RecoveryTurn& turn) {
  if (seen_attempt_ > attempt_) {
    return Leave(JobCause::kNotAdopted,
                 absl::StrCat("attempt ", seen_attempt_,
                              " began, which is newer than what is stored"),
                 turn);
  }
  if (policy_.views) return AdoptGroup(turn);
  bool all_heard = true;
  for (const RunPlace& place : places_) {
    if (IsGone(place.process)) {
      return Leave(JobCause::kNotAdopted,
                   absl::StrCat(NameOf(place.process), " is gone"), turn);
    }
    const Peer* const peer = FindLive(place.process);
    if (peer == nullptr) {
      all_heard = false;
    } else if (peer->report.attempt != attempt_ ||
               peer->report.phase == WorkPhase::kIdle ||
               peer->report.phase == WorkPhase::kFailed) {
      return Leave(JobCause::kNotAdopted,
                   absl::StrCat(peer->name, " does not run attempt ", attempt_),
                   turn);
    }
  }
  if (!all_heard) return false;
  sources_ = HoldersOf(base_);
  AddEvent(turn, "adopted", absl::StrCat("attempt ", attempt_, " goes on"));
  return Go(JobCause::kAdopted, "its workers go on", turn);
}

// A joiner may not know the group's state: one that has taken part must say
// that it goes on.
bool JobRecovery::AdoptGroup(RecoveryTurn& turn) {
  if (roster_.state != Roster::State::kGoesOn) {
    return Leave(JobCause::kNotAdopted, roster_.why, turn);
  }
  bool goes_on = false;
  bool waits = false;  // a member, for an order that no coordinator has sent
  for (const RunPlace& place : places_) {
    const Peer* const peer = FindLive(place.process);
    waits |= peer != nullptr && peer->report.attempt != attempt_;
    goes_on |= Runs(place) && !peer->report.joins;
  }
  if (!goes_on)
    return waits && AllHeard() &&
           Leave(JobCause::kNotAdopted, "not all members run it", turn);
  sources_ = HoldersOf(base_);
  AddEvent(turn, "adopted", absl::StrCat("attempt ", attempt_, " goes on"));
  return Go(JobCause::kAdopted, "its group goes on", turn);
}

// Members come and go by views, and their failures are the group's to judge.
bool JobRecovery::WatchGroup(RecoveryTurn& turn) {
  if (roster_.state != Roster::State::kGoesOn) {
    ++losses_;
    return Leave(JobCause::kLoss, roster_.why, turn);
  }
  if (phase_ != JobPhase::kStarting) return false;
  const bool runs = absl::c_all_of(
      places_, [this](const RunPlace& place) { return Runs(place); });
  return runs && Go(JobCause::kAllRun, "its group trains", turn);
}

bool JobRecovery::Watch(RecoveryTurn& turn) {
  if (policy_.views) return WatchGroup(turn);
  for (const RunPlace& place : places_) {
    if (!IsGone(place.process) || all_stored_) continue;
    ++losses_;
    return Leave(JobCause::kLoss,
                 absl::StrCat(NameOf(place.process), " is lost"), turn);
  }
  for (const RunPlace& place : places_) {
    const Peer* const peer = FindLive(place.process);
    if (peer != nullptr && peer->report.attempt == attempt_ &&
        peer->report.phase == WorkPhase::kFailed) {
      return OnFailure(*peer, turn);
    }
  }
  return WatchWork(turn);
}

// No member is gone or has failed.
bool JobRecovery::WatchWork(RecoveryTurn& turn) {
  size_t running = 0;
  size_t stopped = 0;
  size_t done = 0;
  bool drains = false;
  std::set<int64_t> stopped_at;
  for (const RunPlace& place : places_) {
    const Peer* const peer = FindLive(place.process);
    const bool runs = peer != nullptr && peer->report.attempt == attempt_;
    const WorkPhase phase = runs ? peer->report.phase : WorkPhase::kIdle;
    drains = drains || (peer != nullptr && peer->draining);
    if (all_stored_ || phase == WorkPhase::kDone) {
      ++done;
    } else if (phase == WorkPhase::kStopped) {
      ++stopped;
      stopped_at.insert(peer->report.step);
    } else if (phase == WorkPhase::kRunning) {
      ++running;
    }
  }
  const size_t all = places_.size();
  if (phase_ == JobPhase::kStarting) {
    if (running + stopped + done < all) return false;
    return Go(JobCause::kAllRun, "all stages run", turn);
  }
  if (done == all) {
    return Go(JobCause::kAllDone, "all steps are applied", turn);
  }
  if (phase_ == JobPhase::kRunning) {
    if (stopped > 0) {
      stop_ = Stop::kAsked;
      return Go(JobCause::kMove, "a stage has stopped", turn);
    }
    return drains && Drain(turn);
  }
  if (stopped < all || stopped_at.size() != 1) return false;
  stop_ = Stop::kAllStopped;
  return Go(JobCause::kAllStopped,
            absl::StrCat("all stages stopped after step ", *stopped_at.begin()),
            turn);
}

// A member of the running job drains.
bool JobRecovery::Drain(RecoveryTurn& turn) {
  if (drain_refused_) return false;
  const PlacedStages plan = PlanNow();
  if (!plan.has_value()) return false;
  if (!plan->ok()) {
    drain_refused_ = true;
    const std::string why = absl::StrCat(
        "a worker that drains is still needed: ", plan->status().message());
    if (why != last_refusal_) AddEvent(turn, "drain", why);
    last_refusal_ = why;
    return false;
  }
  return Move("a worker drains", turn);
}

bool JobRecovery::Move(const std::string& why, RecoveryTurn& turn) {
  if (policy_.stateless) {
    Leave(JobCause::kLoss, why, turn);
    return moves_ = true;  // nothing is lost
  }
  stop_ = Stop::kAsked;
  return Go(JobCause::kMove, why, turn);
}

bool JobRecovery::OnFailure(const Peer& peer, RecoveryTurn& turn) {
  const absl::Status error = peer.report.error;
  const std::string text = absl::StrCat(
      peer.name, " failed at step ", peer.report.step, ": ", error.message());
  AddEvent(turn, "failed", text);
  if (!IsTransient(error.code())) return Go(JobCause::kHopeless, text, turn);
  if (MakesUnfit(error.code())) {
    Peer& lacks = peers_[peer.process.worker];
    // The first stage alone reads the data.
    const bool data =
        (absl::IsNotFound(error) || absl::IsPermissionDenied(error)) &&
        lacks.no_data.empty() && places_.front().process == peer.process;
    (data ? lacks.no_data : lacks.unfit) = std::string(error.message());
    AddEvent(turn, "unfit",
             absl::StrCat(peer.name, " holds no ",
                          data ? "first stage" : "stage", " from now on"));
    // Before the job's first step, an error on all workers is the job's own.
    const int64_t began = base_.attempt == 0 ? base_.step : 0;
    if (furthest_ <= began && !AnyFit()) {
      return Go(JobCause::kHopeless, text, turn);
    }
  } else {
    const bool went_on =
        furthest_ > failures_.furthest || base_.step > failures_.base;
    failures_.in_row = went_on ? 1 : failures_.in_row + 1;
    failures_.furthest = furthest_;
    failures_.base = base_.step;
    failures_.to_begin = phase_ == JobPhase::kStarting;
    if (failures_.in_row >= policy_.most_failures) {
      failures_.hindrance = absl::StrCat(Counted(failures_.in_row, "attempt"),
                                         " failed without a step after ",
                                         furthest_, "; last: ", text);
      // A disk may have room again, and a link may come back.
      if (!(absl::IsResourceExhausted(error) && furthest_ > 0) &&
          !(absl::IsUnavailable(error) && failures_.to_begin && base_.step > 0))
        return Go(JobCause::kHopeless, failures_.hindrance, turn);
    }
  }
  return Leave(JobCause::kFailure, text, turn);
}

bool JobRecovery::Leave(JobCause cause, const std::string& why,
                        RecoveryTurn& turn) {
  Go(cause, why, turn);
  AddEvent(turn, "left", absl::StrCat("attempt ", attempt_, " ends: ", why));
  leaving_.mark = orders_.last;
  leaving_.since = turn.now;
  issued_.clear();  // so that every process gets an order after the mark
  stop_ = Stop::kNotAsked;
  finishing_.reset();
  OnMembersChanged();
  return true;
}

bool JobRecovery::AllHeard() const {
  return absl::c_none_of(peers_, [](const auto& each) {
    return each.second.presence == Peer::Presence::kUnheard;
  });
}

bool JobRecovery::AllLeft() const {
  // After a stop the pieces of all members are known.  If a member is lost
  // since, the holders of copies of its pieces must report first.
  const bool all_there = absl::c_all_of(places_, [this](const RunPlace& place) {
    return FindLive(place.process) != nullptr;
  });
  if (stop_ == Stop::kAllStopped && all_there) return true;
  return absl::c_all_of(peers_, [this](const auto& each) {
    const Peer& peer = each.second;
    return !IsCounted(peer) || !IsConcerned(peer) || HasLeft(peer);
  });
}

bool JobRecovery::WaitForLeave(RecoveryTurn& turn) {
  for (const auto& [worker, peer] : peers_) {
    if (!IsCounted(peer) || !IsConcerned(peer) || HasLeft(peer)) continue;
    if (turn.now - std::max(leaving_.since, peer.since) >=
        policy_.leave_bound) {
      Exclude(peer, absl::StrCat("does not leave attempt ", attempt_), turn);
    }
  }
  if (!AllHeard() || !AllLeft()) return false;
  const std::optional<int64_t> step = StepToFinish();
  if (!step.has_value()) return Go(JobCause::kAllLeft, why_, turn);
  finishing_ = Finishing{*step, turn.now};
  return Go(JobCause::kCanFinish, absl::StrCat("replicas finish step ", *step),
            turn);
}

void JobRecovery::Exclude(const Peer& peer, const std::string& why,
                          RecoveryTurn& turn) {
  AddEvent(turn, "excluded",
           absl::StrCat(peer.name, " ", why,
                        "; only a new process of it may come back"));
  turn.actions.push_back(ExcludeProcess{peer.process});
  excluded_.insert(peer.process);
  if (IsExcluded(peer.process)) holdings_.Remove(peer.process);
  OnMembersChanged();
}

std::optional<int64_t> JobRecovery::StepToFinish() const {
  std::map<MemberId, KeptState> kept;
  for (const RunPlace& place : places_) {
    const Peer* const peer = FindLive(place.process);
    if (peer != nullptr && peer->report.kept.has_value()) {
      kept[place.process] = *peer->report.kept;
    }
  }
  return paceline::StepToFinish(
      places_, kept, NewestCut(holdings_.Copies(), 1, IsValidCut()).step);
}

bool JobRecovery::WaitForFinish(RecoveryTurn& turn) {
  const auto& [step, since] = *finishing_;
  const Cut cut{attempt_, step};
  if (holdings_.Copies().count(cut) > 0) {
    return Go(JobCause::kFinished,
              absl::StrCat("step ", step, " is applied everywhere"), turn);
  }
  if (StepToFinish() != step) {
    ++losses_;
    return Leave(JobCause::kLoss, "a replica was lost while it finished", turn);
  }
  if (turn.now - since < policy_.leave_bound) return false;
  return Go(JobCause::kFinished, absl::StrCat("step ", step, " is run again"),
            turn);
}

bool JobRecovery::Reconsider(RecoveryTurn& turn) {
  std::optional<Instant>& until = choice_.paused_until;
  if (until.has_value() ? turn.now < *until : !changed_.members) return false;
  until.reset();
  return Go(JobCause::kMembersChanged, "looks for workers again", turn);
}

bool JobRecovery::Choose(RecoveryTurn& turn) {
  if (choice_.storing.has_value() || !AllHeard()) return false;
  if (!AllLeft()) {
    return Leave(JobCause::kReturned,
                 "a worker may run it still, or hold more than it said", turn);
  }
  if (losses_ >= policy_.most_losses) {
    const std::string why = absl::StrCat(
        Counted(losses_, "worker"), losses_ == 1 ? " was" : " were",
        " lost since step ", floor_.value_or(Cut()).step, " was safe");
    losses_ = 0;
    return PauseFor(policy_.loss_pause, why, turn);
  }
  if (!failures_.hindrance.empty()) {
    failures_.in_row =
        policy_.most_failures - 1;  // one attempt shows whether it still fails
    return PauseFor(policy_.hindrance_pause,
                    std::exchange(failures_.hindrance, ""), turn);
  }
  if (!choice_.plan.has_value()) choice_.plan = PlanNow();
  if (!choice_.plan.has_value()) return false;
  changed_.members = false;
  if (!choice_.plan->ok()) {
    return Pause(JobCause::kNoPlan,
                 std::string(choice_.plan->status().message()), turn);
  }
  if (WaitsForSettling(**choice_.plan, turn)) return false;
  const Cut base = ChooseBase();
  if (WaitsForReturn(base, turn.now)) {
    choice_.waited = true;
    return false;
  }
  if (std::exchange(choice_.waited, false)) {
    choice_.plan.reset();  // other jobs may have its workers by now
    return true;
  }
  if (recorded_.has_value() && base.step > *recorded_) {
    AddEvent(turn, "records",
             absl::StrCat("records of steps ", *recorded_ + 1, " to ",
                          base.step, " are missing"));
  }
  const Pending& next =
      choice_.storing.emplace(Pending{{NextAttempt(), base}, **choice_.plan});
  why_ = absl::StrCat("attempt ", next.row.attempt, " is being stored");
  turn.actions.push_back(StoreAttempt{next.row, next.places});
  return false;
}

bool JobRecovery::PauseFor(absl::Duration pause, const std::string& why,
                           RecoveryTurn& turn) {
  choice_.paused_until = turn.now + pause;
  return Pause(JobCause::kTooManyLosses, why, turn);
}

bool JobRecovery::Pause(JobCause cause, const std::string& why,
                        RecoveryTurn& turn) {
  if (why != choice_.last_pause) AddEvent(turn, "paused", why);
  choice_.last_pause = why;
  return Go(cause, why, turn);
}

// Members of the plan with another CPU environment execute themselves anew.
bool JobRecovery::WaitsForSettling(const std::vector<RunPlace>& places,
                                   RecoveryTurn& turn) {
  std::set<MemberId> unsettled;
  for (const RunPlace& place : places) {
    const Peer* const peer = FindLive(place.process);
    if (peer != nullptr && !peer->report.settled) {
      unsettled.insert(place.process);
    }
  }
  if (unsettled != choice_.settling) {
    choice_.settling_since = turn.now;
    changed_.orders = true;
  }
  choice_.settling = std::move(unsettled);
  if (choice_.settling.empty()) return false;
  why_ = absl::StrCat(NameOf(*choice_.settling.begin()),
                      " takes over the job's CPU environment");
  // A process loads its libraries again: that takes longer than to leave.
  if (turn.now - choice_.settling_since < policy_.return_period) return true;
  for (const MemberId& process :
       std::set<MemberId>(std::move(choice_.settling))) {
    Exclude(*FindLive(process), "does not take over the job's CPU environment",
            turn);
  }
  choice_.settling.clear();
  return true;
}

// The job goes below a floor that was safe, or may have been, only after the
// processes that may hold more had return_period to come back.
bool JobRecovery::WaitsForReturn(Cut base, Instant now) {
  if (policy_.stateless) return false;
  // The members of a group hold its state, without a floor.
  const Cut floor =
      policy_.views ? Cut{attempt_, furthest_} : floor_.value_or(Cut());
  for (const auto& [worker, peer] : peers_) {
    if (peer.presence != Peer::Presence::kLost || !IsConcerned(peer) ||
        excluded_.count(peer.process) > 0 ||
        now - peer.since >= policy_.return_period) {
      continue;
    }
    // No process has told this coordinator a floor since it started.
    const bool never_heard =
        peer.process.incarnation == Incarnation() && reported_floor_ == Cut();
    if (base.step >= floor.step && !never_heard) continue;
    why_ = absl::StrCat("waits for ", peer.name, ", since only ", CutText(base),
                        " is there and ", never_heard ? "more" : CutText(floor),
                        never_heard     ? " may have been safe"
                        : policy_.views ? " was reached"
                                        : " was safe");
    return true;
  }
  return false;
}

// The newest valid cut.  A cut whose records are all stored is preferred,
// unless it is older than the floor.
Cut JobRecovery::ChooseBase() const {
  std::map<Cut, int> copies = holdings_.Copies();
  for (const Cut& cut : checkpoints_) ++copies[cut];
  const Cut newest = NewestCut(copies, 1, IsValidCut());
  // After a stop the members still send these records, or repeat them.
  if (!recorded_.has_value() || newest.step <= *recorded_ ||
      stop_ == Stop::kAllStopped) {
    return newest;
  }
  const Cut recorded = NewestCut(copies, 1, [this](Cut cut) {
    return cut.step <= *recorded_ && IsValid(cut);
  });
  return recorded.step >= floor_.value_or(Cut()).step ? recorded : newest;
}

// The attempt is stored: from now on other processes may see it.
void JobRecovery::Announce(RecoveryTurn& turn) {
  Pending stored = *std::move(choice_.storing);
  choice_ = {};
  lineage_.Add(stored.row);
  attempt_ = seen_attempt_ = stored.row.attempt;
  base_ = stored.row.base;
  places_ = std::move(stored.places);
  stop_ = Stop::kNotAsked;
  failures_.to_begin = false;
  recovered_ = base_ == Cut() || policy_.stateless || policy_.views;
  roster_ = {};
  roster_.members = places_;
  finishing_.reset();
  all_stored_ = false;
  for (auto& [worker, peer] : peers_) {
    peer.was_ordered &= peer.presence != Peer::Presence::kLive;
  }
  changed_.orders = changed_.holdings = true;
  furthest_ = policy_.views ? base_.step : std::max(furthest_, base_.step);
  sources_ = HoldersOf(base_);
  AddEvent(turn, "attempt",
           absl::StrCat("attempt ", attempt_, " begins from ", CutText(base_)));
  // The next Step() finds members that were lost meanwhile.
  Go(JobCause::kStored, absl::StrCat("attempt ", attempt_, " begins"), turn);
}

// --- Members -----------------------------------------------------------------

void JobRecovery::OnMembersChanged() {
  changed_.members = changed_.holdings = changed_.orders = true;
  drain_refused_ = false;
  choice_.plan.reset();
}

// The peer's process is gone.  If the last attempt failed before it ran, that
// failure does not count: the loss of a concerned process explains it.
void JobRecovery::OnGone(const Peer& peer) {
  if (peer.presence == Peer::Presence::kLive && IsConcerned(peer) &&
      std::exchange(failures_.to_begin, false) && failures_.in_row > 0) {
    --failures_.in_row;
  }
  holdings_.Remove(peer.process);
  issued_.erase(peer.process);
}

const JobRecovery::Peer* JobRecovery::FindLive(const MemberId& process) const {
  const auto found = peers_.find(process.worker);
  const bool is_live = found != peers_.end() &&
                       found->second.process == process &&
                       IsCounted(found->second);
  return is_live ? &found->second : nullptr;
}

bool JobRecovery::IsGone(const MemberId& process) const {
  const auto found = peers_.find(process.worker);
  if (found == peers_.end()) return true;
  const Peer& peer = found->second;
  if (peer.presence == Peer::Presence::kUnheard) {
    // Gone if another process has attached; else this one may still attach.
    return peer.process.incarnation != Incarnation() && peer.process != process;
  }
  return FindLive(process) == nullptr;
}

std::string JobRecovery::NameOf(const MemberId& process) const {
  const auto found = peers_.find(process.worker);
  return found == peers_.end() ? absl::StrCat("worker ", process.worker.value)
                               : found->second.name;
}

std::vector<RunCandidate> JobRecovery::Candidates() const {
  std::vector<RunCandidate> candidates;
  for (const auto& [worker, peer] : peers_) {
    if (!IsCounted(peer)) continue;
    candidates.push_back({peer.process, peer.machine,
                          peer.draining          ? "it drains"
                          : peer.cut_off.empty() ? peer.unfit
                                                 : peer.cut_off,
                          peer.no_data});
  }
  return candidates;
}

std::set<MachineId> JobRecovery::UsableMachines() const {
  std::set<MachineId> machines;
  for (const auto& [worker, peer] : peers_) {
    const bool is_lost = peer.presence == Peer::Presence::kLost ||
                         excluded_.count(peer.process) > 0;
    if (!is_lost && !peer.draining && !peer.report.refuses_pieces) {
      machines.insert(peer.machine);
    }
  }
  return machines;
}

// If no owner's machine may hold copies, all usable machines are followers.
int JobRecovery::followers() const {
  if (policy_.stateless) return 0;
  const std::set<MachineId> usable = UsableMachines();
  bool owners_apart = !places_.empty();
  for (const RunPlace& place : places_) {
    const Peer* const owner = FindLive(place.process);
    owners_apart =
        owners_apart && owner != nullptr && usable.count(owner->machine) == 0;
  }
  const int machines = static_cast<int>(usable.size()) + (owners_apart ? 1 : 0);
  return FollowersOf(policy_.copies, machines);
}

std::set<MemberId> JobRecovery::Draining() const {
  std::set<MemberId> draining;
  for (const auto& [worker, peer] : peers_) {
    if (peer.draining) draining.insert(peer.process);
  }
  return draining;
}

bool JobRecovery::MayGo(WorkerId worker) const {
  const auto found = peers_.find(worker);
  if (found == peers_.end()) return true;
  // The members that stay have a group's state.
  if (policy_.stateless || policy_.views) {
    return !IsMember(found->second.process);
  }
  if (!floor_.has_value() || IsMember(found->second.process)) return false;
  if (*floor_ == Cut()) return base_ == Cut();
  std::set<MemberId> without = Draining();
  without.insert(found->second.process);
  const std::map<Cut, int> copies = holdings_.Copies(without);
  const auto safe = copies.find(*floor_);
  return safe != copies.end() && safe->second > followers();
}

// --- The floor and the orders ------------------------------------------------

void JobRecovery::UpdateFloor(RecoveryTurn& turn) {
  if (!changed_.holdings || phase_ == JobPhase::kQueued ||
      phase_ == JobPhase::kAdopting) {
    return;
  }
  if (!floor_.has_value()) {
    if (!AllHeard()) return;
    floor_ = reported_floor_;
    changed_.orders = true;
  }
  changed_.holdings = false;
  // A floor above a base that is being stored would let workers drop that base.
  Cut computed =
      NewestCut(holdings_.Copies(Draining()), CopiesWanted(), [this](Cut cut) {
        return IsValid(cut) && (!choice_.storing.has_value() ||
                                cut.step <= choice_.storing->row.base.step);
      });
  if (policy_.stateless) computed = NewestCheckpoint();
  // A new attempt may have begun below it.
  const Cut before = IsValid(*floor_) ? *floor_ : Cut();
  const Cut after = FloorAfter(before, computed);
  if (after > *floor_) losses_ = 0;
  changed_.orders = changed_.orders || after != *floor_;
  floor_ = after;
  if (!recovered_ && *floor_ >= Cut{attempt_, base_.step}) {
    recovered_ = true;
    AddEvent(turn, "safe",
             absl::StrCat(CutText(*floor_),
                          followers() == 0
                              ? " is held once: no other machine is there for "
                                "a copy"
                              : absl::StrCat(" lies on ", followers() + 1,
                                             " machines")));
  }
}

std::map<MemberId, std::vector<Follow>> JobRecovery::Followers() const {
  // Copies the last state while the result is saved; others may go on from it.
  const bool saves = phase_ == JobPhase::kDone;
  if ((!IsOrdered() && !saves) || policy_.stateless) return {};
  FollowRequest request;
  request.wanted = followers();
  request.states_differ = policy_.states_differ;
  std::set<MachineId> in_ring;
  const auto add = [&](const Peer* peer) {
    if (peer == nullptr || peer->draining || peer->report.refuses_pieces) {
      return;
    }
    if (in_ring.insert(peer->machine).second) {
      request.ring.push_back({peer->machine, peer->process});
    }
  };
  for (const RunPlace& place : places_) {
    const Peer* const owner = FindLive(place.process);
    if (owner != nullptr) request.machines[place.process] = owner->machine;
    add(owner);
  }
  for (const auto& [worker, peer] : peers_) add(FindLive(peer.process));
  return FollowersOf(places_, request);
}

bool JobRecovery::NeedsFollowers() const {
  std::set<MachineId> machines;
  for (const RunPlace& place : places_) {
    const Peer* const peer = FindLive(place.process);
    if (peer != nullptr) machines.insert(peer->machine);
  }
  return static_cast<int>(machines.size()) < followers() + 1;
}

JobOrder JobRecovery::MakeOrder(const MemberId& process) const {
  JobOrder order;
  const bool runs = IsMember(process) || roster_.listeners.count(process) > 0;
  if (IsOrdered() && runs) {
    order.run = RunPlan{attempt_, base_, {}, sources_, stop_ == Stop::kAsked};
    // Views name the members of a group.
    if (!policy_.views) order.run->places = places_;
  }
  order.settle = choice_.settling.count(process) > 0;
  if (policy_.stateless) return order;
  order.keep.floor = floor_;
  for (const AttemptRow& row : lineage_.rows()) {
    if (row.attempt >= floor_.value_or(Cut()).attempt) {
      order.keep.rows.push_back(row);
    }
  }
  order.keep.pins = pins_;
  if (phase_ == JobPhase::kStarting && base_ != Cut()) {
    order.keep.pins.insert(base_);
  }
  if (phase_ == JobPhase::kFinishing) order.finish = finishing_->step;
  return order;
}

void JobRecovery::SendOrders(RecoveryTurn& turn) {
  if (!changed_.orders || phase_ == JobPhase::kQueued ||
      phase_ == JobPhase::kAdopting) {
    return;
  }
  changed_.orders = false;
  const std::map<MemberId, std::vector<Follow>> followers_of = Followers();
  for (auto& [worker, peer] : peers_) {
    if (peer.presence != Peer::Presence::kLive) continue;
    const auto follows = followers_of.find(peer.process);
    if (!IsConcerned(peer) && follows == followers_of.end() &&
        choice_.settling.count(peer.process) == 0) {
      continue;
    }
    JobOrder order = MakeOrder(peer.process);
    if (follows != followers_of.end()) order.follow = follows->second;
    const auto before = issued_.find(peer.process);
    if (before != issued_.end() && before->second.SameAs(order)) continue;
    order.number = orders_.Next();
    issued_[peer.process] = order;
    peer.was_ordered |= order.run.has_value() || !order.follow.empty();
    if (peer.was_ordered) told_.insert(worker);
    turn.actions.push_back(SendOrder{peer.process, order});
  }
}

}  // namespace paceline

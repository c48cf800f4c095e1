// The simulation does the work of the coordinator's adapters: streams, leases,
// the store.
#include <algorithm>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {

// --- The core with a mistake -------------------------------------------------

bool FlawedJob::IsValid(Cut cut) const {
  if (flaw_ != RecoverFlaw::kNextAttemptOnly) return JobRecovery::IsValid(cut);
  if (cut == Cut()) return true;
  bool known = false;
  for (const AttemptRow& row : lineage_.rows()) {
    known = known || row.attempt == cut.attempt;
    if (row.attempt > cut.attempt) return known && cut.step <= row.base.step;
  }
  return known;
}

bool FlawedJob::HasLeft(const Peer& peer) const {
  if (flaw_ != RecoverFlaw::kLeaveByStaleReport) {
    return JobRecovery::HasLeft(peer);
  }
  return peer.report.attempt == 0;
}

bool FlawedJob::IsExcluded(const MemberId& process) const {
  return flaw_ != RecoverFlaw::kAcceptExcluded &&
         JobRecovery::IsExcluded(process);
}

int64_t FlawedJob::NextAttempt() const {
  return flaw_ == RecoverFlaw::kReuseAttempt ? lineage_.newest() + 1
                                             : JobRecovery::NextAttempt();
}

bool FlawedJob::AllHeard() const {
  return flaw_ == RecoverFlaw::kCopiesOfAttached || JobRecovery::AllHeard();
}

std::set<MachineId> FlawedJob::UsableMachines() const {
  if (flaw_ != RecoverFlaw::kCopiesOfAttached) {
    return JobRecovery::UsableMachines();
  }
  std::set<MachineId> machines;
  for (const MachineId machine : JobRecovery::UsableMachines()) {
    for (const auto& [worker, peer] : peers_) {
      const bool is_live = peer.presence == Peer::Presence::kLive;
      if (is_live && peer.machine == machine) machines.insert(machine);
    }
  }
  return machines;
}

Cut FlawedJob::FloorAfter(Cut floor, Cut computed) const {
  if (flaw_ == RecoverFlaw::kForgetFloor) return computed;
  const Cut after = JobRecovery::FloorAfter(floor, computed);
  return flaw_ == RecoverFlaw::kFloorIsBase ? std::max(after, base()) : after;
}

// --- Its life ----------------------------------------------------------------

RecoveryPolicy World::Policy() const {
  RecoveryPolicy policy;
  policy.layers = layers_;
  policy.copies = copies_;
  policy.leave_bound = absl::Milliseconds(400);
  policy.return_period = return_period_;
  policy.most_failures = 6;
  policy.most_losses = most_losses_;
  policy.loss_pause = absl::Milliseconds(500);
  policy.hindrance_pause = absl::Milliseconds(500);
  return policy;
}

void World::StartCoordinator() {
  Start(coordinator_, coordinator_.incarnation() + 1);
  const auto term = static_cast<int64_t>(coordinator_.incarnation());
  counter_.last = {term, 0};
  links_.clear();
  draining_.clear();
  excluded_.clear();  // not stored: whoever has left may come back
  job_ = MakeJob();
  Trace("coordinator starts, term ", term);
  if (rows_.empty()) {
    BeginJob();
  } else {
    RestoreJob();
  }
  Tick();
}

std::unique_ptr<JobRecovery> World::MakeJob() {
  return std::make_unique<FlawedJob>(
      options_.flaw, Policy(), counter_,
      [this](const std::vector<RunCandidate>& all) { return Plan(all); });
}

void World::BeginJob() {
  phase_ = JobPhase::kQueued;
  Call(&JobRecovery::Begin);
}

void World::RestoreJob() {
  job_->Restore(rows_, places_);
  phase_ = JobPhase::kAdopting;
  for (const int64_t index : known_) {
    job_->OnKnown({index + 1}, MachineOf(index), NameOf(index));
    links_[index].last_heard_us = now_us();
  }
  if (checkpoint_ != Cut()) job_->OnCheckpoints({checkpoint_});
  if (records_) job_->OnRecorded(recorded_);
}

void World::CrashCoordinator(bool roll_back) {
  Trace(roll_back ? "coordinator crashes and loses a row"
                  : "coordinator crashes");
  job_.reset();
  End(coordinator_);
  if (roll_back && rows_.size() > 1) {
    rows_.pop_back();
    places_ = places_before_;
    safe_ = told_floor_ = Cut();
  }
  for (Worker& worker : workers_) {
    AfterOn(worker, Between(0, 20 * kMs), [this, &worker] {
      if (job_ == nullptr) worker.stream = 0;
    });
  }
  After(Between(20, 300) * kMs, [this] {
    if (job_ != nullptr) return;
    // Nobody holds on to the stream of a process that is gone.
    for (Worker& worker : workers_) worker.stream = 0;
    StartCoordinator();
  });
}

void World::Tick() {
  AfterOn(coordinator_, 10 * kMs, [this] {
    for (auto& [index, link] : links_) {
      if (link.lost || now_us() - link.last_heard_us < kLeaseUs) continue;
      Lose(index, "it is silent");
    }
    Call(&JobRecovery::OnTick);
    CheckWatchdogs();
    MakeCheckpoint();
    if (!calm() && OneIn(12)) MaybeFault();
    if (coordinator_.alive()) Tick();
  });
}

void World::Lose(int64_t index, const std::string& why) {
  Link& link = links_[index];
  link.lost = true;
  link.lost_at_us = now_us();
  Worker& worker = workers_[index];
  AfterOn(worker, Between(200, 3 * kMs), [&worker, stream = link.stream] {
    if (worker.stream == stream && !worker.cut) worker.stream = 0;
  });
  LoseMachine(worker.machine);
  Trace("lost: ", worker, ", ", why);
  Call(&JobRecovery::OnLost, WorkerId{index + 1}, why);
}

void World::OnBroken(int64_t index, int64_t stream) {
  const auto link = links_.find(index);
  if (link == links_.end() || link->second.stream != stream ||
      link->second.lost) {
    return;
  }
  Lose(index, "nobody listens there");
}

// --- What workers say --------------------------------------------------------

void World::OnReport(int64_t index, int64_t stream, const MemberId& id,
                     JobReport report) {
  Link& link = links_[index];
  Worker& worker = workers_[index];
  if (stream < link.stream || (stream == link.stream && link.lost)) return;
  const bool attaches = stream > link.stream;
  if (attaches && !report.pieces.has_value()) return;  // its stream was lost
  link.last_heard_us = now_us();
  if (report.pieces.has_value()) link.pieces = *report.pieces;
  if (options_.flaw == RecoverFlaw::kMixAttempts && report.pieces.has_value()) {
    for (const Piece& piece : std::set<Piece>(*report.pieces)) {
      for (const AttemptRow& row : job_->lineage().rows()) {
        report.pieces->insert({{row.attempt, piece.cut.step}, piece.layer});
      }
    }
  }
  if (attaches) {
    link.stream = stream;
    link.lost = false;
    known_.insert(index);
    Call(&JobRecovery::OnAttached, id, MachineOf(index), NameOf(index));
    if (const JobOrder* const order = job_->OrderOf(id)) SendDown(id, *order);
    if (excluded_.count(id) > 0) AskToEnd(worker);
    SeeAttached(worker);
  }
  if (records_ && !job_->places().empty() && report.attempt > 0 &&
      report.attempt == job_->attempt() &&
      job_->places().back().process == id && report.step > recorded_) {
    recorded_ = report.step;
    job_->OnRecorded(recorded_);
  }
  SeeReport(worker, report);
  Call(&JobRecovery::OnReport, id, report);
  if (job_ == nullptr || !job_->floor().has_value()) return;
  if (worker.cut || worker.id() != id) return;
  AfterOn(worker, Between(200, 3 * kMs),
          [this, &worker] { worker.acknowledged = Now(); });
}

void World::CheckWatchdogs() {
  if (now_us() % (100 * kMs) >= 10 * kMs) return;
  for (Worker& worker : workers_) {
    const bool is_hung =
        worker.alive() && worker.compute.frozen() &&
        now_us() - worker.compute.frozen_since_us() > 200 * kMs;
    if (!is_hung || links_[worker.index].lost) continue;
    Call(&JobRecovery::OnStuck, worker.id(), "it finishes no instruction");
  }
  for (const world::CutLink& link : network_.cuts()) {
    if (link.from > link.to || now_us() - link.since_us < 200 * kMs) continue;
    const MemberId first = workers_[link.from].id();
    const MemberId second = workers_[link.to].id();
    const std::set<MemberId> members = MembersOf(job_->places());
    if (members.count(first) == 0 || members.count(second) == 0) continue;
    Call(&JobRecovery::OnStuck, first, "its link to a neighbour is broken");
  }
}

// --- What it does ------------------------------------------------------------

void World::Carry(const RecoveryActions& actions) {
  for (const RecoveryAction& action : actions) {
    if (const auto* store = std::get_if<StoreAttempt>(&action)) {
      CheckRow(*store);
      Store(*store);
    } else if (const auto* send = std::get_if<SendOrder>(&action)) {
      CheckOrder(send->to, send->order);
      SendDown(send->to, send->order);
    } else if (const auto* exclude = std::get_if<ExcludeProcess>(&action)) {
      CheckExclusion(exclude->process);
      excluded_.insert(exclude->process);
      Worker& worker = Of(exclude->process);
      LoseMachine(worker.machine);
      AskToEnd(worker);
    } else if (const auto* row = std::get_if<JobTransition>(&action)) {
      phase_ = row->to;
      if (phase_ == JobPhase::kLeaving) leaving_since_us_ = now_us();
      SeeTransition(*row);
      Trace(JobPhaseName(row->from), " -> ", JobPhaseName(row->to), ": ",
            JobCauseName(row->cause));
      const bool is_short = row->to == JobPhase::kFinishing;
      if (!calm() && OneIn(is_short ? 1 : 4)) {
        After(Between(0, (is_short ? 3 : 15) * kMs), [this] { MaybeFault(); });
      }
    } else {
      const auto& event = std::get<RecoveryEvent>(action);
      Trace("event ", event.kind, ": ", event.text);
    }
  }
}

void World::SeeTransition(const JobTransition& row) {
  const auto* const found =
      absl::c_find_if(kJobTransitions, [&row](const auto& each) {
        return each.from == row.from && each.cause == row.cause;
      });
  Hit(Table::kTransitions, found - std::begin(kJobTransitions), 0);
}

// Asks the process to end; its supervisor starts another one.
void World::AskToEnd(Worker& worker) {
  AfterOn(worker, Between(1, 20) * kMs, [this, &worker] {
    if (!worker.cut) Kill(worker, true);
  });
}

void World::Store(const StoreAttempt& store) {
  const bool fails = store_.fails(*this);
  const bool keeps = !fails || OneIn(2);
  const int64_t write_us = store_.WriteTime(*this);
  const auto durable = [this, store] {
    // It was kept before, though it failed.
    if (!rows_.empty() && rows_.back() == store.row) return;
    places_before_ = places_;
    std::erase_if(rows_, [&](const AttemptRow& row) {
      return row.attempt >= store.row.attempt;
    });
    rows_.push_back(store.row);
    places_ = store.places;
    recorded_ = std::min(recorded_, store.row.base.step);
    ++result_.attempts;
    if (!IsValid(safe_)) {
      safe_ = Cut();
      lost_machines_.clear();
    }
    if (!IsValid(told_floor_)) told_floor_ = Cut();
  };
  const auto answer = [this, attempt = store.row.attempt] {
    Call(&JobRecovery::OnStored, attempt);
  };
  const auto again = [this, store] { Store(store); };
  if (options_.flaw == RecoverFlaw::kAnnounceFirst) {
    AfterOn(coordinator_, 0, answer);
    return AfterOn(coordinator_, write_us, durable);
  }
  // A crash may come before it is on the disk, or before anybody knows.
  AfterOn(coordinator_, write_us, [=, this] {
    if (keeps) durable();
    if (fails) return AfterOn(coordinator_, 50 * kMs, again);
    AfterOn(coordinator_, Between(0, 2 * kMs), answer);
  });
}

void World::SendDown(const MemberId& to, const JobOrder& order) {
  Worker& worker = Of(to);
  const Link& link = links_[worker.index];
  const int64_t stream = link.stream;
  if (worker.id() != to || worker.cut || link.lost) return;
  std::set<Cut> listed;
  if (options_.flaw == RecoverFlaw::kKeepList) {
    listed = ListedCuts();
    listed.insert(order.keep.floor.value_or(Cut()));
  }
  AfterOn(worker, worker.down.NextDelay(*this),
          [this, &worker, order, stream, listed] {
            if (worker.stream != stream || worker.cut) return;
            worker.listed = listed;
            OnOrder(worker, order);
          });
}

// The cuts that are complete as far as the coordinator has heard.
std::set<Cut> World::ListedCuts() const {
  std::map<Cut, std::set<int>> layers;
  for (const auto& [index, link] : links_) {
    if (link.lost) continue;
    for (const Piece& piece : link.pieces) {
      layers[piece.cut].insert(piece.layer);
    }
  }
  std::set<Cut> cuts;
  for (const auto& [cut, held] : layers) {
    if (static_cast<int>(held.size()) == layers_) cuts.insert(cut);
  }
  return cuts;
}

// Copies what is safe now to the coordinator's disk.
void World::MakeCheckpoint() {
  if (!checkpoints_ || !OneIn(40) || !job_->floor().has_value()) return;
  const Cut cut = *job_->floor();
  if (cut <= checkpoint_ || phase_ != JobPhase::kRunning) return;
  Call(&JobRecovery::SetPin, cut, true);
  AfterOn(coordinator_, Between(5, 60) * kMs, [this, cut] {
    std::map<int, uint64_t> layers;
    for (const Worker& worker : workers_) {
      if (!worker.responds()) continue;
      for (const auto& [piece, content] : worker.pieces) {
        if (piece.cut == cut) layers[piece.layer] = content;
      }
    }
    if (static_cast<int>(layers.size()) == layers_ && IsValid(cut)) {
      checkpoint_ = cut;
      checkpoint_layers_ = std::move(layers);
      job_->OnCheckpoints({cut});
    }
    Call(&JobRecovery::SetPin, cut, false);
  });
}

// Contiguous stages on those who are fit; with replicas two or three stages of
// one to three workers, as far as there are so many.
absl::StatusOr<std::vector<RunPlace>> World::Plan(
    const std::vector<RunCandidate>& candidates) const {
  std::vector<MemberId> fit;
  for (const RunCandidate& each : candidates) {
    if (each.unfit.empty()) fit.push_back(each.process);
  }
  const int64_t count = static_cast<int64_t>(fit.size());
  if (count < needed_workers_) {
    return absl::UnavailableError(absl::StrCat(count, " workers are fit, and ",
                                               needed_workers_, " are needed"));
  }
  std::rotate(fit.begin(), fit.begin() + rotation_ % count, fit.end());
  // Some stay idle, and some hold two stages.
  const int64_t used = std::max(needed_workers_, count - idle_workers_);
  const int64_t stages = replicas_.empty()
                             ? std::min<int64_t>(layers_, used + two_stages_)
                             : std::min<int64_t>(std::ssize(replicas_), used);
  int64_t spare = used - stages;
  int64_t next = 0;
  std::vector<RunPlace> places;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const LayerRange layers{static_cast<int>(stage * layers_ / stages),
                            static_cast<int>((stage + 1) * layers_ / stages)};
    int64_t more = 0;
    if (!replicas_.empty()) more = std::min(replicas_[stage] - 1, spare);
    spare -= more;
    for (int64_t i = 0; i <= more; ++i) {
      places.push_back({layers, fit[next++ % used]});
    }
  }
  return places;
}

}  // namespace paceline::recover_world

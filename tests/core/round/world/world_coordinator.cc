// The coordinator's part: who is lost, who joins, what its store has.
#include <utility>

#include "core/cluster/eviction.h"
#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {

Process& World::AddProcess(WorkerId worker) {
  Process& process = processes_.emplace_back();
  process.id = {worker, {processes_.size()}};
  Start(process, processes_.size());
  process.heard_us = now_us();
  BeginLife(process, 0, 0);
  AfterOn(process, Between(1, kPace.tick_us),
          [this, &process] { Tick(process); });
  AfterOn(process, Between(1, kPace.heartbeat_us / 2),
          [this, &process] { Heartbeat(process); });
  return process;
}

void World::MakeKeeper(std::optional<View> stored, int64_t term) {
  keeper_ = std::make_unique<ViewKeeper>(term, std::move(stored));
  reports_.clear();
  to_store_.clear();
  for (int worker = 0; worker < kMostWorkers; ++worker) {
    // Machines of unlike speed.
    keeper_->SetShare({worker}, 1 + (worker * 7 + members_) % 3);
  }
}

void World::BeginAttempt(const std::vector<Process*>& processes, int64_t step,
                         uint64_t state) {
  states_[{attempt_, step}] = state;
  disk_.reset();
  MakeKeeper(std::nullopt, term_);
  std::vector<MemberId> members;
  for (Process* const process : processes) {
    BeginLife(*process, step, state);
    members.push_back(process->id);
  }
  CallKeeper(&ViewKeeper::Begin, members, step);
}

void World::BeginLife(Process& process, int64_t step, uint64_t state) {
  static_cast<Life&>(process) = Life();
  process.attempt = attempt_;
  process.serving.resize(round_.shards);
  process.truth = state;
  process.heard.resize(kMostWorkers);
  process.kept.resize(round_.shards * kMostWorkers);
  process.member = MakeMember(process, step, state);
  if (options_.flaw != RoundFlaw::kKeepPartsOverAttempts) {
    process.cached_parts.clear();
  }
}

// --- Views, and the store ---------------------------------------------------

void World::CarryViews(ViewActions& actions) {
  bool lost = false;
  for (ViewAction& action : actions) {
    if (auto* const store = std::get_if<StoreView>(&action)) {
      ++seen_views_;
      if (options_.flaw == RoundFlaw::kSendViewBeforeItIsDurable) {
        for (const ViewMember& member : store->view.members) {
          SendViewTo(member.id, store->view);
        }
      }
      to_store_.push_back(std::move(store->view));
      if (to_store_.size() == 1) WriteNextView();
    } else if (auto* const send = std::get_if<SendView>(&action)) {
      SendViewTo(send->to, send->view);
    } else {
      lost = true;
    }
  }
  if (lost) Restore(false);
}

// One write at a time, as they were decided.
void World::WriteNextView() {
  // A crash before the write has ended loses it.
  AfterOn(coordinator_, store_.WriteTime(*this), [this, attempt = attempt_] {
    if (attempt == attempt_ && !to_store_.empty()) OnViewStored();
  });
}

void World::OnViewStored() {
  if (store_.fails(*this)) return WriteNextView();
  disk_ = std::move(to_store_.front());
  to_store_.pop_front();
  if (!to_store_.empty()) WriteNextView();
  CallKeeper(&ViewKeeper::OnStored, disk_->id);
}

void World::SendViewTo(const MemberId& to, const View& view) {
  // The flaw's harm is to be found without this, by what comes of it.
  if (options_.flaw != RoundFlaw::kSendViewBeforeItIsDurable &&
      (!disk_.has_value() || disk_->id < view.id)) {
    Fail("view ", view.id, " is sent before it is durable");
  }
  Process* const process = Find(to);
  if (process == nullptr || network_.Loses(/*is_request=*/false)) return;
  AfterOn(*process, network_.Delay(),
          [this, process, attempt = attempt_, view] {
            if (attempt == process->attempt) OnViewArrives(*process, view);
          });
}

void World::OnCoordinatorBack() {
  Start(coordinator_, coordinator_.incarnation() + 1);
  Trace("coordinator is back");
  if (options_.flaw != RoundFlaw::kSendViewBeforeItIsDurable) ++term_;
  if (!disk_.has_value()) return Restore(false);
  MakeKeeper(disk_, term_);
  // All that attach again have the lease for it.
  for (Process& process : processes_) process.heard_us = now_us();
}

// --- Members ----------------------------------------------------------------

void World::Lose(const MemberId& member, const char* why) {
  Trace("coordinator: ", member, " is out: ", why);
  reports_.erase(member);
  HealCutsOf(member.worker);
  CallKeeper(&ViewKeeper::OnLost, member);
}

bool World::HasCutForGood() const {
  const auto& cuts = network_.cuts();
  return std::any_of(cuts.begin(), cuts.end(),
                     [](const auto& cut) { return cut.is_for_good(); });
}

void World::HealCutsOf(WorkerId worker) {
  network_.Heal([worker](const world::CutLink& cut) {
    return cut.is_for_good() &&
           (cut.from == worker.value || cut.to == worker.value);
  });
}

// As another process of the same worker.
void World::Restart(Process& process, const char* why) {
  Trace(process, " ", why, ", comes back");
  End(process);
  AddProcess(process.id.worker);
}

void World::Heartbeat(Process& process) {
  AfterOn(process, kPace.heartbeat_us,
          [this, &process] { Heartbeat(process); });
  if (!coordinator_.alive() || now_us() < process.cut_until_us ||
      network_.Loses(/*is_request=*/true)) {
    return;
  }
  process.heard_us = now_us();
  OnHeartbeat(process);
}

void World::OnHeartbeat(Process& process) {
  // It is told of the new attempt; its old life ends, and it joins.
  if (process.attempt != attempt_) return Restart(process, "was left behind");
  RoundMember& member = *process.member;
  const std::optional<View>& view = keeper_->view();
  if (keeper_->IsExcluded(process.id) ||
      (member.view().has_value() && !Contains(*view, process.id))) {
    // Some see the view that goes on without them.
    if (process.told_out < 2 && disk_.has_value() &&
        !Contains(*disk_, process.id) && Chance(0.5)) {
      ++process.told_out;
      return SendViewTo(process.id, *disk_);
    }
    return Restart(process, "was taken out");
  }
  const int64_t attempt = attempt_;
  CallKeeper(&ViewKeeper::OnReport, process.id, member.next(),
             member.view().value_or(View()).id, member.has_taken_part());
  if (attempt != attempt_ || !is_led()) return;
  if (!Contains(*view, process.id)) return OnJoiner(process);
  TakeReport(process);
}

void World::OnJoiner(Process& process) {
  // Its earlier process is gone, whatever else is known.
  const int64_t attempt = attempt_;
  const View present = *keeper_->view();
  for (const ViewMember& each : present.members) {
    if (each.id.worker == process.id.worker) {
      Lose(each.id, "runs as another process now");
    }
  }
  if (attempt != attempt_ || !is_led()) return;
  // Nobody takes a joiner out that reaches no member.
  if (calm()) HealCutsOf(process.id.worker);
  const View& view = *keeper_->view();
  if (process.member->state_hash() == 0) {
    if (view.members.empty()) return;
    const MemberId donor = Pick(view.members).id;
    return Call(process, &RoundMember::Join, donor);
  }
  CallKeeper(&ViewKeeper::OnListenerLevel, process.id, process.member->next());
}

void World::TakeReport(Process& process) {
  MemberReport report;
  report.view = process.member->view().value_or(View()).id;
  report.next = process.member->next();
  for (const ViewMember& each : keeper_->view()->members) {
    PeerReport peer;
    peer.peer = each.id;
    const world::CutLink* const cut = FindCut(process, each.id.worker);
    if (cut != nullptr) {
      peer.broken = absl::Microseconds(now_us() - cut->since_us + 1);
    }
    for (const auto& [member, since_us] : process.owing) {
      if (member != each.id) continue;
      peer.owing = absl::Microseconds(now_us() - since_us + kPace.lease_us);
    }
    if (peer.broken > absl::ZeroDuration() ||
        peer.owing > absl::ZeroDuration()) {
      report.peers.push_back(peer);
    }
  }
  AddAwaited(process.member->Awaited(), report.peers);
  if (process.mismatch.has_value()) {
    report.mismatch_step = process.mismatch->step;
    report.mismatch = process.mismatch->state_hashes;
  }
  if (report.peers.empty()) {
    reports_.erase(process.id);
  } else {
    reports_[process.id] = report;
  }
  if (!report.mismatch.empty()) TakeMismatch(report);
}

void World::TakeMismatch(const MemberReport& report) {
  // Its view is over.
  if (report.view != keeper_->view()->id) return;
  const MismatchVerdict verdict =
      DecideMismatch(*keeper_->view(), report.mismatch);
  if (verdict.torn) {
    Trace("coordinator: no state is believed");
    return Restore(false);
  }
  const int64_t attempt = attempt_;
  for (const MemberId& member : verdict.minority) {
    if (attempt == attempt_) Lose(member, "its state is not the others'");
  }
}

void World::EvictSilent() {
  if (!TakesOut() || reports_.empty()) return;
  const std::optional<Eviction> eviction = DecideEviction(
      *keeper_->view(), reports_, absl::Microseconds(kPace.lease_us));
  if (!eviction.has_value()) return;
  // One that says nothing at all will be lost soon, or was only slow.
  const Process& accused = *Find(eviction->member);
  if (now_us() - accused.heard_us >= kPace.lease_us / 2) return;
  // Long after all has healed nobody owes anybody anything for a lease.
  if (!HasCutForGood() && calm_us() > 5 * kPace.lease_us) {
    Fail(eviction->member, " ", eviction->why,
         ", though nothing is wrong any more");
  }
  Lose(eviction->member, eviction->why.c_str());
}

void World::OnLease() {
  if (!coordinator_.alive()) return;
  // Nobody was there to restore it to.
  if (keeper_->lost()) Restore(false);
  if (!is_led()) return;
  const int64_t attempt = attempt_;
  const View view = *keeper_->view();
  for (const ViewMember& each : view.members) {
    if (now_us() - Find(each.id)->heard_us <= kPace.lease_us) continue;
    Lose(each.id, "silent for a lease");
    if (attempt != attempt_) return;
  }
  if (is_led()) EvictSilent();
}

// A new attempt from a snapshot, with all that live and are reached.
void World::Restore(bool older) {
  std::vector<Process*> alive;
  std::vector<Process*> reached;
  for (Process& process : processes_) {
    if (!process.alive()) continue;
    alive.push_back(&process);
    if (!process.frozen() && now_us() >= process.cut_until_us) {
      reached.push_back(&process);
    }
  }
  // Those who are not stay in the attempt that was.
  if (!reached.empty()) alive = reached;
  // A snapshot every three steps.
  std::vector<std::pair<int64_t, uint64_t>> snapshots;
  for (const auto& [id, state] : states_) {
    if (id.first == attempt_ && id.second % 3 == 0) {
      snapshots.emplace_back(id.second, state);
    }
  }
  if (alive.empty()) return;
  if (older && snapshots.size() > 1) snapshots.pop_back();
  ++attempt_;
  const auto [step, state] = snapshots.back();
  Trace("coordinator: attempt ", attempt_, " from step ", step);
  BeginAttempt(alive, step, state);
}

}  // namespace paceline::round_world

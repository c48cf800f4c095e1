// Faults: each strikes in some phase of a round.
#include <algorithm>

#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {

Process* World::PickAlive() {
  std::vector<Process*> alive;
  for (Process& process : processes_) {
    if (process.alive()) alive.push_back(&process);
  }
  return alive.empty() ? nullptr : Pick(alive);
}

RoundPhase World::PhaseOf(Process& process) {
  const RoundMember& member = *process.member;
  if (member.phase() == RoundMember::Phase::kListening) {
    return RoundPhase::kListening;
  }
  if (member.phase() == RoundMember::Phase::kLevelling) {
    return RoundPhase::kLevelling;
  }
  const View& view = *member.view();
  if (!MembersAt(view, member.next()).empty() &&
      ServerOf(view, round_.mode, member.next(), 0) == process.id) {
    const Serving& serving = ServingOf(process, 0);
    if (serving.state != ServerState::kOpen &&
        serving.state != ServerState::kClosed) {
      return serving.held_elsewhere ? RoundPhase::kCommitting
                                    : RoundPhase::kSpreading;
    }
    return serving.spoken == 0 && member.needs_part() ? RoundPhase::kComputing
                                                      : RoundPhase::kGathering;
  }
  if (member.held().has_value()) return RoundPhase::kHolding;
  return member.needs_part() ? RoundPhase::kComputing : RoundPhase::kWaiting;
}

void World::Kill(Process& process, bool comes_back) {
  End(process);
  process.dies_committing = false;
  // A broken stream is seen at once, or not at all.
  if (Chance(0.7)) {
    After(Between(100, kPace.lease_us / 2),
          [this, id = process.id, attempt = attempt_] {
            if (is_led() && attempt == attempt_) Lose(id, "its stream broke");
          });
  }
  if (comes_back) AddProcess(process.id.worker);
}

// Most of those that run go with it, in the middle of whatever they do; who is
// paused or cut off hangs on another strip, and finds itself alone.
void World::CutPower() {
  const size_t processes = processes_.size();
  for (size_t i = 0; i < processes; ++i) {
    Process& process = processes_[i];
    const bool elsewhere =
        process.frozen() || now_us() < process.cut_until_us || Chance(0.2);
    if (!process.alive() || process.dies_committing || elsewhere) continue;
    Kill(process, Chance(0.5));
  }
}

bool World::StrikeProcess(Fault fault, Process& process) {
  switch (fault) {
    case Fault::kKill: {
      const RoundPhase phase = PhaseOf(process);
      if ((phase == RoundPhase::kSpreading ||
           phase == RoundPhase::kCommitting) &&
          Chance(0.5)) {
        process.dies_committing = true;
      } else {
        Kill(process, Chance(0.5));
      }
      if (SharesStrip()) CutPower();
      return true;
    }
    case Fault::kRestart:
      Kill(process, true);
      return true;
    case Fault::kJoin:
      if (workers_ >= members_ + kMostJoined) return false;
      AddProcess({workers_++});
      return true;
    case Fault::kPause:
      FreezeFor(process, Between(1'000, 3 * kPace.lease_us));
      return true;
    case Fault::kPartition:
      process.cut_until_us = now_us() + Between(1'000, 3 * kPace.lease_us);
      return true;
    case Fault::kCutLink:
      return CutLink(process);
    case Fault::kCorrupt:
      if (process.member->state_hash() == 0) return false;
      corrupted_ = true;
      process.taint = MixSeed({process.taint, random().Next()});
      return true;
    default:
      return false;
  }
}

// Both ways, or only one: then its other end sees nothing.
bool World::CutLink(const Process& process) {
  std::vector<int64_t> others;
  for (const Process& other : processes_) {
    if (other.alive() && other.id.worker != process.id.worker) {
      others.push_back(other.id.worker.value);
    }
  }
  if (others.empty()) return false;
  const int64_t self = process.id.worker.value;
  const int64_t other = Pick(others);
  int64_t until_us = now_us() + Between(5'000, 4 * kPace.lease_us);
  // Those that do not heal: only who is taken out gets another cable.
  if (TakesOut() && IsOneIn(6, /*salt=*/2)) until_us = world::CutLink::kForGood;
  network_.Cut(self, other, until_us);
  if (Chance(0.7)) network_.Cut(other, self, until_us);
  return true;
}

bool World::StrikeCoordinator(Fault fault) {
  if (!coordinator_.alive()) return false;
  switch (fault) {
    case Fault::kCoordinatorCrash:
      End(coordinator_);
      After(Between(1'000, 2 * kPace.lease_us),
            [this] { OnCoordinatorBack(); });
      return true;
    case Fault::kSlowStore:
      store_.slow_until_us = now_us() + Between(20'000, 3 * kPace.lease_us);
      return true;
    case Fault::kFailingStore:
      store_.fails_until_us = now_us() + Between(20'000, 2 * kPace.lease_us);
      return true;
    case Fault::kRestore:
      Restore(Chance(0.3));
      return true;
    default:
      return false;
  }
}

// By a job's own means.
bool World::StrikePart(Fault fault, Process& process) {
  if (process.member->phase() == RoundMember::Phase::kListening) return false;
  FaultSpec spec;
  spec.worker = "w";
  spec.step = process.member->next();
  // It may be half through the first.
  spec.steps = static_cast<int>(2 + Below(3));
  switch (fault) {
    case Fault::kSlowPart:
      spec.kind = "delay";
      spec.seconds = static_cast<double>(Between(10'000, 80'000)) / 1e6;
      break;
    case Fault::kSpoiltPart:
      spec.kind = Chance(0.5) ? "nan" : "bit-flip";
      break;
    case Fault::kLyingPart: {
      constexpr const char* kLies[] = {"sign-flip", "label-flip", "gaussian"};
      spec.kind = kLies[Below(3)];
      break;
    }
    case Fault::kRepeatedPart:
      spec.kind = "duplicate";
      break;
    default:
      return false;
  }
  process.fault_specs.push_back(spec);
  process.plan = FaultPlan(process.fault_specs, spec.worker, true);
  return true;
}

bool World::StrikeNetwork(Fault fault) {
  const auto change = [this]() -> world::Conditions& {
    return network_.Change(Between(5'000, kPace.lease_us));
  };
  switch (fault) {
    case Fault::kLoseRequests:
      change().request_loss = 0.05 + 0.3 * random().Unit();
      return true;
    case Fault::kLoseReplies:
      change().reply_loss = 0.05 + 0.3 * random().Unit();
      return true;
    case Fault::kDuplicate:
      change().duplicate = 0.5;
      return true;
    case Fault::kDelay:
      change().delay_us = Between(5'000, 30'000);
      return true;
    case Fault::kReorder:
      change().spread_us = 60'000;
      return true;
    default:
      return false;
  }
}

bool World::Inject() {
  Process* const picked = PickAlive();
  if (picked == nullptr) return false;
  Process& process = *picked;
  // Those that change who is a member come more often than any other.
  const auto fault =
      static_cast<Fault>(Chance(SharesStrip() ? 0.8 : 0.4)
                             ? Below(static_cast<int>(Fault::kPause) + 1)
                             : Below(kFaults));
  const RoundPhase phase = PhaseOf(process);
  Trace("fault: ", FaultName(fault), " ", process, " while ",
        RoundPhaseName(phase));
  const bool struck = StrikeCoordinator(fault) || StrikeNetwork(fault) ||
                      StrikeProcess(fault, process) ||
                      StrikePart(fault, process);
  if (!struck) return false;
  Hit(Table::kFaults, fault, phase);
  CountFault();
  return true;
}

void World::OnFault() {
  if (!MayFault()) return Calm();
  if (PickAlive() == nullptr) {
    for (int worker = 0; worker < members_; ++worker) AddProcess({worker});
  }
  int64_t next_us = 1'000;
  // Some faults come in the middle of what another one led to.
  if (Inject()) {
    next_us = Chance(0.4) ? Between(500, 8'000) : Between(2'000, 90'000);
  }
  After(next_us, [this] { OnFault(); });
}

// Everything heals, and who is gone comes back: fewer than min_parts would wait
// for ever.
void World::Calm() {
  network_.EndTrouble();
  network_.Heal([](const world::CutLink& cut) { return !cut.is_for_good(); });
  store_.Heal();
  std::vector<bool> there(static_cast<size_t>(workers_), false);
  for (Process& process : processes_) {
    if (!process.alive()) continue;
    if (process.dies_committing) {  // it has not come to it
      Kill(process, false);
      continue;
    }
    Thaw(process);
    process.cut_until_us = now_us();
    process.fault_specs.clear();
    process.plan = FaultPlan();
    there[static_cast<size_t>(process.id.worker.value)] = true;
    if (process.attempt != attempt_) continue;
    calm_rounds_from_ = std::max(calm_rounds_from_, process.member->next());
  }
  for (int worker = 0; worker < workers_; ++worker) {
    if (!there[static_cast<size_t>(worker)]) AddProcess({worker});
  }
  BeginCalm();
}

}  // namespace paceline::round_world

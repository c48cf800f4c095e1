// Faults, and the calm after them.
#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {

void World::MaybeFault() {
  if (!MayFault() || !coordinator_.responds()) return;
  const auto fault = static_cast<Fault>(Below(kFaults));
  Strike(fault, Pick(workers_));
}

void World::Strike(Fault fault, Worker& worker) {
  const JobPhase phase = phase_;
  const WorkPhase work = worker.alive() ? worker.phase : WorkPhase::kIdle;
  if (!StrikeCoordinator(fault) && !StrikeWorker(fault, worker)) return;
  Trace("fault ", FaultName(fault), " (", worker, ")");
  CountFault();
  Hit(Table::kFaults, fault, phase);
  Hit(Table::kWork, fault, work);
}

void World::Kill(Worker& worker, bool come_back) {
  if (!worker.alive()) return;
  LoseMachine(worker.machine);
  EndProcess(worker);
  worker.pieces.clear();
  worker.layers.clear();
  worker.settled = !settles_ || OneIn(2);
  if (!come_back) return;
  After(Between(5, 150) * kMs, [this, &worker] {
    if (!worker.alive()) StartProcess(worker);
  });
}

// From the coordinator; a switch may take all others instead.
bool World::Partition(Worker& worker) {
  if (worker.cut) return false;
  const bool all_others = OneIn(4);
  const int64_t back_us = Between(20, 1500) * kMs;
  for (Worker& each : workers_) {
    if (all_others == (&each == &worker) || each.cut) continue;
    each.cut = true;
    LoseMachine(each.machine);
    After(back_us + Between(0, 20 * kMs), [this, &each] { HealStream(each); });
  }
  return true;
}

// Or takes it back.
bool World::Drain(Worker& worker) {
  if (links_[worker.index].lost) return false;
  const bool drains = draining_.insert(worker.index).second;
  if (!drains) draining_.erase(worker.index);
  safe_ = Cut();
  SetDraining(worker.index, drains);
  return true;
}

void World::SetDraining(int64_t index, bool drains) {
  Call(&JobRecovery::SetDraining, WorkerId{index + 1}, drains);
}

// Whether it could be done.
bool World::StrikeWorker(Fault fault, Worker& worker) {
  if (fault == Fault::kRestart && !worker.alive()) {
    StartProcess(worker);
    return true;
  }
  if (!worker.responds()) return false;
  // A row that the store loses must be seen by somebody who lives on.
  const bool may_vanish = !may_roll_back_;
  switch (fault) {
    case Fault::kKill:
    case Fault::kRestart:
      Kill(worker, fault == Fault::kRestart);
      return true;
    case Fault::kKillMachine:
      for (Worker& each : workers_) {
        if (each.machine == worker.machine) Kill(each, false);
      }
      return true;
    case Fault::kFreeze:
      if (!may_vanish) return false;
      FreezeFor(worker, Between(10, 900) * kMs);
      LoseMachine(worker.machine);
      return true;
    case Fault::kHang:
      if (worker.compute.frozen()) return false;
      Freeze(worker.compute);
      LoseMachine(worker.machine);
      return true;
    case Fault::kPartition:
      return may_vanish && Partition(worker);
    case Fault::kCutLink: {
      Worker& other = Pick(workers_);
      if (&other == &worker) return false;
      if (IsLinked(worker, other)) {
        network_.Cut(worker.index, other.index, world::CutLink::kForGood);
        network_.Cut(other.index, worker.index, world::CutLink::kForGood);
      }
      LoseMachine(worker.machine);
      LoseMachine(other.machine);
      return true;
    }
    case Fault::kFail:
      if (!worker.state->GoesOn() || OneIn(2)) return false;
      failed_for_good_ = OneIn(30);
      SetPhase(worker, WorkPhase::kFailed,
               failed_for_good_ ? absl::InvalidArgumentError("no such label")
                                : absl::UnavailableError("a link broke"));
      SendReport(worker);
      return true;
    case Fault::kDrain:
      return Drain(worker);
    case Fault::kSlowReports:
      worker.up.slow_until_us = now_us() + Between(50, 500) * kMs;
      return true;
    case Fault::kSlowOrders:
      worker.down.slow_until_us = now_us() + Between(50, 500) * kMs;
      return true;
    case Fault::kRefuse:
      worker.refuses = true;
      worker.pieces_said = false;
      safe_ = Cut();  // fewer copies are promised from now on
      return true;
    default:
      return false;
  }
}

bool World::StrikeCoordinator(Fault fault) {
  switch (fault) {
    case Fault::kMove: {
      if (phase_ != JobPhase::kRunning) return false;
      ++rotation_;
      Call(&JobRecovery::OnBetterPlan, "another order of workers is faster");
      return true;
    }
    case Fault::kCrash:
      CrashCoordinator(false);
      return true;
    case Fault::kRollBack: {
      if (!may_roll_back_ || phase_ != JobPhase::kRunning) return false;
      CrashCoordinator(true);
      return true;
    }
    case Fault::kFreezeAll:
      FreezeFor(coordinator_, Between(20, 1500) * kMs);
      return true;
    case Fault::kStandstill:
      StandStill();
      return true;
    case Fault::kSlowStore:
      store_.slow_until_us = now_us() + Between(50, 600) * kMs;
      return true;
    case Fault::kFailingStore:
      store_.fails_until_us = now_us() + Between(50, 400) * kMs;
      return true;
    default:
      return false;
  }
}

void World::HealStream(Worker& worker) {
  if (!worker.cut) return;
  worker.cut = false;
  worker.stream = 0;  // it attaches again
}

// The coordinator did nothing for a while, and heard nobody: nobody was silent
// then.
void World::OnThawed(world::Process& process, int64_t stood_us) {
  if (&process != &coordinator_) return;
  leaving_since_us_ += stood_us;
  if (options_.flaw != RecoverFlaw::kStandstillCounts) {
    job_->OnStandstill(absl::Microseconds(stood_us), Now());
  }
  for (auto& [index, link] : links_) link.last_heard_us = now_us();
}

// Nobody hears anything meanwhile, so that nobody is to be lost.
void World::StandStill() {
  const int64_t duration_us = Between(20, 1500) * kMs;
  FreezeFor(coordinator_, duration_us);
  for (Worker& worker : workers_) {
    if (worker.responds()) FreezeFor(worker, duration_us);
  }
}

// Everything heals, but for workers that stay dead.
void World::Calm() {
  BeginCalm();
  Trace("calm");
  network_.Heal([](const world::CutLink&) { return true; });
  store_.Heal();
  Thaw(coordinator_);
  for (Worker& worker : workers_) {
    HealStream(worker);
    Thaw(worker);
    Thaw(worker.compute);
    worker.up.slow_until_us = worker.down.slow_until_us = 0;
    if (!worker.alive() && !worker.stays_dead) StartProcess(worker);
  }
  for (const int64_t index : std::exchange(draining_, {})) {
    if (job_ == nullptr) return;
    SetDraining(index, false);
  }
}

}  // namespace paceline::recover_world

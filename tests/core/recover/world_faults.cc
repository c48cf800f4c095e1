// Faults, and the calm after them.
#include "absl/strings/str_cat.h"
#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {

void World::MaybeFault() {
  if (calm_ || faults_left_ <= 0) return;
  Do(static_cast<Fault>(random_.Below(kFaults)));
}

void World::Do(Fault fault) {
  if (!job_.has_value() || coordinator_frozen_) return;
  DoTo(fault, workers_[random_.Below(workers_.size())]);
}

void World::DoTo(Fault fault, Worker& worker) {
  const JobPhase phase = phase_;
  const WorkPhase work = worker.alive ? worker.phase : WorkPhase::kIdle;
  const bool done = fault == Fault::kMove || fault >= Fault::kCrash
                        ? DoToCoordinator(fault) || DoToWorker(fault, worker)
                        : DoToWorker(fault, worker);
  if (!done) return;
  Trace(absl::StrCat("fault ", FaultName(fault), " (w", worker.index, ")"));
  --faults_left_;
  ++result_.faults;
  if (coverage_ == nullptr) return;
  coverage_->HitFault(fault, phase);
  coverage_->HitWork(fault, work);
}

void World::Kill(Worker& worker, bool come_back) {
  if (!worker.alive) return;
  LoseMachine(worker.machine);
  EndProcess(worker);
  worker.pieces.clear();
  worker.layers.clear();
  worker.settled = !settles_ || OneIn(2);
  if (!come_back) return;
  After(Between(5, 150) * kMs, [this, &worker] {
    if (!worker.alive) StartProcess(worker);
  });
}

void World::Thaw(Worker& worker) {
  if (!worker.frozen) return;
  worker.frozen = false;
  std::vector<Task> deferred = std::move(worker.deferred);
  worker.deferred.clear();
  for (Task& task : deferred) AfterOnProcess(worker, 0, std::move(task));
}

void World::Unhang(Worker& worker) {
  worker.hung = false;
  std::vector<Task> tasks = std::move(worker.when_unhung);
  worker.when_unhung.clear();
  for (Task& task : tasks) AfterOnProcess(worker, 0, std::move(task));
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
  RecoveryActions actions;
  job_->SetDraining({worker.index + 1}, drains, Now(), actions);
  Carry(std::move(actions));
  return true;
}

// Whether it could be done.
bool World::DoToWorker(Fault fault, Worker& worker) {
  if (fault == Fault::kRestart && !worker.alive) {
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
    case Fault::kFreeze: {
      if (!may_vanish) return false;
      worker.frozen = true;
      LoseMachine(worker.machine);
      const MemberId id = worker.id();
      After(Between(10, 900) * kMs, [this, &worker, id] {
        if (worker.id() == id) Thaw(worker);
      });
      return true;
    }
    case Fault::kHang:
      if (worker.hung) return false;
      worker.hung = true;
      worker.hung_since_us = now_us_;
      LoseMachine(worker.machine);
      return true;
    case Fault::kPartition:
      return may_vanish && Partition(worker);
    case Fault::kCutLink: {
      Worker& other = workers_[random_.Below(workers_.size())];
      if (&other == &worker) return false;
      cut_links_.emplace(std::minmax(worker.index, other.index), now_us_);
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
      worker.slow_up_until_us = now_us_ + Between(50, 500) * kMs;
      return true;
    case Fault::kSlowOrders:
      worker.slow_down_until_us = now_us_ + Between(50, 500) * kMs;
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

bool World::DoToCoordinator(Fault fault) {
  switch (fault) {
    case Fault::kMove: {
      if (phase_ != JobPhase::kRunning) return false;
      ++rotation_;
      RecoveryActions actions;
      job_->OnBetterPlan("another order of workers is faster", Now(), actions);
      Carry(std::move(actions));
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
      FreezeCoordinator();
      After(Between(20, 1500) * kMs, [this, life = life_] {
        if (life == life_) ThawCoordinator();
      });
      return true;
    case Fault::kStandstill:
      StandStill();
      return true;
    case Fault::kSlowStore:
      slow_store_until_us_ = now_us_ + Between(50, 600) * kMs;
      return true;
    case Fault::kFailingStore:
      failing_store_until_us_ = now_us_ + Between(50, 400) * kMs;
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

void World::FreezeCoordinator() {
  coordinator_frozen_ = true;
  frozen_since_us_ = now_us_;
}

// It did nothing for a while, and heard nobody: nobody was silent then.
void World::ThawCoordinator() {
  if (!coordinator_frozen_) return;
  coordinator_frozen_ = false;
  const int64_t stood_us = now_us_ - frozen_since_us_;
  leaving_since_us_ += stood_us;
  if (options_.flaw != RecoverFlaw::kStandstillCounts) {
    job_->OnStandstill(absl::Microseconds(stood_us), Now());
  }
  for (auto& [index, link] : links_) link.last_heard_us = now_us_;
  std::vector<Task> deferred = std::move(coordinator_deferred_);
  coordinator_deferred_.clear();
  for (Task& task : deferred) {
    After(0, [this, life = life_, task = std::move(task)] {
      if (life == life_) OnCoordinator(task);
    });
  }
}

// Nobody hears anything meanwhile, so that nobody is to be lost.
void World::StandStill() {
  FreezeCoordinator();
  std::vector<MemberId> stood;
  for (Worker& worker : workers_) {
    if (!worker.responds()) continue;
    worker.frozen = true;
    stood.push_back(worker.id());
  }
  After(Between(20, 1500) * kMs, [this, stood, life = life_] {
    if (life == life_) ThawCoordinator();
    for (const MemberId& id : stood) {
      if (Worker* const worker = Find(id)) Thaw(*worker);
    }
  });
}

// Everything heals, but for workers that stay dead.
void World::Calm() {
  calm_ = true;
  calm_since_us_ = now_us_;
  Trace("calm");
  cut_links_.clear();
  slow_store_until_us_ = failing_store_until_us_ = 0;
  ThawCoordinator();
  for (Worker& worker : workers_) {
    HealStream(worker);
    Thaw(worker);
    if (worker.alive) Unhang(worker);
    worker.slow_up_until_us = worker.slow_down_until_us = 0;
    if (!worker.alive && !worker.stays_dead) StartProcess(worker);
  }
  if (!job_.has_value()) return;
  RecoveryActions actions;
  for (const int64_t index : draining_) {
    job_->SetDraining({index + 1}, false, Now(), actions);
  }
  draining_.clear();
  Carry(std::move(actions));
}

}  // namespace paceline::recover_world

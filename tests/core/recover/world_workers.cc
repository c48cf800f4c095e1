// The simulation does the work of a worker's adapters: processes, steps, gate,
// pieces.
#include <algorithm>

#include "tests/core/recover/world_state.h"

namespace paceline::recover_world {

Worker* World::Find(const MemberId& id) {
  Worker& worker = Of(id);
  return worker.alive() && worker.id() == id ? &worker : nullptr;
}

// --- Processes ---------------------------------------------------------------

void World::StartProcess(Worker& worker) {
  Start(worker, ++incarnations_);
  Start(worker.compute, incarnations_);
  static_cast<Life&>(worker) = {};
  worker.state = std::make_unique<FlawedRun>(options_.flaw);
  Trace(worker, " starts");
  AfterOn(worker, Between(0, 5 * kMs), [this, &worker] { Heartbeat(worker); });
}

void World::EndProcess(Worker& worker) {
  End(worker);
  if (worker.stream == 0 || job_ == nullptr) return;
  // Its host says that nobody listens; or nothing is heard until the lease.
  if (worker.cut || OneIn(4)) return;
  AfterOn(coordinator_, Between(1, 20 * kMs),
          [this, index = worker.index, stream = worker.stream] {
            OnBroken(index, stream);
          });
}

void World::Heartbeat(Worker& worker) {
  if (worker.stream == 0) TryAttach(worker);
  SendReport(worker);
  Pull(worker);
  AfterOn(worker, kHeartbeatUs, [this, &worker] { Heartbeat(worker); });
}

void World::TryAttach(Worker& worker) {
  if (worker.cut || job_ == nullptr) return;
  worker.stream = ++streams_;
  worker.pieces_said = false;
  worker.up.last_us = worker.down.last_us = now_us();
}

// Everything that a stream carries comes in order.
void World::SendReport(Worker& worker) {
  SeePhase(worker);
  if (worker.stream != 0 && !worker.cut) Say(worker, ReportOf(worker));
}

JobReport World::ReportOf(Worker& worker) {
  JobReport report;
  report.echo = worker.state->echo();
  report.phase = worker.phase;
  report.attempt = worker.ordered_attempt();
  if (report.attempt > 0) {
    report.step =
        worker.attempt == report.attempt ? worker.step : worker.run->base.step;
  }
  report.error = worker.error;
  report.kept = worker.kept;
  report.floor = worker.keep.floor.value_or(Cut());
  report.follows = !worker.order.follow.empty();
  report.settled = worker.settled;
  report.refuses_pieces = worker.refuses;
  if (!worker.pieces_said) {
    report.pieces.emplace();
    for (const auto& [piece, content] : worker.pieces) {
      report.pieces->insert(piece);
    }
    worker.pieces_said = true;
  }
  return report;
}

void World::Say(Worker& worker, JobReport report) {
  AfterOn(coordinator_, worker.up.NextDelay(*this),
          [this, &worker, stream = worker.stream, id = worker.id(),
           report = std::move(report)]() mutable {
            if (worker.cut) return;
            OnReport(worker.index, stream, id, std::move(report));
          });
}

// --- Orders ------------------------------------------------------------------

void World::OnOrder(Worker& worker, const JobOrder& order) {
  if (order.settle && !worker.settled) {
    worker.settled = true;
    Trace(worker, " executes itself anew");
    LoseMachine(worker.machine);
    EndProcess(worker);
    After(Between(1, 10 * kMs), [this, &worker] {
      if (!worker.alive()) StartProcess(worker);  // its pieces are handed over
    });
    return;
  }
  const std::optional<Cut> floor = FloorAfter(worker.keep.floor, order.keep);
  worker.order = order;
  worker.keep = order.keep;
  worker.keep.floor = floor;
  std::optional<Fence> run;
  if (order.run.has_value()) run = Fence{{worker.job}, order.run->attempt, 0};
  CarryOut(worker, worker.state->OnOrder(order.number, run));
  Prune(worker);
  Pull(worker);
  AfterOn(worker, Between(0, 2 * kMs), [this, &worker] { SendReport(worker); });
}

void World::SetPhase(Worker& worker, WorkPhase phase, absl::Status error) {
  if (phase == WorkPhase::kDone) {
    for (const auto& [layer, state] : worker.layers) {
      results_[{worker.attempt, layer}] = state;
    }
  }
  worker.phase = phase;
  worker.error = std::move(error);
  SeePhase(worker);
}

void World::SeePhase(Worker& worker) {
  if (worker.phase != worker.seen_phase) {
    Hit(Table::kWorkTransitions, worker.seen_phase, worker.phase);
  }
  worker.seen_phase = worker.phase;
}

void World::CarryOut(Worker& worker, WorkStep step) {
  if (step == WorkStep::kLeave) {
    const std::vector<RunPlace>& places = worker.run->places;
    LeaveNow(worker, std::adjacent_find(places.begin(), places.end(),
                                        [](const auto& a, const auto& b) {
                                          return a.layers == b.layers;
                                        }) != places.end());
    return;
  }
  if (worker.state->run().has_value() && !worker.state->GoesOn()) return;
  FinishKept(worker);
  worker.run = worker.order.run;
  if (step != WorkStep::kBegin) return;
  if (const absl::Status is_new = worker.state->CheckNew(); !is_new.ok()) {
    SetPhase(worker, WorkPhase::kFailed, is_new);
    return;
  }
  if (OwnLayers(worker).empty()) {
    Fail(worker, " is to run without a layer");
  }
  SetPhase(worker, WorkPhase::kGathering);
  Gather(worker);
}

// Forgets a replica's state once another attempt was begun.
void World::FinishKept(Worker& worker) {
  if (!worker.kept.has_value()) return;
  if (!worker.keep.rows.empty() &&
      worker.keep.rows.back().attempt > worker.attempt) {
    worker.kept.reset();
    worker.layers.clear();
    return;
  }
  if (!worker.order.finish.has_value()) return;
  const int64_t step = *worker.order.finish;
  const bool holds =
      worker.kept->applied == step - 1 && worker.kept->held == step;
  if (worker.kept->applied != step && !holds) return;
  if (holds) ApplyToLayers(worker, step);
  Deposit(worker, {worker.attempt, step});
  worker.kept = KeptState{step, 0};
}

void World::LeaveNow(Worker& worker, bool keep_state) {
  worker.active = false;
  ++worker.run_number;
  const auto left = [this, &worker, keep_state] {
    KeepState(worker, keep_state);
    worker.run.reset();
    SetPhase(worker, WorkPhase::kIdle);
    CarryOut(worker, worker.state->OnLeft());
    SendReport(worker);
  };
  AfterOn(worker.compute, OneIn(4) ? Between(5, 60) * kMs : Between(0, 2 * kMs),
          left);
}

void World::KeepState(Worker& worker, bool keep_state) {
  if (!keep_state || worker.layers.empty()) return worker.layers.clear();
  worker.kept = KeptState{worker.step,
                          worker.computed > worker.step ? worker.computed : 0};
  if (worker.step > 0) Deposit(worker, {worker.attempt, worker.step});
}

void World::Gather(Worker& worker) {
  const int64_t attempt = worker.run->attempt;
  const auto gathered = [this, &worker, attempt] {
    if (worker.phase != WorkPhase::kGathering || !worker.state->GoesOn() ||
        worker.run->attempt != attempt) {
      return;
    }
    std::map<int, uint64_t> layers;
    if (worker.lacks_file) {
      SetPhase(worker, WorkPhase::kFailed,
               absl::NotFoundError("it lacks the data"));
    } else if (!Fetch(worker, layers)) {
      SetPhase(worker, WorkPhase::kFailed,
               absl::UnavailableError("no source left"));
    } else {
      worker.layers = std::move(layers);
      worker.attempt = attempt;
      const int64_t step = worker.run->base.step;
      worker.step = worker.computed = step;
      SetPhase(worker,
               step < last_step_ ? WorkPhase::kRunning : WorkPhase::kDone);
      if (step > 0) Deposit(worker, {attempt, step});
      if (step < last_step_) Begin(worker, step);
    }
    SendReport(worker);
  };
  AfterOn(worker.compute, Between(2, 40) * kMs, gathered);
}

// Whether there is a source for all of its layers now.
bool World::Fetch(Worker& worker, std::map<int, uint64_t>& layers) {
  const RunPlan run = *worker.run;
  for (const LayerRange& range : OwnLayers(worker)) {
    for (int layer = range.first; layer < range.last; ++layer) {
      const Piece piece{run.base, layer};
      if (run.base == Cut()) {
        layers[layer] = Expected(0, 0, layer);
        continue;
      }
      const auto found = FindPiece(worker, piece, run.sources[layer]);
      if (!found.has_value()) {
        Trace(worker, " finds no layer ", layer, " at ", run.base, " of ",
              run.sources[layer].size(), " sources");
        return false;
      }
      layers[layer] = *found;
      CheckRestored(worker, piece, *found);
      worker.pieces[piece] = *found;  // keeps its key
    }
  }
  worker.pieces_said = false;
  return true;
}

void World::CheckRestored(Worker& worker, const Piece& piece, uint64_t state) {
  if (state == Expected(piece.cut.attempt, piece.cut.step, piece.layer)) return;
  Fail(worker, " restores layer ", piece.layer, " at ", piece.cut,
       " with another state");
}

std::optional<uint64_t> World::FindPiece(Worker& worker, const Piece& piece,
                                         const std::vector<MemberId>& sources) {
  const auto look = [&](const Worker& holder) -> std::optional<uint64_t> {
    const auto found = holder.pieces.find(piece);
    if (found != holder.pieces.end()) return found->second;
    if (options_.flaw != RecoverFlaw::kMixAttempts) return std::nullopt;
    for (const auto& [each, content] : holder.pieces) {
      if (each.cut.step == piece.cut.step && each.layer == piece.layer) {
        return content;
      }
    }
    return std::nullopt;
  };
  if (MayReadOwn(worker, sources)) {
    if (const auto own = look(worker)) return own;
  }
  for (const MemberId& source : sources) {
    const Worker* const holder = Find(source);
    if (holder == nullptr || holder->frozen() || !IsLinked(worker, *holder)) {
      continue;
    }
    if (const auto found = look(*holder)) return found;
  }
  if (piece.cut == checkpoint_ && job_ != nullptr) {
    return checkpoint_layers_.at(piece.layer);
  }
  return std::nullopt;
}

// --- Steps -------------------------------------------------------------------

void World::Begin(Worker& worker, int64_t step) {
  if (!begun_.insert({worker.id(), worker.attempt}).second) {
    Fail(worker, " begins attempt ", worker.attempt, " twice");
  }
  if (options_.flaw == RecoverFlaw::kGateFromZero) {
    step = worker.step = worker.computed = 0;
  }
  worker.active = true;
  worker.own_mark = step;
  worker.verdicts.clear();
  worker.reported.clear();
  worker.clock.reset();
  if (worker.run->places[0].process == worker.id()) {
    worker.clock.emplace(snapshots_, step);
  }
  Trace(worker, " runs attempt ", worker.attempt, " from step ", step);
  BeginStep(worker);
}

void World::BeginStep(Worker& worker) {
  if (!worker.active || worker.phase != WorkPhase::kRunning) return;
  if (worker.clock.has_value()) {
    const int64_t floor = worker.keep.floor.value_or(Cut()).step;
    if (worker.clock->MustWait(worker.step, floor, worker.acknowledged,
                               Now())) {
      AfterOn(worker, 10 * kMs, [this, &worker, n = worker.run_number] {
        if (n == worker.run_number) BeginStep(worker);
      });
      return;
    }
    worker.mark = worker.clock->ShouldMark(worker.step + 1, floor);
    if (worker.mark) worker.clock->OnMarked(worker.step + 1);
    worker.last = worker.run->stop_after_batch;
  }
  Compute(worker);
}

void World::Compute(Worker& worker) {
  AfterOn(worker.compute, Between(2, 8) * kMs,
          [this, &worker, n = worker.run_number] {
            if (n != worker.run_number) return;
            worker.computed = worker.step + 1;
            SayComputed(worker);
          });
}

// Until the verdict is there: this message or the answer may be lost.
void World::SayComputed(Worker& worker) {
  if (!worker.active || worker.computed <= worker.step) return;
  const RunPlan& run = *worker.run;
  const MemberId to = run.places[0].process;
  Worker& first = Of(to);
  if (first.id() == to && IsLinked(worker, first)) {
    network_.Send(first, /*is_request=*/true,
                  [this, &first, from = worker.id(), attempt = run.attempt,
                   step = worker.computed] {
                    if (first.active && first.attempt == attempt) {
                      OnComputed(first, from, step);
                    }
                  });
  }
  AfterOn(worker, kRetryUs,
          [this, &worker, n = worker.run_number, step = worker.computed] {
            if (n == worker.run_number && step == worker.computed)
              SayComputed(worker);
          });
}

std::set<MemberId> World::MembersOf(const std::vector<RunPlace>& places) {
  std::set<MemberId> members;
  for (const RunPlace& place : places) members.insert(place.process);
  return members;
}

std::vector<LayerRange> World::OwnLayers(const Worker& worker) const {
  std::vector<LayerRange> own;
  for (const RunPlace& place : worker.run->places) {
    if (place.process == worker.id()) own.push_back(place.layers);
  }
  return own;
}

void World::OnComputed(Worker& first, const MemberId& from, int64_t step) {
  if (options_.flaw == RecoverFlaw::kStopClosesGate &&
      first.phase == WorkPhase::kStopped) {
    return;
  }
  const auto answer = [this, &first](const MemberId& to, int64_t of) {
    const auto verdict = first.verdicts.find(of);
    Worker& worker = Of(to);
    if (verdict == first.verdicts.end() || worker.id() != to ||
        !IsLinked(first, worker)) {
      return;
    }
    network_.Send(
        worker, /*is_request=*/false,
        [this, &worker, of, attempt = first.attempt, flags = verdict->second] {
          if (worker.active && worker.attempt == attempt) {
            OnVerdict(worker, of, flags.first, flags.second);
          }
        });
  };
  if (step <= first.step) return answer(from, step);
  if (step != first.step + 1) return;
  first.reported.insert(from);
  const std::set<MemberId> members = MembersOf(first.run->places);
  if (first.reported != members) return;
  first.reported.clear();
  first.verdicts[step] = {first.mark, first.last};
  Apply(first, step, first.mark, first.last);
  // Where it dies then, some replicas have applied the step and others hold it.
  const bool dies = !replicas_.empty() && MayFault() && OneIn(40);
  for (const MemberId& member : members) {
    if (member != first.id() && (!dies || OneIn(2))) answer(member, step);
  }
  if (dies) {
    After(0, [this, &first] { Strike(Fault::kKill, first); });
  }
}

void World::OnVerdict(Worker& worker, int64_t step, bool mark, bool last) {
  On(worker.compute, [=, this, &worker, n = worker.run_number] {
    if (n != worker.run_number || step != worker.step + 1 ||
        worker.computed != step) {
      return;
    }
    Apply(worker, step, mark, last);
  });
}

void World::Apply(Worker& worker, int64_t step, bool mark, bool last) {
  ApplyToLayers(worker, step);
  const int64_t floor = worker.keep.floor.value_or(Cut()).step;
  if (options_.flaw == RecoverFlaw::kMarkByStage) {
    mark = floor >= worker.own_mark &&
           step - worker.own_mark >= (snapshots_.every + 1) / 2;
    if (mark) worker.own_mark = step;
  }
  if (options_.flaw == RecoverFlaw::kUnequalStop) {
    last = worker.run->stop_after_batch;
  }
  const bool done = step >= last_step_;
  if (done || last) {
    SetPhase(worker, done ? WorkPhase::kDone : WorkPhase::kStopped);
  }
  if (mark || last || done) {
    Deposit(worker, {worker.attempt, step});
    AfterOn(worker, Between(0, 10 * kMs),
            [this, &worker] { SendReport(worker); });
  }
  BeginStep(worker);
}

void World::ApplyToLayers(Worker& worker, int64_t step) {
  for (auto& [layer, state] : worker.layers) {
    state = MixSeed({state, static_cast<uint64_t>(worker.attempt),
                     static_cast<uint64_t>(step)});
    if (state != Expected(worker.attempt, step, layer)) {
      Fail(worker, " has another state of layer ", layer, " after step ", step,
           " of attempt ", worker.attempt);
    }
  }
  worker.step = step;
  ++result_.steps;
  for (const Cut& cut : worker.torn) {
    const auto& [layer, state] = *worker.layers.rbegin();
    worker.pieces[{cut, layer}] = state;
    worker.pieces_said = false;
  }
  worker.torn.clear();
}

// --- Pieces ------------------------------------------------------------------

void World::Deposit(Worker& worker, Cut cut) {
  for (const auto& [layer, state] : worker.layers) {
    if (options_.flaw == RecoverFlaw::kTornDeposit && cut.step < last_step_ &&
        layer == worker.layers.rbegin()->first) {
      worker.torn.push_back(cut);
    } else {
      worker.pieces[{cut, layer}] = state;
    }
  }
  worker.pieces_said = false;
  SeePiece(cut);
  Prune(worker);
  for (Worker& other : workers_) {
    if (&other != &worker && other.responds()) Pull(other);
  }
}

// The hanging streams of what it follows.
void World::Pull(Worker& follower) {
  if (follower.refuses) return;
  for (const Follow& follow : follower.order.follow) {
    const Worker* const source = Find(follow.source);
    if (source == nullptr || source->frozen() || source->job != follower.job ||
        !IsLinked(follower, *source)) {
      continue;
    }
    for (const auto& [piece, content] : source->pieces) {
      if (piece.layer < follow.layers.first ||
          piece.layer >= follow.layers.last ||
          follower.pieces.count(piece) > 0 || MayDrop(piece, follower.keep)) {
        continue;
      }
      AfterOn(follower, Between(1, 25) * kMs,
              [this, &follower, piece = piece, content = content,
               job = follower.job] {
                if (job != follower.job || MayDrop(piece, follower.keep) ||
                    !follower.pieces.emplace(piece, content).second) {
                  return;
                }
                follower.pieces_said = false;
                SeePiece(piece.cut);
                Prune(follower);
                AfterOn(follower, Between(0, 10 * kMs),
                        [this, &follower] { SendReport(follower); });
              });
    }
  }
}

void World::Prune(Worker& worker) {
  KeepRule rule = worker.keep;
  Cut own;
  for (const auto& [piece, content] : worker.pieces) {
    if (worker.layers.count(piece.layer) > 0) own = std::max(own, piece.cut);
  }
  if (options_.flaw == RecoverFlaw::kNextAttemptOnly) rule.rows.clear();
  const size_t dropped = std::erase_if(worker.pieces, [&](const auto& each) {
    const Piece& piece = each.first;
    if (options_.flaw == RecoverFlaw::kPruneOwn && piece.cut < own) return true;
    if (options_.flaw == RecoverFlaw::kKeepList && !worker.listed.empty() &&
        worker.listed.count(piece.cut) == 0) {
      return true;
    }
    return MayDrop(piece, rule);
  });
  if (dropped > 0) {
    Trace(worker, " drops ", dropped);
  }
  if (dropped > 0) worker.pieces_said = false;
}

}  // namespace paceline::recover_world

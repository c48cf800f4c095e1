// The simulation does the work of a worker's adapters: runs, drivers, the
// compute thread, deposits.
#include <algorithm>

#include "core/base/random.h"
#include "core/cluster/eviction.h"
#include "tests/core/joint/world_state.h"

namespace paceline::joint_world {
namespace {

using recover_world::kMs;

constexpr int64_t kTickUs = 10 * kMs;
constexpr int64_t kStepsAhead = 4;
constexpr int kMostStates = 2;
constexpr size_t kMostUnapplied = 4;

uint64_t ContentOf(uint64_t state, int layer) {
  return MixSeed({state, static_cast<uint64_t>(layer)});
}

bool IsReply(const Body& body) {
  return std::holds_alternative<Commit>(body) ||
         std::holds_alternative<Committed>(body) ||
         std::holds_alternative<StateOffer>(body) ||
         std::holds_alternative<ParameterAnswer>(body);
}

}  // namespace

// --- Processes, reports, orders ----------------------------------------------

void World::EndProcess(Worker& worker) {
  MemberOf(worker) = {};
  Base::EndProcess(worker);
}

bool World::HasTakenPart(const Member& member) const {
  if (!member.is_open()) return false;
  return gossip_ ? member.gossip->is_member() && member.gossip->has_state()
                 : member.rounds->has_taken_part();
}

// A report on an earlier job is a heartbeat, and nothing else.
void World::Say(Worker& worker, JobReport report) {
  Said said{worker.id(), worker.job, ReportOfMember(worker),
            MemberOf(worker).progress};
  report.joins = !HasTakenPart(MemberOf(worker));
  if (MemberOf(worker).job != worker.job) {
    // It still leaves the run of an earlier job.
    report.attempt = report.step = 0;
    report.phase = WorkPhase::kIdle;
  }
  AfterOn(coordinator_, worker.up.NextDelay(*this),
          [this, &worker, stream = worker.stream, said = std::move(said),
           report = std::move(report)]() mutable {
            if (worker.cut) return;
            if (said.job != job_number_) {
              JobReport none;
              none.echo = report.echo;
              if (report.pieces.has_value()) none.pieces.emplace();
              report = none;
            }
            const MemberId id = said.id;
            said_ = std::move(said);
            OnReport(worker.index, stream, id, std::move(report));
            said_.reset();
          });
}

std::optional<MemberReport> World::ReportOfMember(Worker& worker) {
  Member& member = MemberOf(worker);
  if (!member.is_open()) return std::nullopt;
  MemberReport report;
  const std::optional<View>& view = ViewOf(member);
  if (view.has_value()) report.view = view->id;
  report.next = NextOf(member);
  report.has_taken_part = HasTakenPart(member);
  report.turn = member.busy ? member.turn : 0;
  for (const GroupWorker& other : member.order->workers) {
    if (other.id == worker.id()) continue;
    PeerReport peer;
    peer.peer = other.id;
    const auto* const cut = network_.FindCut(worker.index, Of(other.id).index);
    if (cut != nullptr) {
      peer.broken = absl::Microseconds(now_us() - cut->since_us + 1);
    }
    const auto owing = member.owing.find(other.id);
    if (owing != member.owing.end()) {
      peer.owing = absl::Microseconds(now_us() - owing->second +
                                      recover_world::kLeaseUs);
    }
    if (cut != nullptr || owing != member.owing.end()) {
      report.peers.push_back(peer);
    }
  }
  if (gossip_) {
    report.level = !member.gossip->is_member() && member.gossip->has_state();
    return report;
  }
  const RoundMember& rounds = *member.rounds;
  report.level = rounds.phase() == RoundMember::Phase::kListening &&
                 rounds.state_hash() != 0 &&
                 (member.group_next - rounds.next() <= kStepsAhead ||
                  member.states_taken >= kMostStates);
  report.state_step = rounds.state_steps();
  report.state_hash = rounds.state_hash();
  AddAwaited(rounds.Awaited(), report.peers);
  if (member.mismatch.has_value()) {
    report.mismatch_step = member.mismatch->step;
    report.mismatch = member.mismatch->state_hashes;
  }
  return report;
}

void World::OnGroupOrder(Worker& worker, const JobOrder& order,
                         const std::optional<GroupOrder>& group, int64_t job) {
  if (worker.job != job) {
    worker.job = job;
    worker.pieces.clear();
    worker.pieces_said = false;
    worker.keep = {};
  }
  Member& member = MemberOf(worker);
  if (group.has_value()) member.order = group;
  OnOrder(worker, order);
  // It has left this attempt: its group takes only another process.
  if (worker.phase == WorkPhase::kFailed && absl::IsAborted(worker.error)) {
    return AskToEnd(worker);
  }
  if (member.is_open() && group.has_value() && worker.state->GoesOn() &&
      worker.active) {
    OnGroup(worker, *group);
  }
}

void World::OnGroup(Worker& worker, const GroupOrder& group) {
  Member& member = MemberOf(worker);
  member.order = group;
  const std::optional<View>& present = ViewOf(member);
  if (!Contains(group.view, worker.id())) {
    if (!present.has_value()) FollowDonor(worker);
    return;
  }
  if (present.has_value() && group.view.id <= present->id) return;
  Trace(worker, " adopts view ", ViewText(group.view.id));
  member.owing.clear();
  member.mismatch.reset();
  if (gossip_) {
    Tell(worker, &GossipMember::OnView, group.view);
  } else {
    Tell(worker, &RoundMember::OnView, group.view);
  }
}

void World::FollowDonor(Worker& worker) {
  Member& member = MemberOf(worker);
  const View& view = member.order->view;
  const auto reaches = [&](const MemberId& id) {
    return Find(id) != nullptr && IsLinked(worker, Of(id));
  };
  if (Contains(view, member.donor) && reaches(member.donor)) return;
  for (const ViewMember& each : view.members) {
    if (!reaches(each.id)) continue;
    member.donor = each.id;
    if (gossip_) return Tell(worker, &GossipMember::Join, member.donor);
    return Tell(worker, &RoundMember::Join, member.donor);
  }
}

// --- A run -------------------------------------------------------------------

// The newest order stays.
void World::Renew(Member& member) {
  Member renewed;
  renewed.order.swap(member.order);
  member = std::move(renewed);
}

void World::Gather(Worker& worker) {
  Member& member = MemberOf(worker);
  Renew(member);
  member.job = worker.job;
  member.begins = Contains(member.order->view, worker.id());
  AfterOn(worker.compute, Between(2, 40) * kMs,
          [this, &worker, attempt = worker.run->attempt, job = worker.job] {
            if (worker.phase == WorkPhase::kGathering &&
                worker.state->GoesOn() && worker.job == job &&
                worker.run->attempt == attempt) {
              BeginRun(worker);
              SendReport(worker);
            }
          });
}

void World::BeginRun(Worker& worker) {
  Member& member = MemberOf(worker);
  const RunPlan run = *worker.run;
  std::map<int, uint64_t> layers;
  worker.step = 0;
  if (member.begins) {
    if (!Fetch(worker, layers)) {
      SetPhase(worker, WorkPhase::kFailed,
               absl::UnavailableError("no source left"));
      return;
    }
    worker.step = run.base.step;
    member.state = {options_.seed, 0, false};
    if (run.base != Cut()) {
      CheckUse(Word(worker), run.base, layers);
      const Origin& origin = origins_[layers.at(0)];
      member.state = {origin.state, worker.step, origin.tainted};
      See(run.base.attempt == 0 ? Moment::kFromDisk : Moment::kRestored);
    }
  }
  worker.attempt = run.attempt;
  if (!begun_.insert({worker.id(), worker.job << 32 | run.attempt}).second) {
    Fail(worker, " begins attempt ", run.attempt, " twice");
  }
  member.has_state = member.begins;
  member.state_step = worker.step;
  const uint64_t hash = member.begins ? member.state.value : 0;
  if (gossip_) {
    GossipOptions options;
    options.attempt = run.attempt;
    options.seed = options_.seed;
    options.partner_wait.ceiling = absl::Milliseconds(40);
    options.retry_period = round_.retry_period;
    member.gossip = std::make_unique<GossipMember>(options, worker.id(),
                                                   worker.step, member.begins);
  } else {
    RoundOptions options = round_;
    options.attempt = run.attempt;
    member.rounds =
        std::make_unique<RoundMember>(options, worker.id(), worker.step, hash);
  }
  worker.active = true;
  SetPhase(worker, WorkPhase::kRunning);
  Trace(worker, " runs attempt ", run.attempt, " from step ", worker.step,
        member.begins ? "" : ", joining");
  if (member.begins && run.base != Cut()) {
    DepositState(worker, worker.step, member.state);
  }
  TickMember(worker);
  OnGroup(worker, *member.order);
  Work(worker);
}

bool World::IsFollowed(const MemberId& id) const {
  return std::any_of(
      workers_.begin(), workers_.end(), [&id](const Worker& other) {
        const std::vector<Follow>& all = other.order.follow;
        return std::any_of(all.begin(), all.end(), [&id](const Follow& each) {
          return each.source == id;
        });
      });
}

bool World::MayReadOwn(const Worker& worker,
                       const std::vector<MemberId>& sources) const {
  return std::find(sources.begin(), sources.end(), worker.id()) !=
         sources.end();
}

// Two sources at once.
std::optional<uint64_t> World::FindPiece(Worker& worker, const Piece& piece,
                                         const std::vector<MemberId>& sources) {
  std::vector<MemberId> order = sources;
  if (piece.layer % 2 == 1) std::reverse(order.begin(), order.end());
  return Base::FindPiece(worker, piece, order);
}

// The run has ended by an order.
void World::KeepState(Worker& worker, bool /*keep_state*/) {
  Member& member = MemberOf(worker);
  if (member.has_state && worker.phase != WorkPhase::kFailed &&
      member.job == worker.job && member.state_step > worker.run->base.step) {
    if (member.state.tainted &&
        (accused_.count(worker.id()) == 0 || IsFollowed(worker.id()))) {
      PassOver();
    }
    DepositState(worker, member.state_step, member.state);
  }
  Renew(member);
  worker.layers.clear();
}

// --- Messages ----------------------------------------------------------------

void World::Do(Worker& worker, const SendMessage& send) {
  Transmit(worker, send.to, send.message, {});
}

void World::Transmit(Worker& from, const MemberId& to,
                     const RoundMessage& message, const State& state) {
  Worker& other = Of(to);
  if (other.id() != to || !IsLinked(from, other)) return;
  network_.Send(other, !IsReply(message.body),
                [this, &other, message, state, job = MemberOf(from).job] {
                  if (MemberOf(other).job == job) {
                    Deliver(other, message, state);
                  }
                });
}

RoundMessage World::MessageOf(const Worker& worker, Body body) {
  const Member& member = MemberOf(worker);
  RoundMessage message;
  message.attempt = worker.attempt;
  if (ViewOf(member).has_value()) message.view = ViewOf(member)->id;
  message.from = worker.id();
  message.committed_through = NextOf(member);
  if (!gossip_) message.committed_hash = member.rounds->last_hash();
  message.body = std::move(body);
  return message;
}

void World::Deliver(Worker& worker, const RoundMessage& message,
                    const State& state) {
  Member& member = MemberOf(worker);
  if (!member.is_open() || worker.phase == WorkPhase::kFailed ||
      message.attempt != worker.attempt) {
    return;
  }
  const Body& body = message.body;
  if (std::holds_alternative<StateOffer>(body)) member.incoming = state;
  if (gossip_) {
    return Tell(worker, &GossipMember::OnMessage, message,
                ParameterAnswer::Verdict::kTaken);
  }
  if (!member.rounds->view().has_value()) {
    member.group_next = std::max(member.group_next, message.committed_through);
  }
  // Its compute thread has enough results to apply.
  if ((std::holds_alternative<Spread>(body) ||
       std::holds_alternative<Committed>(body)) &&
      member.turns.size() >= kMostUnapplied) {
    return;
  }
  const int64_t before = member.rounds->next();
  Tell(worker, &RoundMember::OnMessage, message);
  if (std::holds_alternative<Committed>(body) &&
      member.rounds->next() > before) {
    Transmit(worker, message.from,
             MessageOf(worker, Want{member.rounds->next(), 0}), {});
  }
}

void World::TickMember(Worker& worker) {
  AfterOn(worker, kTickUs, [this, &worker, n = worker.run_number] {
    if (n != worker.run_number || worker.phase == WorkPhase::kFailed) return;
    Member& member = MemberOf(worker);
    TickMember(worker);
    if (!ViewOf(member).has_value()) FollowDonor(worker);
    if (!gossip_) return Tell(worker, &RoundMember::OnTick);
    for (const GroupWorker& other : member.order->workers) {
      if (Find(other.id) != nullptr) continue;
      Tell(worker, &GossipMember::OnLink, other.id, /*dead=*/true);
    }
    Tell(worker, &GossipMember::OnTick);
  });
}

void World::Do(Worker& worker, const struct Aggregate& request) {
  uint64_t hash = MixSeed({2, static_cast<uint64_t>(request.step)});
  int64_t divisor = 0;
  for (const Contributor& each : request.contributors) {
    hash = MixSeed({hash, each.member.incarnation.value});
    divisor += each.samples;
  }
  AfterOn(worker, Between(10, 1500),
          [this, &worker, request, hash, divisor, n = worker.run_number] {
            if (n != worker.run_number) return;
            Tell(worker, &RoundMember::OnAggregated, request, hash, divisor);
          });
}

void World::Do(Worker& worker, const struct Apply& apply) {
  Member& member = MemberOf(worker);
  const uint64_t hash = apply.result.hash();
  member.hashes[apply.result.step + 1] = hash;
  member.owing.clear();
  member.turns.push_back({Turn::Kind::kApply,
                          apply.result.step,
                          hash,
                          {},
                          apply.result.compared_through});
}

void World::Do(Worker& worker, const Suspect& suspect) {
  Trace(worker, " suspects ", Of(suspect.member));
  MemberOf(worker).owing.emplace(suspect.member, now_us());
}

void World::Do(Worker& worker, const ReportMismatch& report) {
  Trace(worker, " finds unequal states after ", report.step, " steps");
  if (!corrupted_) Fail(worker, " finds unequal states of step ", report.step);
  MemberOf(worker).mismatch = report;
}

void World::Do(Worker& worker, const TakeState& take) {
  Member& member = MemberOf(worker);
  ++member.states_taken;
  member.hashes.clear();
  if (!gossip_) member.hashes[take.next] = member.rounds->last_hash();
  member.turns.push_back({Turn::Kind::kRestore, take.next, 0, member.incoming});
}

void World::Do(Worker& worker, const OfferState& offer) {
  MemberOf(worker).asking.insert(offer.to);
}

void World::Do(Worker& worker, const EndExchange& end) {
  const bool averages = end.outcome == GossipOutcome::kAveraged;
  MemberOf(worker).turns.push_back(
      {Turn::Kind::kMeet, end.step, averages ? end.hash : 0, {}});
}

// --- The compute thread ------------------------------------------------------

void World::Work(Worker& worker) {
  Member& member = MemberOf(worker);
  if (member.busy || !worker.active || worker.phase == WorkPhase::kFailed) {
    return;
  }
  OfferStates(worker);
  if (!member.turns.empty()) {
    member.busy = true;
    ++member.turn;
    // Now and then other programs have the machine.
    const int64_t takes_us =
        OneIn(20) ? Between(5, 40) * kMs : Between(100, 1500);
    return AfterOn(worker.compute, takes_us,
                   [this, &worker, n = worker.run_number] {
                     if (n == worker.run_number) Take(worker);
                   });
  }
  TellState(worker);
  const int64_t next = NextOf(member);
  if (next >= last_step_ && member.has_state) {
    return SetPhase(worker, WorkPhase::kDone);
  }
  const bool is_asked =
      gossip_ ? member.gossip->needs_part() : member.rounds->needs_part();
  if (!is_asked || !member.has_state || member.part_step == next) return;
  member.busy = true;
  ++member.turn;
  const int64_t takes_us =
      OneIn(12) ? Between(8, 40) * kMs : Between(2, 8) * kMs;
  AfterOn(worker.compute, takes_us,
          [this, &worker, next, n = worker.run_number] {
            if (n == worker.run_number) ComputePart(worker, next);
          });
}

void World::ComputePart(Worker& worker, int64_t step) {
  Member& member = MemberOf(worker);
  member.busy = false;
  ++member.progress;
  member.part_step = step;
  const auto number = static_cast<uint64_t>(step);
  if (gossip_) {
    member.state.value =
        MixSeed({4, member.state.value, number, worker.incarnation()});
    // From here on it may go on alone.
    member.state.step = member.state_step = step + 1;
    return Tell(worker, &GossipMember::OnParameters, step, member.state.value);
  }
  const std::optional<View>& view = member.rounds->view();
  std::vector<PartOffer> part(1);
  part[0].step = step;
  part[0].samples = OneIn(30) ? 0 : 1 + worker.index;
  part[0].hash = MixSeed({1, member.state.value, number});
  part[0].division = DivisionOf(*view, step);
  Tell(worker, &RoundMember::OnPart, part);
  Work(worker);
}

void World::Take(Worker& worker) {
  Member& member = MemberOf(worker);
  const Turn turn = member.turns.front();
  member.turns.pop_front();
  member.busy = false;
  ++member.progress;
  ++sums_.steps;
  if (turn.kind == Turn::Kind::kRestore) {
    member.state = turn.state;
    member.has_state = true;
    worker.step = member.state.step = turn.step;
    Trace(worker, " takes the state after ", worker.step, " steps over");
    member.untold = !gossip_;
    OnState(worker, turn.step, std::nullopt);
    TellState(worker);
    return Work(worker);
  }
  if (turn.kind == Turn::Kind::kApply) {
    TellState(worker);
    if (turn.step != worker.step) {
      Fail(worker, " applies step ", turn.step, " after ", worker.step,
           " steps");
    }
    member.state.value = MixSeed({3, member.state.value, turn.hash});
    member.untold = true;
  } else if (turn.hash != 0) {
    member.state.value = MixSeed({5, std::min(member.state.value, turn.hash),
                                  std::max(member.state.value, turn.hash)});
  }
  worker.step = member.state.step = turn.step + 1;
  Trace(worker, " has applied ", worker.step, " steps");
  const bool awaited = OnState(worker, worker.step, turn.compared);
  if (awaited || worker.step == last_step_) TellState(worker);
  Work(worker);
}

void World::TellState(Worker& worker) {
  Member& member = MemberOf(worker);
  if (!std::exchange(member.untold, false)) return;
  member.rounds->OnState(worker.step, member.state.value);
}

void World::OfferStates(Worker& worker) {
  Member& member = MemberOf(worker);
  for (const MemberId& to : std::exchange(member.asking, {})) {
    const int64_t step = member.state.step;
    const StateOffer offer{step, member.hashes[step], member.state.value};
    Transmit(worker, to, MessageOf(worker, offer), member.state);
  }
}

// --- Deposits: as worker/control/group_run.cc has them -----------------------

bool World::IsDue(Member& member, int64_t steps) const {
  const int64_t also = member.order->deposit_every;
  const int64_t from = member.order->deposit_from;
  const bool asked = from > member.deposited_from && steps >= from;
  if (asked) member.deposited_from = from;
  return asked ||
         (checkpoint_every_ > 0 &&
          (steps % checkpoint_every_ == 0 || steps == last_step_)) ||
         (also > 0 && steps % also == 0);
}

bool World::OnState(Worker& worker, int64_t steps,
                    std::optional<int64_t> compared) {
  Member& member = MemberOf(worker);
  member.state_step = steps;
  if (!compared.has_value()) member.unconfirmed.reset();
  if (!compared.has_value() || member.job != worker.job) return false;
  if (member.unconfirmed.has_value() &&
      member.unconfirmed->first <= *compared) {
    const auto confirmed = *std::exchange(member.unconfirmed, std::nullopt);
    DepositState(worker, confirmed.first, confirmed.second);
  }
  if (gossip_) {
    if (IsDue(member, steps) && ViewOf(member)->leveller == worker.id()) {
      DepositState(worker, steps, member.state);
    }
    return false;
  }
  const bool is_last = steps == last_step_;
  if ((member.unconfirmed.has_value() && !is_last) || !IsDue(member, steps)) {
    return false;
  }
  if (is_last || joint_.flaw == JointFlaw::kSayUnconfirmed) {
    DepositState(worker, steps, member.state);
    return false;
  }
  member.unconfirmed = {steps, member.state};
  return true;
}

void World::DepositState(Worker& worker, int64_t steps, const State& state) {
  const Cut cut{worker.attempt, steps};
  Trace(worker, " deposits ", cut);
  if (state.step != steps) {
    Fail(worker, " deposits the state after ", state.step, " steps as ", cut);
  }
  const auto [first, is_new] =
      deposited_.emplace(std::pair(worker.job, cut), state.value);
  if (gossip_ && !is_new && first->second != state.value &&
      joint_.flaw != JointFlaw::kMixDepositors) {
    PassOver();
  }
  for (int layer = 0; layer < layers_; ++layer) {
    const uint64_t content = ContentOf(state.value, layer);
    origins_[content] = {state.value, steps, state.tainted};
    worker.layers[layer] = content;
  }
  Deposit(worker, cut);
  AfterOn(worker, Between(0, 10 * kMs),
          [this, &worker] { SendReport(worker); });
}

}  // namespace paceline::joint_world

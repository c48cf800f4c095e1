#include "tests/core/round/world.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/core/round/world_state.h"

namespace paceline {
namespace {

uint64_t Word(int64_t value) { return static_cast<uint64_t>(value); }

// The gradient of these micro-batches in a step, of the parameters that the
// member has (state).
uint64_t PartHash(int64_t attempt, const std::vector<int>& micro_batches,
                  int64_t step, int shard, uint64_t state) {
  uint64_t hash = MixSeed({1, Word(attempt), Word(step), Word(shard), state});
  for (const int each : micro_batches) hash = MixSeed({hash, Word(each)});
  return hash;
}

int64_t SamplesOf(const std::vector<int>& micro_batches, int64_t step) {
  int64_t samples = 0;
  for (const int each : micro_batches) samples += 1 + (each * 7 + step) % 5;
  return samples;
}

}  // namespace

void World::Push(Event event, absl::Duration after) {
  event.at = now_ + after;
  event.number = numbers_++;
  events_.push(std::move(event));
}

void World::Fail(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void World::Trace(const std::string& text) {
  if (!options_.trace) return;
  std::printf("%9.3f ms  %s\n", absl::ToDoubleMilliseconds(now_.since_start),
              text.c_str());
}

std::string NameOf(const MemberId& id) {
  return absl::StrCat("w", id.worker.value, ".", id.incarnation.value);
}

int World::AddProcess(WorkerId worker) {
  Process process;
  process.id = {worker, {++incarnations_}};
  process.heard = now_;
  process.attempt = attempt_;
  RoundOptions options = round_;
  options.attempt = attempt_;
  process.member = std::make_unique<RoundMember>(options, process.id, 0, 0);
  processes_.push_back(std::move(process));
  const int index = static_cast<int>(processes_.size()) - 1;
  Event tick;
  tick.what = What::kTick;
  tick.process = index;
  Push(tick, Between(1, 10'000));
  Event beat;
  beat.what = What::kHeartbeat;
  beat.process = index;
  Push(beat, Between(1, 10'000));
  return index;
}

void World::BeginAttempt(std::vector<int> processes, int64_t step,
                         uint64_t state) {
  std::vector<MemberId> members;
  for (const int index : processes) {
    Process& process = processes_[index];
    RoundOptions options = round_;
    options.attempt = attempt_;
    process.attempt = attempt_;
    process.state = state;
    process.computing = false;
    process.parts.clear();
    process.late_part.reset();
    if (options_.flaw != RoundFlaw::kKeepPartsOverAttempts) {
      process.cached_parts.clear();
    }
    process.member =
        std::make_unique<RoundMember>(options, process.id, step, state);
    members.push_back(process.id);
  }
  states_[{attempt_, step}] = state;
  keeper_ = std::make_unique<ViewKeeper>(term_, std::nullopt, options_.flaw);
  disk_.reset();
  ViewActions actions;
  keeper_->Begin(members, step, actions);
  CarryViews(std::move(actions));
}

void World::CarryViews(ViewActions actions) {
  for (ViewAction& action : actions) {
    if (auto* store = std::get_if<StoreView>(&action)) {
      Event event;
      event.what = What::kViewStored;
      event.view = store->view;
      event.attempt = attempt_;
      event.term = term_;
      Push(event, Between(100, 4000));
    } else if (auto* send = std::get_if<SendView>(&action)) {
      const int index = IndexOf(send->to);
      if (index < 0 || (Chance(loss_))) continue;
      Event event;
      event.what = What::kViewArrives;
      event.process = index;
      event.view = send->view;
      event.attempt = attempt_;
      Push(event, Between(50, longest_delay_us_));
    } else {
      Restore();
    }
  }
}

// --- Members' actions ---

void World::Carry(Process& process, RoundActions actions) {
  const MemberId id = process.id;
  for (const RoundAction& action : actions) {
    Process* const self = Find(id);
    std::visit([&](const auto& each) { Do(*self, each); }, action);
  }
  StartComputing(*Find(id));
}

void World::StartComputing(Process& process) {
  if (!process.alive || process.computing || !process.member->needs_part()) {
    return;
  }
  process.computing = true;
  const int64_t step = process.member->next();
  const View& view = *process.member->view();
  // The first word of a member stays.
  own_parts_.emplace(
      std::tuple(process.attempt, process.id, step),
      OwnPart{DivisionOf(view, step),
              MicroBatchesOf(view, step, process.id, kMicroBatches)});
  Event event;
  event.what = What::kComputed;
  event.process = IndexOf(process.id);
  event.attempt = process.attempt;
  event.view.id.counter = process.member->next();  // the step
  Push(event, Between(500, Chance(0.15) ? 40'000 : 6'000));
}

void World::Transmit(int to, const RoundMessage& message, uint64_t payload) {
  if (Chance(loss_)) return;
  const int copies = Chance(duplicate_) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Event event;
    event.what = What::kMessage;
    event.process = to;
    event.message = message;
    event.payload = payload;
    Push(event, Between(50, longest_delay_us_));
  }
}

void World::Do(Process& process, const SendMessage& send) {
  const int to = IndexOf(send.to);
  if (to < 0) return;
  uint64_t payload = 0;
  if (const auto* offer = std::get_if<PartOffer>(&send.message.body)) {
    payload = offer->hash;
  }
  Trace(absl::StrCat(NameOf(process.id), " -> ", NameOf(send.to), "  ",
                     MessageText(send.message)));
  Transmit(to, send.message, payload);
}

void World::Do(Process& process, const Aggregate& request) {
  Event event;
  event.what = What::kAggregated;
  event.process = IndexOf(process.id);
  event.attempt = process.attempt;
  event.sum = request;
  Push(event, Between(10, 1500));
}

// Sums the bytes that it was sent, in the order it was told.
void World::Sum(Process& process, const Aggregate& request) {
  uint64_t hash = MixSeed({2, Word(request.step)});
  int64_t divisor = 0;
  for (const Contributor& each : request.contributors) {
    auto found = process.parts.find({request.shard, each.member});
    if (found == process.parts.end() || found->second.first != request.step) {
      if (request.step < process.member->next()) return;  // nobody wants it
      return Fail(absl::StrCat(NameOf(process.id), " sums a part of ",
                               NameOf(each.member), " that it does not have"));
    }
    hash = MixSeed({hash, found->second.second});
    divisor += options_.flaw == RoundFlaw::kDivisorIsMembers ? 1 : each.samples;
  }
  hash = MixSeed({hash, Word(divisor)});
  if (options_.flaw == RoundFlaw::kShardsMoveWithView) {
    hash = MixSeed({hash, Word(request.view.counter)});
  }
  RoundActions actions;
  process.member->OnAggregated(request, hash, divisor, now_, actions);
  Carry(process, std::move(actions));
}

uint64_t World::Oracle(const RoundResult& result, const ShardResult& shard,
                       int64_t attempt) const {
  uint64_t hash = MixSeed({2, Word(result.step)});
  std::vector<Contributor> by_id = shard.contributors;
  std::sort(by_id.begin(), by_id.end(),
            [](const Contributor& a, const Contributor& b) {
              return a.member < b.member;
            });
  const auto state = states_.find({attempt, result.step});
  int64_t divisor = 0;
  for (const Contributor& each : by_id) {
    const std::vector<int>& micro_batches =
        own_parts_.at({attempt, each.member, result.step}).micro_batches;
    hash = MixSeed({hash, PartHash(attempt, micro_batches, result.step,
                                   shard.shard, state->second)});
    divisor += SamplesOf(micro_batches, result.step);
  }
  return MixSeed({hash, Word(divisor)});
}

void World::Do(Process& process, const Apply& apply) {
  const RoundResult& result = apply.result;
  const std::pair<int64_t, int64_t> id = {process.attempt, result.step};
  Trace(absl::StrCat(NameOf(process.id), " applies step ", result.step,
                     result.is_void() ? " (void)" : ""));
  if (id <= process.last_applied) {
    Fail(absl::StrCat(NameOf(process.id), " applies step ", result.step,
                      " after step ", process.last_applied.second));
  }
  process.last_applied = id;
  const auto [first, is_first] = applied_.emplace(id, result.hash());
  if (first->second != result.hash()) {
    Fail(absl::StrCat(NameOf(process.id), " applies another result of step ",
                      result.step, " than somebody before"));
  }
  if (is_first && result.is_void()) ++voids_;
  for (const ShardResult& shard : result.shards) {
    if (result.is_void()) break;
    std::set<MemberId> seen;
    std::set<int> counted;
    for (const Contributor& each : shard.contributors) {
      for (const int micro_batch :
           own_parts_.at({process.attempt, each.member, result.step})
               .micro_batches) {
        if (!counted.insert(micro_batch).second) {
          Fail(absl::StrCat("step ", result.step, " counts micro-batch ",
                            micro_batch, " twice"));
        }
      }
      if (!seen.insert(each.member).second) {
        Fail(absl::StrCat("step ", result.step, " counts the part of ",
                          NameOf(each.member), " twice"));
      }
    }
    if (static_cast<int>(seen.size()) < round_.min_parts) {
      Fail(absl::StrCat("step ", result.step, " has too few parts"));
    }
    if (states_.count(id) > 0 &&
        shard.hash != Oracle(result, shard, process.attempt)) {
      Fail(absl::StrCat("the result of step ", result.step,
                        " is not the sum of its parts"));
    }
  }
  if (!result.is_void()) {
    process.state = MixSeed({3, process.state, result.hash()});
  }
  const auto [state, is_new] = states_.emplace(
      std::pair(process.attempt, result.step + 1), process.state);
  if (!is_new && state->second != process.state) {
    Fail(absl::StrCat(NameOf(process.id), " has another state after step ",
                      result.step, " than somebody before"));
  }
  process.computing = false;
  if (options_.flaw != RoundFlaw::kKeepPartsOverAttempts) {
    process.cached_parts.clear();
  }
  process.member->OnState(result.step + 1, process.state);
}

void World::Do(Process& process, const Suspect& suspect) {
  Trace(absl::StrCat(NameOf(process.id), " suspects ", NameOf(suspect.member)));
}

void World::Do(Process& process, const ReportMismatch& report) {
  Fail(absl::StrCat(NameOf(process.id), " found unequal states at step ",
                    report.step));
}

void World::Do(Process& process, const TakeCopy& copy) {
  Trace(absl::StrCat(NameOf(process.id), " takes a copy of ", NameOf(copy.from),
                     " after ", copy.next, " steps"));
  process.computing = false;
  process.state = copy.state_hash;
  const auto known = states_.find({process.attempt, copy.next});
  if (known != states_.end() && known->second != process.state) {
    Fail(absl::StrCat(NameOf(process.id), " took a copy of step ", copy.next,
                      " that is not its state"));
  }
}

void World::Do(Process& process, const SendCopy& copy) {
  Copy body{process.member->next(), process.member->last_hash(), process.state};
  if (options_.flaw == RoundFlaw::kTornCopy && body.next > 0 && Chance(0.5)) {
    --body.next;
  }
  RoundMessage message;
  message.attempt = process.attempt;
  if (process.member->view().has_value()) {
    message.view = process.member->view()->id;
  }
  message.from = process.id;
  message.committed_through = process.member->next();
  message.body = body;
  const int to = IndexOf(copy.to);
  if (to >= 0) Transmit(to, message, body.state_hash);
}

// --- The loop ---

void World::Deliver(Process& process, const Event& event) {
  const RoundMessage& message = event.message;
  if (coverage_ != nullptr) {
    ++coverage_->message_in_phase[static_cast<int>(process.member->phase())]
                                 [message.body.index()];
  }
  const auto* offer = std::get_if<PartOffer>(&message.body);
  if (offer != nullptr && message.attempt == process.attempt &&
      message.from != process.id) {
    // The adapter keeps the bytes beside the offer, the first of each.
    auto& kept = process.parts[{offer->shard, message.from}];
    if (kept.second == 0 || kept.first < offer->step) {
      kept = {offer->step, event.payload};
    }
  }
  RoundActions actions;
  process.member->OnMessage(message, now_, actions);
  Carry(process, std::move(actions));
}

void World::OnComputed(Process& process, const Event& event) {
  const int64_t step = event.view.id.counter;
  process.computing = false;
  if (event.attempt != process.attempt) return StartComputing(process);
  if (process.member->next() != step) {
    if (options_.flaw == RoundFlaw::kLatePartJoinsNextRound) {
      process.late_part = PartHash(process.attempt, {}, step, 0, 7);
    }
    return StartComputing(process);
  }
  std::vector<PartOffer> part;
  const OwnPart& own = own_parts_.at({process.attempt, process.id, step});
  const bool usable = !Chance(0.03) && !own.micro_batches.empty();
  for (int shard = 0; shard < round_.shards; ++shard) {
    uint64_t hash = PartHash(process.attempt, own.micro_batches, step, shard,
                             process.state);
    if (options_.flaw == RoundFlaw::kKeepPartsOverAttempts) {
      hash = process.cached_parts
                 .emplace(static_cast<int>(step) * 16 + shard, hash)
                 .first->second;
    }
    if (process.late_part.has_value()) {
      hash = MixSeed({hash, *process.late_part});
    }
    part.push_back({step, shard,
                    usable ? SamplesOf(own.micro_batches, step) : 0, hash,
                    own.division});
    process.parts[{shard, process.id}] = {step, hash};
  }
  process.late_part.reset();
  RoundActions actions;
  process.member->OnPart(part, now_, actions);
  return Carry(process, std::move(actions));
}

void World::Handle(Event& event) {
  if (trouble_until_ < now_) {
    loss_ = duplicate_ = 0;
    longest_delay_us_ = 3000;
  }
  switch (event.what) {
    case What::kFault:
      return OnFault(event);
    case What::kCoordinatorBack:
      return OnCoordinatorBack();
    case What::kViewStored:
      return OnViewStored(event);
    case What::kLease:
      return OnLease(event);
    default:
      break;
  }
  Process& process = processes_[event.process];
  if (event.what == What::kBreak) {
    if (coordinator_up_ && event.attempt == attempt_ && !keeper_->lost()) {
      Lose(process.id);
    }
    return;
  }
  if (!process.alive) return;
  if (now_ < process.paused_until) {
    // It happens when the process goes on.
    return Push(event, process.paused_until - now_ + absl::Microseconds(1));
  }
  switch (event.what) {
    case What::kMessage:
      return Deliver(process, event);
    case What::kTick: {
      Push(event, kTick);
      RoundActions actions;
      process.member->OnTick(now_, actions);
      return Carry(process, std::move(actions));
    }
    case What::kHeartbeat:
      Push(event, kHeartbeat);
      return OnHeartbeat(process);
    case What::kViewArrives: {
      if (event.attempt != process.attempt) return;
      Trace(absl::StrCat(NameOf(process.id), " gets view ",
                         ViewText(event.view.id), " of ",
                         event.view.members.size()));
      RoundActions actions;
      process.member->OnView(event.view, now_, actions);
      return Carry(process, std::move(actions));
    }
    case What::kAggregated:
      if (event.attempt == process.attempt) Sum(process, event.sum);
      return;
    case What::kComputed:
      return OnComputed(process, event);
    default:
      return;
  }
}

bool World::IsCalmAndDone() const { return WhyNotDone().empty(); }

std::string World::WhyNotDone() const {
  if (calm_since_ == Instant()) return "faults are not over";
  if (!coordinator_up_) return "the coordinator is down";
  const std::optional<View>& view = keeper_->view();
  if (!view.has_value() || keeper_->lost()) return "there is no group";
  int64_t least = INT64_MAX, most = 0;
  for (const Process& process : processes_) {
    if (!process.alive) continue;
    const RoundMember& member = *process.member;
    if (process.attempt != attempt_ || !Contains(*view, process.id)) {
      return absl::StrCat(NameOf(process.id), " is no member");
    }
    if (member.phase() != RoundMember::Phase::kRunning) {
      return absl::StrCat(NameOf(process.id), " is not level");
    }
    least = std::min(least, member.next());
    most = std::max(most, member.next());
  }
  if (least < options_.rounds || least < calm_rounds_from_ + 3) {
    return absl::StrCat(
        "step ", least, " of ",
        std::max<int64_t>(options_.rounds, calm_rounds_from_ + 3));
  }
  return "";
}

WorldResult World::Run() {
  processes_.reserve(kSpares + 16);  // who is called keeps its place
  const int members = 3 + Below(5);
  workers_ = members;
  round_.shards = Chance(0.5) ? 1 : members;
  round_.mode = Chance(0.2) ? ServerMode::kCentral : ServerMode::kRolling;
  round_.min_parts = 1 + Below(2);
  round_.deadline.floor = absl::Milliseconds(4);
  round_.deadline.ceiling = absl::Milliseconds(30);
  round_.retry_period = absl::Milliseconds(15);
  round_.lease = absl::Milliseconds(200);
  round_.flaw_for_test = options_.flaw;
  faults_left_ = options_.faults;
  std::vector<int> all;
  for (int i = 0; i < members; ++i) all.push_back(AddProcess({i}));
  BeginAttempt(all, 0, 1);
  Event fault;
  fault.what = What::kFault;
  Push(fault, Between(5000, 60'000));
  Event lease;
  lease.what = What::kLease;
  Push(lease, kHeartbeat);
  while (!events_.empty() && violation_.empty()) {
    Event event = events_.top();
    events_.pop();
    now_ = event.at;
    ++handled_;
    Handle(event);
    if (calm_since_ != Instant() && calm_rounds_from_ < 0) {
      for (const Process& process : processes_) {
        calm_rounds_from_ = std::max(calm_rounds_from_, process.member->next());
      }
    }
    if (event.what == What::kLease && IsCalmAndDone()) break;
    if (now_ - Instant() > kLongest) {
      Fail(absl::StrCat("no end after ", absl::FormatDuration(kLongest), ": ",
                        WhyNotDone()));
    }
  }
  WorldResult result;
  result.violation = violation_;
  result.events = handled_;
  result.members = members;
  result.voids = voids_;
  for (const auto& [id, hash] : applied_) {
    result.rounds = std::max(result.rounds, id.second + 1);
  }
  return result;
}

WorldResult RunWorld(const WorldOptions& options, Coverage* coverage) {
  return World(options, coverage).Run();
}

}  // namespace paceline

#include "tests/core/round/world/world.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {
namespace {

// Something is asked or handed in; the other messages are said in return.
bool IsRequest(const Body& body) {
  return std::holds_alternative<PartOffer>(body) ||
         std::holds_alternative<Want>(body) ||
         std::holds_alternative<Hold>(body) ||
         std::holds_alternative<Answer>(body) ||
         std::holds_alternative<Fetch>(body) ||
         std::holds_alternative<StateRequest>(body);
}

bool IsCommit(const RoundAction& action) {
  const auto* const send = std::get_if<SendMessage>(&action);
  return send != nullptr && std::holds_alternative<Commit>(send->message.body);
}

}  // namespace

World::World(const WorldOptions& options, world::Coverage* coverage)
    : Kernel(MixSeed({options.seed, 0x726f756e64}), options.trace, coverage),
      options_(options) {
  members_ = static_cast<int>(3 + Below(5));
  round_.shards = Chance(0.5) ? 1 : members_;
  round_.mode = Chance(0.2) ? ServerMode::kCentral : ServerMode::kRolling;
  round_.min_parts = static_cast<int>(1 + Below(2));
  // All of them, now and then: then one link can hold a round up.
  if (IsOneIn(8, /*salt=*/1)) round_.min_parts = members_;
  round_.deadline.floor = absl::Milliseconds(4);
  round_.deadline.ceiling = absl::Milliseconds(30);
  round_.deadline.remembered = 16;
  round_.kept_results = static_cast<int>(1 + Below(4));
  AllowFaults(kLeastFaults + Below(3));
  round_.retry_period = absl::Microseconds(kPace.retry_us);
  round_.lease = absl::Microseconds(kPace.lease_us);
}

// --- What members want done -------------------------------------------------

void World::Carry(Process& process, RoundActions& actions) {
  size_t end = actions.size();
  if (process.dies_committing && !actions.empty() &&
      std::holds_alternative<Apply>(actions.front())) {
    const auto commit = std::find_if(actions.begin(), actions.end(), IsCommit);
    const int64_t first = commit - actions.begin();
    const int64_t commits = std::ssize(actions) - first;
    // Some hear of the commit, and some do not.
    end = static_cast<size_t>(first + (commits == 0 ? 0 : Below(commits)));
  }
  for (size_t i = 0; i < end; ++i) {
    std::visit([&](auto& each) { Do(process, each); }, actions[i]);
  }
  if (end < actions.size()) {
    Trace(process, " dies while it commits");
    return Kill(process, false);
  }
  StartComputing(process);
}

void World::Do(Process& process, SendMessage& send) {
  Trace(process, " -> ", send.to, "  ", send.message);
  const auto* const offer = std::get_if<PartOffer>(&send.message.body);
  if (offer == nullptr) {
    return Transmit(process, send.to, std::move(send.message), 0, 0);
  }
  uint64_t payload = offer->hash;
  if (process.corrupts) payload ^= 1;
  if (process.not_finite) payload = kNotFinite;
  if (process.repeats) {
    Transmit(process, send.to, send.message, payload, 0);
  }
  Transmit(process, send.to, std::move(send.message), payload, 0);
}

void World::Transmit(Process& from, const MemberId& to, RoundMessage message,
                     uint64_t payload, uint64_t taint) {
  Process* const other = Find(to);
  if (other == nullptr || FindCut(from, to.worker) != nullptr) return;
  const bool is_request = IsRequest(message.body);
  network_.Send(
      *other, is_request,
      [this, other,
       parcel = Parcel{std::move(message), payload, taint}]() mutable {
        Deliver(*other, parcel);
      });
}

void World::Do(Process& process, struct Aggregate& request) {
  AfterOn(process, Between(10, 1500),
          [this, &process, attempt = process.attempt,
           request = std::move(request)] {
            if (attempt == process.attempt) Sum(process, request);
          });
}

void World::Do(Process& process, Apply& apply) {
  const RoundResult& result = apply.result;
  Trace(process, " applies step ", result.step,
        result.is_void() ? " (void)" : "");
  const uint64_t hash = process.member->next() == result.step + 1
                            ? process.member->last_hash()
                            : result.hash();
  const auto [first, is_first] =
      applied_.emplace(std::pair(process.attempt, result.step), hash);
  if (first->second != hash) {
    Fail(process, " applies another result of step ", result.step,
         " than somebody before");
  }
  if (!result.is_void()) {
    process.truth = MixSeed({3, process.truth, hash});
  }
  CheckApply(process, result, is_first);
  process.computing_step = -1;
  process.owing.clear();
  process.corrupts = process.not_finite = process.repeats = false;
  if (options_.flaw != RoundFlaw::kKeepPartsOverAttempts) {
    process.cached_parts.clear();
  }
  process.member->OnState(result.step + 1, StateOf(process));
}

void World::Do(Process& process, const Suspect& suspect) {
  Trace(process, " suspects ", suspect.member);
  process.owing.emplace_back(suspect.member, now_us());
}

void World::Do(Process& process, const ReportMismatch& report) {
  Trace(process, " finds unequal states after ", report.step, " steps");
  if (!corrupted_) {
    Fail(process, " found unequal states at step ", report.step,
         ", which nothing had spoilt");
  }
  process.mismatch = report;
}

void World::Do(Process& process, const TakeState& take) {
  Trace(process, " takes the state of ", take.from, " after ", take.next,
        " steps");
  process.computing_step = -1;
  const auto known = states_.find({process.attempt, take.next});
  if (known != states_.end() && known->second != process.truth) {
    Fail(process, " took a state of step ", take.next, " that is not its own");
  }
}

void World::Do(Process& process, const OfferState& offer) {
  const RoundMember& member = *process.member;
  StateOffer body{member.next(), member.last_hash(), StateOf(process)};
  if (options_.flaw == RoundFlaw::kTornState && body.next > 0 && Chance(0.5)) {
    --body.next;
  }
  Transmit(process, offer.to, MessageOf(process, body), process.truth,
           process.taint);
}

// --- Events -----------------------------------------------------------------

void World::Deliver(Process& process, Parcel& parcel) {
  RoundMessage& message = parcel.message;
  if (std::holds_alternative<PartOffer>(message.body)) {
    KeepPart(process, message, parcel.payload);
  }
  WatchMessage(process, message);
  const auto* const offer = std::get_if<StateOffer>(&message.body);
  if (offer != nullptr && !parcel.fetched) return FetchState(process, parcel);
  const int64_t before = process.member->next();
  const std::pair own = {process.truth, process.taint};
  if (offer != nullptr) {
    // The state that the core takes is there before it says so.
    process.truth = parcel.payload;
    process.taint = parcel.taint;
  }
  bool taken = false;
  Give(process, &message, [&](RoundActions& actions) {
    Hear(process, message, actions);
    taken = std::any_of(actions.begin(), actions.end(), [](const auto& each) {
      return std::holds_alternative<TakeState>(each);
    });
    if (offer != nullptr && !taken) {
      std::tie(process.truth, process.taint) = own;
    }
  });
  // Those who lack results ask for one after the other, without a pause.
  if (process.alive() && std::holds_alternative<Committed>(message.body) &&
      process.member->next() > before) {
    RoundMessage want = MessageOf(process, Want{process.member->next(), 0});
    Transmit(process, message.from, std::move(want), 0, 0);
  }
}

// The state of its offer comes piece by piece, if the donor lives for so long.
void World::FetchState(Process& process, const Parcel& parcel) {
  if (std::exchange(process.fetches, true)) return;
  AfterOn(process, Between(50, 5'000),
          [this, &process, attempt = process.attempt,
           parcel = Parcel(parcel)]() mutable {
            if (attempt != process.attempt) return;
            process.fetches = false;
            const Process& donor = *Find(parcel.message.from);
            if (!donor.alive() || FindCut(donor, process.id.worker)) return;
            parcel.fetched = true;
            Deliver(process, parcel);
          });
}

void World::OnViewArrives(Process& process, const View& view) {
  Trace(process, " gets view ", view.id, " of ", view.members.size());
  WatchView(process, view);
  const std::optional<View>& present = process.member->view();
  if (!present.has_value() || present->id < view.id) {
    process.owing.clear();
    process.mismatch.reset();
  }
  Call(process, &RoundMember::OnView, view);
}

void World::Tick(Process& process) {
  AfterOn(process, kPace.tick_us, [this, &process] { Tick(process); });
  Call(process, &RoundMember::OnTick);
}

// --- Its life ---------------------------------------------------------------

void World::Begin() {
  Start(coordinator_, 1);
  workers_ = members_;
  std::vector<Process*> all;
  for (int i = 0; i < members_; ++i) all.push_back(&AddProcess({i}));
  After(Between(5'000, 40'000), [this] { OnFault(); });
  BeginAttempt(all, 0, 1);
  After(kPace.heartbeat_us, [this] { EveryHeartbeat(); });
}

void World::EveryHeartbeat() {
  After(kPace.heartbeat_us, [this] { EveryHeartbeat(); });
  OnLease();
  const std::string why_not = WhyNotDone();
  done_ = why_not.empty();
  if (!done_ && now_us() > kPace.end_us) Fail("no end yet: ", why_not);
}

WorldResult World::Run() {
  Begin();
  RunUntil([this] { return done_; });
  return Result();
}

WorldResult RunWorld(const WorldOptions& options, world::Coverage* coverage) {
  return World(options, coverage).Run();
}

}  // namespace paceline::round_world

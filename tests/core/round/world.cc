#include "tests/core/round/world.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/core/round/world_state.h"

namespace paceline::round_world {
namespace {

// Something is asked or handed in; the other messages are said in return.
bool IsRequest(const Body& body) {
  return std::holds_alternative<PartOffer>(body) ||
         std::holds_alternative<Want>(body) ||
         std::holds_alternative<Hold>(body) ||
         std::holds_alternative<Answer>(body) ||
         std::holds_alternative<Fetch>(body) ||
         std::holds_alternative<CopyRequest>(body);
}

bool IsCommit(const RoundAction& action) {
  const auto* const send = std::get_if<SendMessage>(&action);
  return send != nullptr && std::holds_alternative<Commit>(send->message.body);
}

}  // namespace

std::string NameOf(const MemberId& id) {
  return absl::StrCat("w", id.worker.value + 1, ".", id.incarnation.value);
}

void World::Print(const std::string& text) const {
  std::printf("%10.3f ms  %s\n", static_cast<double>(now_us_) / 1000,
              text.c_str());
}

World::World(const WorldOptions& options, Coverage* coverage)
    : options_(options),
      coverage_(coverage),
      random_(MixSeed({options.seed, 0x726f756e64})) {
  if (options.script.has_value()) {
    const JobScript& script = *options.script;
    pace_ = kDaemonPace;
    members_ = static_cast<int>(script.workers.size());
    round_.shards = script.shards;
    round_.mode = script.central ? ServerMode::kCentral : ServerMode::kRolling;
    round_.min_parts = script.min_parts;
    round_.deadline.ceiling = script.deadline;
    round_.deadline.floor = std::min(round_.deadline.floor, script.deadline);
  } else {
    members_ = 3 + Below(5);
    round_.shards = Chance(0.5) ? 1 : members_;
    round_.mode = Chance(0.2) ? ServerMode::kCentral : ServerMode::kRolling;
    round_.min_parts = 1 + Below(2);
    // All of them, now and then: then one link can hold a round up.
    if (IsOneIn(8, /*salt=*/1)) round_.min_parts = members_;
    round_.deadline.floor = absl::Milliseconds(4);
    round_.deadline.ceiling = absl::Milliseconds(30);
    round_.deadline.remembered = 16;
    round_.kept_results = 1 + Below(4);
    faults_left_ = options.faults + Below(3);
  }
  round_.retry_period = absl::Microseconds(pace_.retry_us);
  round_.lease = absl::Microseconds(pace_.lease_us);
}

// --- What members want done -------------------------------------------------

void World::Carry(Process& process, RoundActions& actions) {
  size_t end = actions.size();
  if (process.dies_committing && !actions.empty() &&
      std::holds_alternative<Apply>(actions.front())) {
    const auto commit = std::find_if(actions.begin(), actions.end(), IsCommit);
    const auto first = static_cast<int>(commit - actions.begin());
    const int commits = static_cast<int>(std::ssize(actions)) - first;
    // Some hear of the commit, and some do not; of a script nobody does.
    const int heard =
        commits == 0 || options_.script.has_value() ? 0 : Below(commits);
    end = static_cast<size_t>(first + heard);
  }
  for (size_t i = 0; i < end; ++i) {
    std::visit([&](auto& each) { Do(process, each); }, actions[i]);
  }
  if (end < actions.size()) {
    Trace([&] { return NameOf(process.id) + " dies while it commits"; });
    return Kill(process, false);
  }
  StartComputing(process);
}

void World::Do(Process& process, SendMessage& send) {
  Trace([&] {
    return absl::StrCat(NameOf(process.id), " -> ", NameOf(send.to), "  ",
                        MessageText(send.message));
  });
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
  const Process* const other = Find(to);
  if (other == nullptr || !other->alive || IsCut(from, *other)) return;
  if (Chance(IsRequest(message.body) ? request_loss_ : reply_loss_)) return;
  const auto index = static_cast<int16_t>(other->index);
  const auto arrive = [&](RoundMessage each) {
    Push(Event{.at_us = Between(delay_us_, delay_us_ + spread_us_),
               .slot = parcels_.Put({std::move(each), payload, taint}),
               .process = index,
               .what = What::kMessage});
  };
  if (Chance(duplicate_)) arrive(message);
  arrive(std::move(message));
}

void World::Do(Process& process, struct Aggregate& request) {
  Push(Event{.at_us = Between(10, 1500),
             .attempt = process.attempt,
             .slot = sums_.Put(std::move(request)),
             .process = static_cast<int16_t>(process.index),
             .what = What::kAggregated});
}

void World::Do(Process& process, Apply& apply) {
  const RoundResult& result = apply.result;
  Trace([&] {
    return absl::StrCat(NameOf(process.id), " applies step ", result.step,
                        result.is_void() ? " (void)" : "");
  });
  const uint64_t hash = process.member->next() == result.step + 1
                            ? process.member->last_hash()
                            : result.hash();
  const auto [first, is_first] =
      applied_.emplace(std::pair(process.attempt, result.step), hash);
  if (first->second != hash) {
    Fail(absl::StrCat(NameOf(process.id), " applies another result of step ",
                      result.step, " than somebody before"));
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
  Trace([&] {
    return absl::StrCat(NameOf(process.id), " suspects ",
                        NameOf(suspect.member));
  });
  process.owing.emplace_back(suspect.member, now_us_);
}

void World::Do(Process& process, const ReportMismatch& report) {
  Trace([&] {
    return absl::StrCat(NameOf(process.id), " finds unequal states after ",
                        report.step, " steps");
  });
  if (!corrupted_) {
    Fail(absl::StrCat(NameOf(process.id), " found unequal states at step ",
                      report.step, ", which nothing had spoilt"));
  }
  process.mismatch = report;
}

void World::Do(Process& process, const TakeCopy& copy) {
  Trace([&] {
    return absl::StrCat(NameOf(process.id), " takes a copy of ",
                        NameOf(copy.from), " after ", copy.next, " steps");
  });
  process.computing_step = -1;
  const auto known = states_.find({process.attempt, copy.next});
  if (known != states_.end() && known->second != process.truth) {
    Fail(absl::StrCat(NameOf(process.id), " took a copy of step ", copy.next,
                      " that is not its state"));
  }
}

void World::Do(Process& process, const SendCopy& copy) {
  const RoundMember& member = *process.member;
  Copy body{member.next(), member.last_hash(), StateOf(process)};
  if (options_.flaw == RoundFlaw::kTornCopy && body.next > 0 && Chance(0.5)) {
    --body.next;
  }
  Transmit(process, copy.to, MessageOf(process, body), process.truth,
           process.taint);
}

// --- Events -----------------------------------------------------------------

void World::Deliver(Process& process, const Event& event) {
  Parcel& parcel = parcels_.at(event.slot);
  RoundMessage& message = parcel.message;
  if (std::holds_alternative<PartOffer>(message.body)) {
    KeepPart(process, message, parcel.payload);
  }
  if (KilledInPhase(process, message)) return;
  WatchMessage(process, message);
  const auto* const copy = std::get_if<Copy>(&message.body);
  const int64_t before = process.member->next();
  const std::pair own = {process.truth, process.taint};
  if (copy != nullptr) {
    // The state that the core takes is there before it says so.
    process.truth = parcel.payload;
    process.taint = parcel.taint;
  }
  bool taken = false;
  Give(process, &message, [&](RoundActions& actions) {
    Hear(process, message, actions);
    taken = std::any_of(actions.begin(), actions.end(), [](const auto& each) {
      return std::holds_alternative<TakeCopy>(each);
    });
    if (copy != nullptr && !taken) {
      std::tie(process.truth, process.taint) = own;
    }
  });
  // Those who lack results ask for one after the other, without a pause.
  if (process.alive && std::holds_alternative<Committed>(message.body) &&
      process.member->next() > before) {
    RoundMessage want;
    want.attempt = process.attempt;
    if (process.member->view().has_value()) {
      want.view = process.member->view()->id;
    }
    want.from = process.id;
    want.committed_through = process.member->next();
    want.committed_hash = process.member->last_hash();
    want.body = Want{process.member->next(), 0};
    Transmit(process, message.from, std::move(want), 0, 0);
  }
}

void World::OnViewArrives(Process& process, const View& view) {
  Trace([&] {
    return absl::StrCat(NameOf(process.id), " gets view ", ViewText(view.id),
                        " of ", view.members.size());
  });
  WatchView(process, view);
  const std::optional<View>& present = process.member->view();
  if (!present.has_value() || present->id < view.id) {
    process.owing.clear();
    process.mismatch.reset();
  }
  Give(process, nullptr, [&](RoundActions& actions) {
    process.member->OnView(view, Now(), actions);
  });
}

void World::Handle(const Event& event) {
  switch (event.what) {
    case What::kFault:
      return OnFault();
    case What::kCoordinatorBack:
      return OnCoordinatorBack();
    case What::kViewStored:
      return OnViewStored(event);
    case What::kLease:
      return OnLease();
    case What::kBreak:
      if (is_led() && event.attempt == attempt_) {
        Lose(Of(event.process).id, "its stream broke");
      }
      return;
    default:
      return HandleOf(Of(event.process), event);
  }
}

void World::HandleOf(Process& process, const Event& event) {
  if (process.alive && now_us_ < process.paused_until_us) {
    // It happens when the process goes on.
    Event later = event;
    later.at_us = process.paused_until_us - now_us_ + 1;
    return Push(later);
  }
  switch (event.what) {
    case What::kMessage:
      if (process.alive) Deliver(process, event);
      return parcels_.Free(event.slot);
    case What::kTick:
      if (!process.alive) return;
      Push(What::kTick, process.index, pace_.tick_us);
      return Give(process, nullptr, [&](RoundActions& actions) {
        process.member->OnTick(Now(), actions);
      });
    case What::kHeartbeat:
      if (!process.alive) return;
      Push(What::kHeartbeat, process.index, pace_.heartbeat_us);
      return OnHeartbeat(process);
    case What::kViewArrives:
      if (process.alive && event.attempt == process.attempt) {
        OnViewArrives(process, views_.at(event.slot));
      }
      return views_.Free(event.slot);
    case What::kAggregated:
      if (process.alive && event.attempt == process.attempt) {
        Sum(process, sums_.at(event.slot));
      }
      return sums_.Free(event.slot);
    case What::kComputed:
      if (process.alive) OnComputed(process, event);
      return;
    default:
      return;
  }
}

void World::Begin() {
  workers_ = members_;
  std::vector<int> all;
  for (int i = 0; i < members_; ++i) all.push_back(AddProcess({i}));
  if (options_.script.has_value()) {
    for (Process& process : processes_) {
      process.fault_specs = options_.script->faults;
      process.plan =
          FaultPlan(process.fault_specs, TallyOf(process.id).name, true);
    }
    calm_ = true;  // nothing but what the script says
  } else {
    Push(What::kFault, -1, Between(5'000, 40'000));
  }
  BeginAttempt(all, 0, 1);
  Push(What::kLease, -1, pace_.heartbeat_us);
}

WorldResult World::Run() {
  Begin();
  while (!queue_.empty() && violation_.empty()) {
    const Event event = queue_.Pop();
    now_us_ = event.at_us;
    ++handled_;
    if (now_us_ >= trouble_until_us_ && trouble_until_us_ > 0) EndTrouble();
    Handle(event);
    if (event.what == What::kLease && IsCalmAndDone()) break;
    if (now_us_ > pace_.end_us) {
      Fail(absl::StrCat("no end after ", pace_.end_us / 1'000'000,
                        " s: ", WhyNotDone()));
    }
  }
  return Result();
}

WorldResult RunWorld(const WorldOptions& options, Coverage* coverage) {
  return World(options, coverage).Run();
}

}  // namespace paceline::round_world

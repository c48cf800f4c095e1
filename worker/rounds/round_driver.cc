#include "worker/rounds/round_driver.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/obs/log.h"

namespace paceline {
namespace {

constexpr size_t kMostParked = 256;
constexpr size_t kKnownHashes = 64;
// If a step is shorter than a fetch takes, no further fetch catches up: the
// group then waits for the joiner.
constexpr int kMostStates = 2;

RoundOptions RoundOptionsOf(const RoundExchangeOptions& options) {
  RoundOptions round;
  round.attempt = options.attempt;
  round.shards = options.aggregation.shards;
  round.mode = options.server_mode();
  round.min_parts = options.aggregation.min_parts;
  round.deadline.ceiling = absl::Seconds(options.aggregation.deadline);
  round.deadline.floor = std::min(round.deadline.floor, round.deadline.ceiling);
  round.retry_period = options.retry_period;
  round.lease = options.lease;
  round.kept_results = kKeptResults;
  return round;
}

// The whole result that a message brings; null: it brings none.
const RoundResult* WholeResult(const Body& body) {
  if (const auto* committed = std::get_if<Committed>(&body)) {
    return &committed->result;
  }
  if (const auto* fetched = std::get_if<Fetched>(&body)) {
    return &fetched->result;
  }
  if (const auto* level = std::get_if<Level>(&body)) return &level->result;
  return nullptr;
}

}  // namespace

RoundDriver::RoundDriver(const RoundExchangeOptions& options,
                         const RoundShape& shape, const GroupDriverParts& parts,
                         RoundSum& sum)
    : GroupDriver(options, parts),
      shape_(shape),
      sum_(sum),
      mode_(options.server_mode()),
      events_(options.self, mode_) {}

uint64_t RoundDriver::VariantOf(ViewId view) {
  return MixSeed(
      {static_cast<uint64_t>(view.term), static_cast<uint64_t>(view.counter)});
}

// --- The group ---

void RoundDriver::Begin(bool counted) {
  // A member that is not in the first view has nothing that the group agreed
  // on.
  has_state_ = counted;
  member_.emplace(RoundOptionsOf(options_), options_.self,
                  counted ? options_.next : 0,
                  counted ? options_.state_hash : 0);
}

void RoundDriver::OnNewView(const View& view, Instant now) {
  events_.OnView(member_->view(), view, member_->next(),
                 [this, now](const MemberId& lost) {
                   return links_.BrokenSince(lost).value_or(now);
                 });
  std::set<MemberId> members;
  for (const ViewMember& member : view.members) members.insert(member.id);
  sum_.Retain(members);
  links_.ClearOwing();
  mismatch_found_.reset();
}

// --- Messages ---

void RoundDriver::OnMessage(RoundMessage message,
                            std::shared_ptr<RoundPayload> payload) {
  if (!member_.has_value() || message.attempt != options_.attempt) return;
  if (IsEarly(message)) {
    early_.emplace_back(std::move(message), std::move(payload));
    if (early_.size() > kMostParked) early_.pop_front();
    return;
  }
  if (!member_->view().has_value()) {
    group_next_ = std::max(group_next_, message.committed_through);
  }
  int64_t& heard = heard_[message.from];
  // No member can be more than one step ahead of all others.
  heard =
      std::max(heard, std::min(message.committed_through, member_->next() + 1));
  if (IsTooMuch(message.body)) return;  // the sender repeats it
  if (std::holds_alternative<StateOffer>(message.body)) {
    FetchState(message);
  } else if (std::holds_alternative<PartOffer>(message.body)) {
    TakeOffer(message);
  } else {
    switch (CheckBytes(message, payload)) {
      case Ready::kYes:
        Give(message);
        break;
      case Ready::kWaits:
        Park(std::move(message));
        break;
      case Ready::kRefused:
        break;
    }
  }
  Settle();
}

// True for messages of a view that is on its way here, or of a group that is
// level already.  The state machine would drop them, and their senders would
// repeat them only after a while.
bool RoundDriver::IsEarly(const RoundMessage& message) const {
  const std::optional<View>& view = member_->view();
  if (!view.has_value()) return false;
  const Body& body = message.body;
  if (message.view > view->id) {
    return IsAnyOf<PartOffer, Spread, Hold, Commit, Answer, Level, LevelDone,
                   Fetch, Fetched>(body);
  }
  // A leveller takes holds while it levels.
  return message.view == view->id && IsAnyOf<PartOffer, Spread, Commit>(body) &&
         member_->phase() == RoundMember::Phase::kLevelling;
}

bool RoundDriver::IsTooMuch(const Body& body) const {
  if (!IsAnyOf<Spread, Committed>(body)) return false;
  const size_t bytes = std::max<size_t>(1, shape_.values() * sizeof(float));
  const auto fit = static_cast<int64_t>(options_.unapplied_bytes / bytes);
  return parts_.turns.results() >= std::max(kLeastUnapplied, fit);
}

void RoundDriver::GiveEarly() {
  const std::pair<ViewId, RoundMember::Phase> now = {
      member_->view().has_value() ? member_->view()->id : ViewId{},
      member_->phase()};
  if (now == settled_) return;
  settled_ = now;
  auto early = std::exchange(early_, {});
  for (auto& [message, payload] : early) {
    OnMessage(std::move(message), std::move(payload));
  }
}

void RoundDriver::SayServing(const RoundMessage& message) {
  if (options_.on_serving == nullptr || message.from == options_.self) return;
  const auto* part = std::get_if<PartOffer>(&message.body);
  const auto* hold = std::get_if<Hold>(&message.body);
  const int64_t step = part != nullptr   ? part->step
                       : hold != nullptr ? hold->step
                                         : -1;
  if (step != member_->next() ||
      member_->phase() != RoundMember::Phase::kRunning) {
    return;
  }
  options_.on_serving(step, part != nullptr ? "gathering" : "spreading");
}

void RoundDriver::Give(const RoundMessage& message) {
  SayServing(message);
  const int64_t before = member_->next();
  member_->OnMessage(message, parts_.clock.Now(), actions_);
  // A member that lacks results asks for the next one without a pause.
  if (std::holds_alternative<Committed>(message.body) &&
      member_->next() > before) {
    AskForNext(message.from);
  }
}

void RoundDriver::AskForNext(const MemberId& from) {
  actions_.push_back(
      SendMessage{from, member_->Message(Want{member_->next(), 0})});
}

// Checks the bytes first.  The offer of a refused part is passed on with no
// samples: "nothing usable".
void RoundDriver::TakeOffer(const RoundMessage& message) {
  const auto& offer = std::get<PartOffer>(message.body);
  if (offer.shard < 0 || offer.shard >= shape_.shards() || offer.samples < 0) {
    return Refuse(message, "a shard or a number of samples that cannot be");
  }
  if (offer.step < member_->next() || offer.samples == 0 ||
      shape_.values(offer.shard) == 0) {
    return OnPartChecked(message, PartCheck::kFine);
  }
  const auto part = sum_.FindPart(offer.step, offer.shard, message.from);
  // Bytes that came too early were dropped: they come with a later offer.
  if (part == nullptr || !part->complete()) return;
  sum_.Check(message);
}

void RoundDriver::OnPartChecked(const RoundMessage& message, PartCheck check) {
  RoundMessage offer = message;
  auto& part = std::get<PartOffer>(offer.body);
  if (check != PartCheck::kFine) {
    part.samples = 0;
    Log(LogLevel::kWarn, "a part was refused at the border",
        {{"worker", message.from.worker.value},
         {"step", part.step},
         {"shard", part.shard},
         {"why", check == PartCheck::kNotFinite
                     ? "NaN or infinity in it"
                     : "its bytes are not those of its hash"}});
  }
  if (part.step == member_->next()) {
    events_.OnOffer(message.from, part, check, parts_.clock.Now());
  }
  Give(offer);
  Settle();
}

RoundDriver::Ready RoundDriver::CheckBytes(
    const RoundMessage& message, const std::shared_ptr<RoundPayload>& payload) {
  if (const auto* spread = std::get_if<Spread>(&message.body)) {
    return CheckResult(message, {spread->step, message.view, {spread->result}},
                       payload);
  }
  if (const RoundResult* result = WholeResult(message.body)) {
    if (static_cast<int>(result->shards.size()) != shape_.shards()) {
      Refuse(message, "a result of another number of shards");
      return Ready::kRefused;
    }
    return CheckResult(message, *result, payload);
  }
  return Ready::kYes;
}

RoundDriver::Ready RoundDriver::CheckResult(
    const RoundMessage& message, const RoundResult& result,
    const std::shared_ptr<RoundPayload>& payload) {
  if (result.is_void() || result.step < member_->next()) return Ready::kYes;
  bool named = payload == nullptr;
  bool missing = false;
  for (const ShardResult& shard : result.shards) {
    if (shard.shard < 0 || shard.shard >= shape_.shards()) {
      Refuse(message, "a shard that is none");
      return Ready::kRefused;
    }
    if (payload != nullptr && payload->hash() == shard.hash &&
        payload->size() == shape_.bytes(shard.shard)) {
      parts_.store.AddResult(result.step, shard.shard, shard.hash, payload);
      named = true;
    }
    missing =
        missing ||
        parts_.store.FindResult(result.step, shard.shard, shard.hash).payload ==
            nullptr;
  }
  if (!named) {
    ++events_.stats().refused_results;
    Refuse(message, "a result whose hash does not match its bytes");
    return Ready::kRefused;
  }
  return missing ? Ready::kWaits : Ready::kYes;
}

// Replaces the sender's message with the same text; the oldest goes first.
void RoundDriver::Park(RoundMessage message) {
  const std::string text = MessageText(message);
  std::erase_if(parked_, [&](const RoundMessage& each) {
    return each.from == message.from && MessageText(each) == text;
  });
  parked_.push_back(std::move(message));
  if (parked_.size() > kMostParked) parked_.pop_front();
}

void RoundDriver::OnBytes() {
  for (RoundMessage& message : std::exchange(parked_, {})) {
    OnMessage(std::move(message), nullptr);
  }
}

// --- From this worker ---

void RoundDriver::OnPart(OwnPart part) {
  if (!member_.has_value() || part.offers.empty()) return;
  const int64_t step = part.offers.front().step;
  // Late: not kept, since the compute thread waits for the part's memory.
  if (step < member_->next()) return;
  part_ = std::move(part);
  std::vector<PartOffer> offers = part_.offers;
  if (part_.unusable && member_->view().has_value() &&
      !MembersAt(*member_->view(), step).empty()) {
    // As server this member refuses its own part, as others do at their border.
    for (PartOffer& offer : offers) {
      if (ServerOf(*member_->view(), mode_, step, offer.shard) ==
          options_.self) {
        offer.samples = 0;
      }
    }
  }
  const Instant now = parts_.clock.Now();
  if (step == member_->next()) {
    events_.OnOffer(options_.self, offers.front(),
                    part_.unusable && offers.front().samples == 0
                        ? PartCheck::kNotFinite
                        : PartCheck::kFine,
                    now);
  }
  member_->OnPart(offers, now, actions_);
  Settle();
}

void RoundDriver::OnSummed(const SumRequest& request,
                           std::shared_ptr<RoundPayload> sum,
                           const SumVerdict& verdict) {
  if (!member_.has_value()) return;
  uint64_t hash = 0;
  if (verdict.divisor == 0) {
    Log(LogLevel::kWarn, "the rule could make nothing of a round",
        {{"step", request.step},
         {"shard", request.shard},
         {"why", verdict.why}});
  } else {
    hash = sum->hash();
    parts_.store.AddResult(request.step, request.shard, VariantOf(request.view),
                           std::move(sum));
  }
  if (request.step == member_->next()) {
    events_.OnJudged(verdict.dropped, verdict.cosine);
  }
  member_->OnAggregated(request, hash, verdict.divisor, parts_.clock.Now(),
                        actions_);
  Settle();
}

void RoundDriver::OnApplied(int64_t next, uint64_t state_hash) {
  if (!member_.has_value()) return;
  has_state_ = true;
  member_->OnState(next, state_hash);
  Settle();
}

uint64_t RoundDriver::HashAfter(int64_t steps) const {
  const auto found = hashes_.find(steps);
  return found == hashes_.end() ? 0 : found->second;
}

// --- Actions ----------------------------------------------------------------

void RoundDriver::Settle() {
  while (!actions_.empty()) {
    const RoundActions now = std::exchange(actions_, {});
    if (options_.on_serving != nullptr) SayCommits(now);
    // Sends first, since an update takes all of a slow CPU and others wait.
    for (const bool sends : {true, false}) {
      for (const RoundAction& action : now) {
        if (std::holds_alternative<SendMessage>(action) != sends) continue;
        std::visit([this](const auto& each) { Do(each); }, action);
      }
    }
  }
  if (!member_.has_value()) return;
  ExpectParts();
  Publish();
  GiveEarly();
}

// The server's own Apply comes with the commits that it is to send.
void RoundDriver::SayCommits(const RoundActions& actions) const {
  const bool commits = std::ranges::any_of(actions, [](const auto& action) {
    const auto* send = std::get_if<SendMessage>(&action);
    return send != nullptr && IsAnyOf<Commit>(send->message.body);
  });
  if (!commits) return;
  for (const RoundAction& action : actions) {
    const auto* apply = std::get_if<Apply>(&action);
    if (apply == nullptr) continue;
    options_.on_serving(apply->result.step, "committing");
  }
}

void RoundDriver::Do(const SendMessage& action) {
  const Body& body = action.message.body;
  RoundTransport& transport = parts_.transport;
  if (const auto* offer = std::get_if<PartOffer>(&body)) {
    const PayloadKey key{PayloadKey::Kind::kPart, offer->step, offer->shard, 0};
    std::shared_ptr<RoundPayload> payload;
    if (offer->samples > 0) {
      if (part_.offers.empty() || part_.offers.front().step != offer->step) {
        return;
      }
      payload = part_.payloads[offer->shard];
    }
    if (part_.duplicates) {
      transport.Send(action.to, action.message, key, payload);
    }
    return transport.Send(action.to, action.message, key, std::move(payload));
  }
  if (const auto* spread = std::get_if<Spread>(&body)) {
    return SendResult(action, {spread->step, {}, {spread->result}});
  }
  if (const RoundResult* result = WholeResult(body)) {
    return SendResult(action, *result);
  }
  transport.Send(action.to, action.message, {}, nullptr);
}

// Sends the bytes of all shards, and the message after those of the last one:
// the receiver waits for the rest.
void RoundDriver::SendResult(const SendMessage& action,
                             const RoundResult& result) {
  PayloadKey last;
  std::shared_ptr<RoundPayload> bytes;
  for (const ShardResult& shard : result.shards) {
    if (result.is_void() || shape_.values(shard.shard) == 0) continue;
    const RoundStore::Result found =
        parts_.store.FindResult(result.step, shard.shard, shard.hash);
    if (found.payload == nullptr) return;  // long past: only a state helps
    if (bytes != nullptr) {
      parts_.transport.SendAhead(action.to, last, std::move(bytes));
    }
    last = {PayloadKey::Kind::kResult, result.step, shard.shard, found.variant};
    bytes = found.payload;
  }
  parts_.transport.Send(action.to, action.message, last, std::move(bytes));
}

void RoundDriver::Do(const Apply& action) {
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kApply;
  turn.step = action.result.step;
  turn.result = action.result;
  if (!action.result.is_void()) {
    turn.divisor = action.result.shards.front().divisor;
    for (const ShardResult& shard : action.result.shards) {
      turn.sums.push_back(
          parts_.store.FindResult(turn.step, shard.shard, shard.hash).payload);
      if (turn.sums.back() == nullptr) {
        return parts_.turns.End(
            Internal("a result was held whose bytes are not here"));
      }
    }
  }
  const auto record = events_.OnApply(
      action.result, member_->view(),
      member_->phase() == RoundMember::Phase::kRunning, parts_.clock.Now(),
      absl::ToUnixMillis(parts_.clock.Today()));
  const int64_t next = turn.step + 1;
  hashes_[next] = action.result.hash();
  if (hashes_.size() > kKnownHashes) hashes_.erase(hashes_.begin());
  links_.ClearOwing();
  // The compute thread owns the part's memory again when it gets this turn.
  part_ = {};
  sum_.Forget(next);
  parts_.transport.Forget(next);
  parts_.store.Forget(next - kKeptResults);
  std::erase_if(parked_, [this](const RoundMessage& message) {
    return message.committed_through < member_->next();
  });
  parts_.turns.Push(std::move(turn));
  if (record.has_value()) parts_.observer.OnRound(*record);
}

void RoundDriver::Do(const Suspect& action) {
  Log(LogLevel::kWarn, "a member owes an answer for a lease",
      {{"worker", action.member.worker.value}, {"step", member_->next()}});
  links_.SetOwing(action.member, parts_.clock.Now());
  report_changed_ = true;
}

void RoundDriver::Do(const ReportMismatch& action) {
  ++events_.stats().mismatches;
  for (const auto& [member, hash] : action.state_hashes) {
    Log(LogLevel::kError, "states differ that must be equal: rounds stop",
        {{"step", action.step},
         {"worker", member.worker.value},
         {"hash", absl::Hex(hash)}});
  }
  mismatch_found_ = action;
  report_changed_ = true;
}

void RoundDriver::Do(const TakeState& action) {
  ++states_taken_;
  hashes_.clear();
  hashes_[action.next] = member_->last_hash();
  part_ = {};
  sum_.Forget(action.next);
  parts_.transport.Forget(action.next);
  parts_.store.Forget(action.next);
  PushRestore(action);
  AskForNext(action.from);
}

// Tells the sum whose parts this member sums, if view or step has changed.
void RoundDriver::ExpectParts() {
  if (!member_->view().has_value()) return;
  const std::pair<ViewId, int64_t> now = {member_->view()->id, member_->next()};
  if (now == expected_) return;
  expected_ = now;
  events_.stats().serves = false;
  const std::vector<MemberId> members =
      MembersAt(*member_->view(), member_->next());
  if (members.empty()) return;
  for (int shard = 0; shard < shape_.shards(); ++shard) {
    if (ServerOf(*member_->view(), mode_, member_->next(), shard) !=
        options_.self) {
      continue;
    }
    events_.stats().serves = true;
    sum_.Expect(member_->next(), shard, members);
  }
}

void RoundDriver::Publish() {
  // A joiner without a state has applied no steps: only a step proves that it
  // has come.
  DropFetching([this](const MemberId& joiner) {
    return heard_[joiner] >= std::max<int64_t>(1, offer_.next);
  });
  const bool listens = member_->phase() == RoundMember::Phase::kListening;
  GroupDriver::Publish(has_state_ || member_->state_hash() != 0, !listens,
                       {.phase = member_->phase(),
                        .has_taken_part = member_->has_taken_part(),
                        .level = listens && IsLevel()});
}

// A listener that lags fetches more results first, or another state.
bool RoundDriver::IsLevel() const {
  return has_state_ && (group_next_ - member_->next() <= kStepsAhead ||
                        states_taken_ >= kMostStates);
}

MemberReport RoundDriver::Report(Instant now) const {
  MemberReport report = GroupDriver::Report(now);
  if (!member_.has_value()) return report;
  report.state_step = member_->state_steps();
  report.state_hash = member_->state_hash();
  AddAwaited(member_->Awaited(), report.peers);
  if (mismatch_found_.has_value()) {
    report.mismatch_step = mismatch_found_->step;
    report.mismatch = mismatch_found_->state_hashes;
  }
  return report;
}

RoundStats RoundDriver::Stats() const {
  RoundStats stats = events_.stats();
  if (member_.has_value()) {
    stats.deadline_seconds = absl::ToDoubleSeconds(member_->deadline());
  }
  return stats;
}

}  // namespace paceline

#include "worker/round_driver.h"

#include <algorithm>
#include <utility>

#include "core/base/random.h"
#include "core/obs/log.h"
#include "worker/round_part.h"

namespace paceline {
namespace {

constexpr size_t kMostParked = 256;

RoundOptions OptionsOf(const RoundDeskOptions& options) {
  RoundOptions round;
  round.attempt = options.attempt;
  round.shards = options.aggregation.shards;
  round.mode = options.aggregation.mode == "central" ? ServerMode::kCentral
                                                     : ServerMode::kRolling;
  round.min_parts = options.aggregation.min_parts;
  round.deadline.ceiling = absl::Seconds(options.aggregation.deadline);
  round.deadline.floor = std::min(round.deadline.floor, round.deadline.ceiling);
  round.retry_period = options.retry_period;
  round.lease = options.lease;
  round.kept_results = kKeptResults;
  return round;
}

// The result that a message brings, for those that bring a whole one.
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

RoundDriver::RoundDriver(const RoundDeskOptions& options,
                         const RoundShape& shape, const RoundDriverParts& parts)
    : options_(options),
      shape_(shape),
      parts_(parts),
      mode_(OptionsOf(options).mode),
      chronicle_(options.self, mode_),
      applied_(options.next),
      copies_(parts.transport, parts.turns),
      ticked_(parts.clock.Now()) {}

uint64_t RoundDriver::VariantOf(ViewId view) {
  return MixSeed(
      {static_cast<uint64_t>(view.term), static_cast<uint64_t>(view.counter)});
}

// --- The group ---

void RoundDriver::OnGroup(const GroupOrder& group) {
  group_ = group;
  parts_.transport.SetPeers(group.workers);
  const bool counted = Contains(group.view, options_.self);
  if (!member_.has_value()) {
    // Who is not in the first view has nothing that the group agreed on.
    has_state_ = counted;
    member_.emplace(OptionsOf(options_), options_.self,
                    counted ? options_.next : 0,
                    counted ? options_.state_hash : 0);
  }
  ForgetOthersThan(group.workers);
  if (counted) {
    AdoptView(group.view);
  } else {
    FollowDonor(group.view);
  }
  Settle();
}

void RoundDriver::ForgetOthersThan(const std::vector<GroupWorker>& workers) {
  std::set<MemberId> there;
  for (const GroupWorker& worker : workers) there.insert(worker.id);
  links_.Retain(workers);
  copies_.Retain(there);
  std::erase_if(heard_, [&there](const auto& each) {
    return there.count(each.first) == 0;
  });
}

void RoundDriver::AdoptView(const View& view) {
  const std::optional<View> before = member_->view();
  if (before.has_value() && view.id <= before->id) return;
  const Instant now = parts_.clock.Now();
  joined_ = true;
  chronicle_.OnView(before, view, member_->next(), now);
  std::set<MemberId> members;
  for (const ViewMember& member : view.members) members.insert(member.id);
  parts_.sum.Retain(members);
  links_.ClearOwing();
  mismatch_found_.reset();
  Log(LogLevel::kInfo, "adopted a view",
      {{"view", ViewText(view.id)},
       {"members", view.members.size()},
       {"step", member_->next()}});
  member_->OnView(view, now, actions_);
}

void RoundDriver::FollowDonor(const View& view) {
  if (joined_) {
    if (view.id <= member_->view()->id) return;
    return parts_.turns.End(ExcludedError(view.id, member_->view()->id));
  }
  if (Contains(view, donor_) && !links_.IsBroken(donor_)) return;
  // The first that can be reached, as far as one knows.
  for (const ViewMember& member : view.members) {
    if (links_.IsBroken(member.id)) continue;
    donor_ = member.id;
    return member_->Join(donor_, parts_.clock.Now(), actions_);
  }
}

void RoundDriver::OnLink(const MemberId& peer, bool up, bool refused) {
  const Instant now = parts_.clock.Now();
  links_.OnLink(peer, up, refused, now);
  if (up) {
    chronicle_.OnBack(peer);
  } else {
    chronicle_.OnLost(peer, now);
  }
  if (member_.has_value() && !joined_) FollowDonor(group_.view);
  report_changed_ = true;
  Settle();
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
  if (!joined_) {
    group_next_ = std::max(group_next_, message.committed_through);
  }
  int64_t& heard = heard_[message.from];
  // Nobody can be further than one step ahead of everybody.
  heard =
      std::max(heard, std::min(message.committed_through, member_->next() + 1));
  if (IsTooMuch(message.body)) return;  // it comes again
  if (std::holds_alternative<PartOffer>(message.body)) {
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
  state_ = nullptr;  // of a copy that came once more
}

// The state machine would drop these, and the sender repeat them after a while:
// of a view that is on its way here, or of a group that is level already.
bool RoundDriver::IsEarly(const RoundMessage& message) const {
  const std::optional<View>& view = member_->view();
  if (!view.has_value()) return false;
  const Body& body = message.body;
  const bool of_rounds = std::holds_alternative<PartOffer>(body) ||
                         std::holds_alternative<Spread>(body) ||
                         std::holds_alternative<Hold>(body) ||
                         std::holds_alternative<Commit>(body);
  if (message.view > view->id) {
    return of_rounds || std::holds_alternative<Answer>(body) ||
           std::holds_alternative<Level>(body) ||
           std::holds_alternative<LevelDone>(body) ||
           std::holds_alternative<Fetch>(body) ||
           std::holds_alternative<Fetched>(body);
  }
  // A hold is a leveller's business too.
  return message.view == view->id && of_rounds &&
         !std::holds_alternative<Hold>(body) &&
         member_->phase() == RoundMember::Phase::kLevelling;
}

bool RoundDriver::IsTooMuch(const Body& body) const {
  if (!std::holds_alternative<Spread>(body) &&
      !std::holds_alternative<Committed>(body)) {
    return false;
  }
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
  // Those who lack results ask for one after the other, without a pause.
  if (std::holds_alternative<Committed>(message.body) &&
      member_->next() > before) {
    AskForNext(message.from);
  }
}

void RoundDriver::AskForNext(const MemberId& from) {
  actions_.push_back(SendMessage{from, Message(Want{member_->next(), 0})});
}

// The bytes are looked at first; what was refused stays a word: "nothing
// usable".
void RoundDriver::TakeOffer(const RoundMessage& message) {
  const auto& offer = std::get<PartOffer>(message.body);
  if (offer.shard < 0 || offer.shard >= shape_.shards() || offer.samples < 0) {
    return Refuse(message, "a shard or a number of samples that cannot be");
  }
  if (offer.step < member_->next() || offer.samples == 0 ||
      shape_.values(offer.shard) == 0) {
    return OnPartChecked(message, PartCheck::kFine);
  }
  const auto part = parts_.sum.FindPart(offer.step, offer.shard, message.from);
  // Dropped where they came too early: they come again with a later offer.
  if (part == nullptr || !part->complete()) return;
  parts_.sum.Check(message);
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
    chronicle_.OnOffer(message.from, part, check, parts_.clock.Now());
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
  if (const auto* copy = std::get_if<Copy>(&message.body)) {
    return CheckCopy(*copy, payload);
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
    ++chronicle_.stats().refused_results;
    Refuse(message, "a result whose hash does not match its bytes");
    return Ready::kRefused;
  }
  return missing ? Ready::kWaits : Ready::kYes;
}

RoundDriver::Ready RoundDriver::CheckCopy(
    const Copy& copy, const std::shared_ptr<RoundPayload>& payload) {
  if (payload == nullptr || copy.state_hash == 0) return Ready::kRefused;
  if (payload->size() != options_.state_bytes ||
      HashBytes(payload->bytes()) != copy.state_hash) {
    ++chronicle_.stats().refused_results;
    Log(LogLevel::kWarn,
        "a copy of the state was refused: its bytes are others than its hash",
        {{"step", copy.next}});
    return Ready::kRefused;
  }
  state_ = payload;
  return Ready::kYes;
}

void RoundDriver::Refuse(const RoundMessage& message, absl::string_view why) {
  ++chronicle_.stats().refused_messages;
  Log(LogLevel::kWarn, "a message of a round was refused",
      {{"worker", message.from.worker.value},
       {"message", MessageText(message)},
       {"why", why}});
}

// The newest of a kind from each; what is of the past goes.
void RoundDriver::Park(RoundMessage message) {
  const std::string text = MessageText(message);
  std::erase_if(parked_, [&](const RoundMessage& each) {
    return each.from == message.from && MessageText(each) == text;
  });
  parked_.push_back(std::move(message));
  if (parked_.size() > kMostParked) parked_.pop_front();
}

void RoundDriver::OnBytes() {
  std::deque<RoundMessage> waiting;
  waiting.swap(parked_);
  for (RoundMessage& message : waiting) OnMessage(std::move(message), nullptr);
}

// --- From this worker ---

void RoundDriver::OnPart(OwnPart part) {
  if (!member_.has_value() || part.offers.empty()) return;
  const int64_t step = part.offers.front().step;
  // Late: the compute thread waits until nobody keeps its memory.
  if (step < member_->next()) return;
  part_ = std::move(part);
  std::vector<PartOffer> offers = part_.offers;
  if (part_.unusable && member_->view().has_value() &&
      !MembersAt(*member_->view(), step).empty()) {
    // What others refuse at their border is refused at this one.
    for (PartOffer& offer : offers) {
      if (ServerOf(*member_->view(), mode_, step, offer.shard) ==
          options_.self) {
        offer.samples = 0;
      }
    }
  }
  const Instant now = parts_.clock.Now();
  if (step == member_->next()) {
    chronicle_.OnOffer(options_.self, offers.front(),
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
  if (request.step == member_->next()) chronicle_.OnJudged(verdict.dropped);
  member_->OnAggregated(request, hash, verdict.divisor, parts_.clock.Now(),
                        actions_);
  Settle();
}

void RoundDriver::OnApplied(int64_t next, uint64_t state_hash) {
  if (!member_.has_value()) return;
  applied_ = next;
  has_state_ = true;
  member_->OnState(next, state_hash);
  Settle();
}

void RoundDriver::OnTick() {
  ticked_ = parts_.clock.Now();
  if (!member_.has_value()) return;
  member_->OnTick(ticked_, actions_);
  Settle();
}

Instant RoundDriver::DueAt() const {
  const Instant tick = ticked_ + options_.retry_period;
  if (!member_.has_value()) return tick;
  return std::min(member_->DueAt().value_or(tick), tick);
}

RoundMessage RoundDriver::Message(Body body) const {
  RoundMessage message;
  message.attempt = options_.attempt;
  if (member_->view().has_value()) message.view = member_->view()->id;
  message.from = options_.self;
  message.committed_through = member_->next();
  message.committed_hash = member_->last_hash();
  message.body = std::move(body);
  return message;
}

uint64_t RoundDriver::HashAfter(int64_t steps) const {
  const auto found = hashes_.find(steps);
  return found == hashes_.end() ? 0 : found->second;
}

}  // namespace paceline

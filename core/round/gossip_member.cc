#include "core/round/gossip_member.h"

#include <algorithm>

#include "core/base/random.h"

namespace paceline {
namespace {

// Keeps these draws apart from others of (seed, small number).
constexpr uint64_t kGossipStream = 0x676f73736970;  // "gossip"

// The most early offers of all partners; honest members send far fewer.
constexpr size_t kMostEarly = 1024;

GossipOutcome OutcomeOf(ParameterAnswer::Verdict bytes) {
  using Verdict = ParameterAnswer::Verdict;
  if (bytes == Verdict::kNotFinite) return GossipOutcome::kNotFinite;
  // kBehind: its partner has been told to go on.
  return bytes == Verdict::kBehind ? GossipOutcome::kPast
                                   : GossipOutcome::kWrongBytes;
}

}  // namespace

std::vector<std::pair<MemberId, MemberId>> GossipPairs(
    const std::vector<MemberId>& members, uint64_t seed, int64_t step) {
  std::vector<MemberId> order = members;
  SplitMix64 random(
      MixSeed({kGossipStream, seed, static_cast<uint64_t>(step)}));
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  std::vector<std::pair<MemberId, MemberId>> pairs;
  for (size_t i = 0; i + 1 < order.size(); i += 2) {
    pairs.push_back(std::minmax(order[i], order[i + 1]));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::optional<MemberId> GossipPartner(const std::vector<MemberId>& members,
                                      uint64_t seed, int64_t step,
                                      const MemberId& self) {
  for (const auto& [first, second] : GossipPairs(members, seed, step)) {
    if (first == self) return second;
    if (second == self) return first;
  }
  return std::nullopt;
}

void PartnerWait::Add(absl::Duration wait) {
  waits_.push_back(wait);
  if (waits_.size() > static_cast<size_t>(policy_.remembered)) {
    waits_.pop_front();
  }
}

absl::Duration PartnerWait::Get() const {
  if (waits_.empty()) return policy_.ceiling;
  std::vector<absl::Duration> sorted(waits_.begin(), waits_.end());
  const auto index =
      std::min(sorted.size() - 1,
               static_cast<size_t>(policy_.quantile *
                                   static_cast<double>(sorted.size())));
  const auto place = sorted.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(sorted.begin(), place, sorted.end());
  return std::min(std::max(policy_.factor * *place, policy_.floor),
                  policy_.ceiling);
}

GossipMember::GossipMember(const GossipOptions& options, MemberId self,
                           int64_t next, bool has_state)
    : options_(options), self_(self), has_state_(has_state), next_(next) {}

// --- Sending ----------------------------------------------------------------

RoundMessage GossipMember::Message(Body body) const {
  RoundMessage message;
  message.attempt = options_.attempt;
  if (view_.has_value()) message.view = view_->id;
  message.from = self_;
  message.committed_through = next_;
  message.body = std::move(body);
  return message;
}

void GossipMember::Offer(const Call& call) {
  exchange_->repeated = call.now;
  Send(exchange_->partner, ParameterOffer{exchange_->step, exchange_->hash},
       call);
}

// --- The group --------------------------------------------------------------

void GossipMember::OnView(const View& view, Instant now,
                          GossipActions& actions) {
  if (view_.has_value() && view.id <= view_->id) return;
  view_ = view;
  const auto gone = [this](const auto& each) {
    return !Contains(*view_, each.first);
  };
  std::erase_if(memory_, gone);
  std::erase_if(waits_, gone);
  // early_ stays: its senders may be in the next view.
  if (exchange_.has_value() && !Contains(view, exchange_->partner)) {
    End(GossipOutcome::kLost, {now, actions});
  }
  for (const ViewMember& member : view.members) {
    if (member.id != self_ || joined_) continue;
    joined_ = true;
    next_ = std::max(next_, member.from_step);
    AnswerEarly({now, actions});
  }
}

void GossipMember::OnLink(const MemberId& peer, bool dead, Instant now,
                          GossipActions& actions) {
  if (!dead) {
    dead_.erase(peer);
    return;
  }
  dead_.insert(peer);
  if (exchange_.has_value() && exchange_->partner == peer) {
    End(GossipOutcome::kLost, {now, actions});
  }
}

void GossipMember::Join(const MemberId& donor, Instant now,
                        GossipActions& actions) {
  donor_ = donor;
  asked_ = now;
  if (!has_state_) Send(donor, StateRequest{}, {now, actions});
}

// --- Events -----------------------------------------------------------------

void GossipMember::OnMessage(const RoundMessage& message, Verdict bytes,
                             Instant now, GossipActions& actions) {
  if (message.attempt != options_.attempt || message.from == self_) return;
  const MemberId& from = message.from;
  if (const auto* offer = std::get_if<ParameterOffer>(&message.body)) {
    OnOffer(from, *offer, bytes, {now, actions});
  } else if (const auto* answer = std::get_if<ParameterAnswer>(&message.body)) {
    OnAnswer(from, *answer, {now, actions});
  } else if (std::holds_alternative<StateRequest>(message.body)) {
    if (is_member() && has_state_) actions.push_back(OfferState{from});
  } else if (const auto* state = std::get_if<StateOffer>(&message.body)) {
    OnState(from, *state, {now, actions});
  }
}

void GossipMember::OnState(const MemberId& from, const StateOffer& offer,
                           const Call& call) {
  if (has_state_) return;
  has_state_ = true;
  next_ = std::max(next_, offer.next);
  call.actions.push_back(TakeState{from, offer.next, offer.state_hash});
}

void GossipMember::OnParameters(int64_t step, uint64_t hash, Instant now,
                                GossipActions& actions) {
  if (step != next_ || !needs_part()) return;
  Exchange exchange;
  exchange.step = step;
  exchange.hash = hash;
  exchange.began = now;
  const std::optional<MemberId> partner =
      GossipPartner(MembersAt(*view_, step), options_.seed, step, self_);
  if (partner.has_value()) exchange.partner = *partner;
  exchange_ = exchange;
  if (!partner.has_value() || hash == 0) {
    End(GossipOutcome::kAlone, {now, actions});
  } else if (dead_.count(*partner) > 0) {
    End(GossipOutcome::kLost, {now, actions});
  } else {
    Offer({now, actions});
    AnswerEarly({now, actions});
  }
}

void GossipMember::AnswerEarly(const Call& call) {
  const int64_t step = next_;  // its exchange may not be open yet
  auto early = std::exchange(early_, {});
  for (auto& [key, each] : early) {
    if (key.second > step) {
      early_.emplace(key, each);
    } else {
      OnOffer(key.first, each.offer, each.bytes, call);
    }
  }
}

void GossipMember::OnTick(Instant now, GossipActions& actions) {
  if (exchange_.has_value()) {
    if (now >= *DueAt()) return End(GossipOutcome::kLate, {now, actions});
    if (now - exchange_->repeated < options_.retry_period) return;
    return Offer({now, actions});
  }
  if (has_state_ || !donor_.worker.assigned()) return;
  if (now - asked_ >= options_.retry_period) Join(donor_, now, actions);
}

std::optional<Instant> GossipMember::DueAt() const {
  if (!exchange_.has_value()) return std::nullopt;
  return exchange_->began + PatienceWith(exchange_->partner);
}

// --- An exchange ------------------------------------------------------------

void GossipMember::OnOffer(const MemberId& from, const ParameterOffer& offer,
                           Verdict bytes, const Call& call) {
  if (offer.step < next_) return OnPastOffer(from, offer, call);
  if (!exchange_.has_value() || offer.step > next_) {
    // The sender learns at once that its offer is refused.
    if (bytes != Verdict::kTaken) Reply(from, offer, bytes, call);
    if (bytes == Verdict::kBehind) return;
    // A member that is refused goes on to its next step, which is early too.
    if (early_.size() < kMostEarly) early_[{from, offer.step}] = {offer, bytes};
    return;
  }
  if (from != exchange_->partner) {
    return Reply(from, offer, Verdict::kOtherPartner, call);
  }
  TakeOffer(offer, bytes, call);
}

void GossipMember::OnPastOffer(const MemberId& from,
                               const ParameterOffer& offer, const Call& call) {
  const auto found = memory_.find(from);
  if (found == memory_.end()) return Reply(from, offer, Verdict::kPast, call);
  Memory& memory = found->second;
  const bool averaged =
      memory.averaged.step == offer.step && memory.averaged.hash == offer.hash;
  // The partner came after all: next time this member waits as long.
  if (memory.gave_up == offer.step) {
    memory.gave_up = -1;
    Learn(from, call.now - memory.began);
  }
  Reply(from, offer, averaged ? Verdict::kTaken : Verdict::kPast, call);
}

void GossipMember::TakeOffer(const ParameterOffer& offer, Verdict bytes,
                             const Call& call) {
  const MemberId partner = exchange_->partner;
  // One process has one set of parameters after a step.
  if (exchange_->theirs.has_value() && *exchange_->theirs != offer.hash) return;
  Reply(partner, offer, bytes, call);
  if (bytes != Verdict::kTaken) return End(OutcomeOf(bytes), call);
  exchange_->theirs = offer.hash;
  TryAverage(call);
}

void GossipMember::OnAnswer(const MemberId& from, const ParameterAnswer& answer,
                            const Call& call) {
  if (!exchange_.has_value() || from != exchange_->partner ||
      answer.step != exchange_->step || answer.hash != exchange_->hash) {
    return;
  }
  switch (answer.verdict) {
    case Verdict::kTaken:
      exchange_->taken = true;
      return TryAverage(call);
    case Verdict::kNotFinite:
    case Verdict::kWrongBytes:
      return End(GossipOutcome::kRefused, call);
    case Verdict::kOtherPartner:
      return End(GossipOutcome::kOtherPartner, call);
    case Verdict::kBehind:
      return End(GossipOutcome::kLate, call);
    case Verdict::kPast:
      return End(GossipOutcome::kPast, call);
  }
}

void GossipMember::TryAverage(const Call& call) {
  if (exchange_->taken && exchange_->theirs.has_value()) {
    End(GossipOutcome::kAveraged, call);
  }
}

void GossipMember::End(GossipOutcome outcome, const Call& call) {
  const Exchange exchange = *std::exchange(exchange_, {});
  EndExchange end{exchange.step, exchange.partner, outcome, 0,
                  call.now - exchange.began};
  Memory& memory = memory_[exchange.partner];
  if (outcome == GossipOutcome::kAveraged) {
    end.hash = *exchange.theirs;
    memory.averaged = {exchange.step, end.hash};
    Learn(exchange.partner, end.waited);
  } else if (outcome == GossipOutcome::kLate) {
    memory.gave_up = exchange.step;
    memory.began = exchange.began;
  }
  next_ = exchange.step + 1;
  call.actions.push_back(end);
}

absl::Duration GossipMember::PatienceWith(const MemberId& partner) const {
  const auto known = waits_.find(partner);
  return known == waits_.end() ? options_.partner_wait.ceiling
                               : known->second.Get();
}

absl::Duration GossipMember::longest_wait() const {
  absl::Duration longest;
  if (!view_.has_value()) return longest;
  for (const ViewMember& member : view_->members) {
    if (member.id == self_) continue;
    longest = std::max(longest, PatienceWith(member.id));
  }
  return longest;
}

}  // namespace paceline

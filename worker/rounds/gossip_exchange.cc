#include "worker/rounds/gossip_exchange.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/obs/log.h"
#include "core/round/rules/rule_blocks.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {
namespace {

// A partner may have parameters here for the step in which it meets this
// member, and for the next step if it is ahead.
constexpr StoreLimits kGossipStore{.steps = 2, .variants = 1};

GossipOptions GossipOptionsOf(const RoundExchangeOptions& options) {
  GossipOptions gossip;
  gossip.attempt = options.attempt;
  gossip.seed = options.seed;
  gossip.partner_wait.ceiling = absl::Seconds(options.aggregation.deadline);
  gossip.partner_wait.floor =
      std::min(gossip.partner_wait.floor, gossip.partner_wait.ceiling);
  gossip.retry_period = options.retry_period;
  return gossip;
}

absl::Span<const float> ValuesOf(const RoundPayload& payload) {
  return {reinterpret_cast<const float*>(payload.bytes().data()),
          payload.size() / sizeof(float)};
}

// Why an exchange with a partner did not average.  Nothing: it is not the
// partner's fault, or the partner reports it.
std::optional<SkipReason> FaultOf(GossipOutcome outcome) {
  static constexpr std::pair<GossipOutcome, SkipReason> kFaults[] = {
      {GossipOutcome::kLate, SkipReason::kLate},
      {GossipOutcome::kLost, SkipReason::kLost},
      {GossipOutcome::kNotFinite, SkipReason::kNotFinite},
      {GossipOutcome::kWrongBytes, SkipReason::kHash}};
  for (const auto& [of, fault] : kFaults) {
    if (of == outcome) return fault;
  }
  return std::nullopt;
}

}  // namespace

// --- The group --------------------------------------------------------------

void GossipDriver::Begin(bool counted) {
  member_.emplace(GossipOptionsOf(options_), options_.self,
                  counted ? options_.next : 0, /*has_state=*/counted);
}

void GossipDriver::OnWorkers(
    const std::function<bool(const MemberId&)>& is_gone) {
  parts_.store.Retain(group_.workers);
  std::erase_if(offered_,
                [&](const auto& each) { return is_gone(each.first.first); });
}

void GossipDriver::OnPeer(const MemberId& peer, Instant now) {
  if (!member_.has_value()) return;
  member_->OnLink(peer, links_.IsDead(peer), now, actions_);
}

// --- Messages ---------------------------------------------------------------

void GossipDriver::OnMessage(const RoundMessage& message,
                             std::shared_ptr<RoundPayload> payload) {
  if (!member_.has_value()) return;
  if (message.attempt != options_.attempt) {
    return Refuse(message, "it is of another attempt");
  }
  int64_t& heard = heard_[message.from];
  heard = std::max(heard, message.committed_through);
  Verdict bytes = Verdict::kTaken;
  if (const auto* offer = std::get_if<ParameterOffer>(&message.body)) {
    bytes = Look(message.from, *offer, payload);
  } else if (std::holds_alternative<StateOffer>(message.body)) {
    return FetchState(message);
  } else if (!IsAnyOf<ParameterAnswer, StateRequest>(message.body)) {
    return Refuse(message, "members of this job gossip and have no rounds");
  }
  member_->OnMessage(message, bytes, parts_.clock.Now(), actions_);
  Settle();
}

// Checks each offer once, however often it is repeated.
GossipDriver::Verdict GossipDriver::Look(
    const MemberId& from, const ParameterOffer& offer,
    const std::shared_ptr<RoundPayload>& payload) {
  if (!member_->Wants(offer.step)) return Verdict::kTaken;
  if (const auto known = offered_.find({from, offer.step});
      known != offered_.end()) {
    // The first offer of a step counts.
    return known->second.hash == offer.hash ? known->second.bytes
                                            : Verdict::kWrongBytes;
  }
  // The store keeps no bytes: this member is far behind, or the sender has sent
  // none.
  if (payload == nullptr) return Verdict::kBehind;
  Offered offered{offer.hash, payload, Verdict::kTaken};
  const char* why = nullptr;
  if (payload->size() != options_.values * sizeof(float) ||
      payload->hash() != offer.hash) {
    offered.bytes = Verdict::kWrongBytes;
    why = "the bytes are not those of their hash";
  } else if (FindNonFinite(ValuesOf(*payload)) < options_.values) {
    offered.bytes = Verdict::kNotFinite;
    why = "NaN or infinity in them";
  }
  if (why != nullptr) {
    Log(LogLevel::kWarn, "parameters were refused at the border",
        {{"worker", from.worker.value}, {"step", offer.step}, {"why", why}});
    offered.payload = nullptr;  // not needed
  }
  offered_[{from, offer.step}] = offered;
  return offered.bytes;
}

void GossipDriver::OnRefusedBytes(const MemberId& from, absl::string_view why) {
  ++stats_.refused_messages;
  Log(LogLevel::kWarn, "bytes were refused at the border",
      {{"worker", from.worker.value}, {"why", why}});
}

// --- From this worker -------------------------------------------------------

void GossipDriver::OnParameters(OwnParameters own) {
  if (!member_.has_value()) return;
  own_ = std::move(own);
  member_->OnParameters(own_.step, own_.hash, parts_.clock.Now(), actions_);
  Settle();
}

// --- Actions ----------------------------------------------------------------

void GossipDriver::Settle() {
  while (!actions_.empty()) {
    const GossipActions now = std::exchange(actions_, {});
    for (const GossipAction& action : now) {
      std::visit([this](const auto& each) { Do(each); }, action);
    }
  }
  Publish();
}

void GossipDriver::Do(const SendMessage& action) {
  const auto* offer = std::get_if<ParameterOffer>(&action.message.body);
  if (offer == nullptr) {
    return parts_.transport.Send(action.to, action.message, {}, nullptr);
  }
  if (own_.step != offer->step || own_.payload == nullptr) return;
  const PayloadKey key{PayloadKey::Kind::kPart, offer->step, 0, 0};
  for (int i = 0; i < (own_.duplicates ? 2 : 1); ++i) {
    parts_.transport.Send(action.to, action.message, key, own_.payload);
  }
}

void GossipDriver::Do(const EndExchange& action) {
  RoundTurn turn;
  turn.kind = RoundTurn::Kind::kMeet;
  turn.step = action.step;
  if (action.outcome == GossipOutcome::kAveraged) {
    turn.theirs = std::move(offered_[{action.partner, action.step}].payload);
    if (turn.theirs == nullptr) {
      return parts_.turns.End(
          Internal("parameters were taken that are not here"));
    }
  }
  own_ = {};
  const int64_t next = action.step + 1;
  std::erase_if(offered_,
                [next](const auto& each) { return each.first.second < next; });
  parts_.transport.Forget(next);
  parts_.store.Forget(next);
  Count(action);
  parts_.turns.Push(std::move(turn));
}

void GossipDriver::Count(const EndExchange& end) {
  stats_.last_contributors = 1;
  if (!end.partner.worker.assigned()) return;
  const double seconds = absl::ToDoubleSeconds(end.waited);
  stats_.seconds += seconds;
  if (end.outcome == GossipOutcome::kAveraged) {
    ++stats_.committed;
    stats_.last_contributors = 2;
    return;
  }
  ++stats_.void_rounds;
  if (end.outcome == GossipOutcome::kOtherPartner) {
    ++stats_.skipped[static_cast<size_t>(SkipReason::kDivision)];
  }
  const std::optional<SkipReason> fault = FaultOf(end.outcome);
  if (!fault.has_value()) return;
  ++stats_.skipped[static_cast<size_t>(*fault)];
  v1::RoundRecord record;
  record.set_step(end.step);
  if (member_->view().has_value()) {
    *record.mutable_view() = ToProto(member_->view()->id);
  }
  record.set_seconds(seconds);
  record.set_contributors(1);
  AddSkip(end.partner, *fault, record);
  record.set_unix_ms(absl::ToUnixMillis(parts_.clock.Today()));
  parts_.observer.OnRound(record);
}

void GossipDriver::Publish() {
  if (!member_.has_value()) return;
  // A joiner that is a member has taken its state.
  DropFetching([this](const MemberId& joiner) {
    return member_->view().has_value() && Contains(*member_->view(), joiner);
  });
  const bool is_member = member_->is_member();
  const bool has_state = member_->has_state();
  // No hash of the state: members' states may differ.
  GroupDriver::Publish(has_state, is_member,
                       {.has_taken_part = is_member && has_state,
                        .level = !is_member && has_state});
}

RoundStats GossipDriver::Stats() const {
  RoundStats stats = stats_;
  if (member_.has_value()) {
    stats.deadline_seconds = absl::ToDoubleSeconds(member_->longest_wait());
  }
  return stats;
}

// --- The exchange
// -------------------------------------------------------------

GossipExchange::GossipExchange(RoundExchangeOptions options, const Clock& clock,
                               RoundObserver& observer)
    : DriverExchange(options, RoundShape(options.values, 1, Codec::kRaw),
                     kGossipStore, clock, observer) {}

GossipExchange::~GossipExchange() { Stop(); }

absl::Status GossipExchange::Start(RoundTransport& transport) {
  StartThread(transport, [this] {
    return std::make_unique<GossipDriver>(options_, parts());
  });
  return absl::OkStatus();
}

void GossipExchange::Stop(absl::Status why) {
  Cancel(std::move(why));
  EndThread();
  JoinThread();
}

void GossipExchange::Meet(OwnParameters own) {
  turns_.OnPart(own.step);
  Post([own = std::move(own)](GossipDriver& driver) {
    driver.OnParameters(own);
  });
}

// --- The transport's threads ------------------------------------------------

absl::Status GossipExchange::CheckPayload(const MemberId& from,
                                          const PayloadKey& key,
                                          size_t bytes) const {
  if (key.kind == PayloadKey::Kind::kResult) {
    return InvalidArgument("worker ", from.worker.value,
                           " sends the result of step ", key.step,
                           ": members of this job gossip and agree on none");
  }
  if (key.step < 0 || key.shard != 0) {
    return InvalidArgument(
        "worker ", from.worker.value, " sends bytes of step ", key.step,
        ", shard ", key.shard, ": parameters are shard 0 of a step that is");
  }
  const size_t expected = options_.values * sizeof(float);
  if (bytes == expected && bytes > 0) return absl::OkStatus();
  return InvalidArgument(
      "worker ", from.worker.value, " sends ", bytes,
      " bytes of parameters for step ", key.step, ", where ", expected,
      " belong: it computes another model, or in another dtype");
}

absl::StatusOr<std::shared_ptr<RoundPayload>> GossipExchange::OnPayload(
    const MemberId& from, const PayloadKey& key, size_t bytes) {
  if (absl::Status bad = CheckPayload(from, key, bytes); !bad.ok()) {
    Post([from, why = std::string(bad.message())](
             GossipDriver& driver) { driver.OnRefusedBytes(from, why); },
         kMostTasks);
    return bad;
  }
  if (key.step < turns_.state().next) return nullptr;
  return store_.Incoming(from, key);
}

}  // namespace paceline

#include "core/rpc/convert/round_convert.h"

#include "absl/status/status.h"
#include "core/base/errors.h"
#include "core/rpc/convert/member_convert.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {
namespace {

// --- what CheckNumbers() lets pass -------------------------------------------

template <typename Message>
absl::Status Check(const Message& /*body*/) {
  return absl::OkStatus();
}

absl::Status CheckShard(int64_t shard) {
  return CheckCount("the shard", shard, kMaxRoundShards - 1);
}

absl::Status Check(const v1::Want& want) { return CheckShard(want.shard()); }

absl::Status Check(const v1::PartOffer& part) {
  PACELINE_RETURN_IF_ERROR(CheckShard(part.shard()));
  return CheckCount("samples", part.samples(), kMaxRoundSamples);
}

absl::Status Check(const v1::ShardResult& shard) {
  PACELINE_RETURN_IF_ERROR(CheckShard(shard.shard()));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("contributors", shard.contributors_size(), kMaxRoundMembers));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("arrivals", shard.arrivals_us_size(), kMaxRoundMembers));
  if (shard.divisor() == 0 && !shard.is_void()) {
    return InvalidArgument(
        "shard ", shard.shard(),
        " is to be divided by 0 and not void: need a divisor of at least 1");
  }
  MemberId last;
  for (const v1::Contributor& each : shard.contributors()) {
    PACELINE_RETURN_IF_ERROR(CheckCount("samples of a contributor",
                                        each.samples(), kMaxRoundSamples));
    PACELINE_ASSIGN_OR_RETURN(const MemberId member, FromProto(each.member()));
    if (member <= last) {
      return InvalidArgument("contributors of shard ", shard.shard(),
                             " are not in ascending order: worker ",
                             member.worker.value, " after worker ",
                             last.worker.value);
    }
    last = member;
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::Spread& spread) { return Check(spread.result()); }

absl::Status Check(const v1::RoundResult& result) {
  PACELINE_RETURN_IF_ERROR(
      CheckSize("shards", result.shards_size(), kMaxRoundShards));
  for (int i = 0; i < result.shards_size(); ++i) {
    PACELINE_RETURN_IF_ERROR(Check(result.shards(i)));
    // They are looked up by number.
    if (result.shards(i).shard() == i) continue;
    return InvalidArgument("result of step ", result.step(), ": shard ",
                           result.shards(i).shard(), " in place ", i);
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::Answer& answer) { return Check(answer.held()); }

absl::Status Check(const v1::ParameterAnswer& answer) {
  if (answer.verdict() >= v1::ParameterAnswer::VERDICT_TAKEN &&
      answer.verdict() <= v1::ParameterAnswer::VERDICT_BEHIND) {
    return absl::OkStatus();
  }
  return InvalidArgument("verdict ", static_cast<int>(answer.verdict()),
                         " on parameters, need 1 to 6");
}

// --- bodies ------------------------------------------------------------------

template <typename Struct, typename Message>
absl::StatusOr<Body> BodyOf(const Message& message) {
  PACELINE_RETURN_IF_ERROR(Check(message));
  return Taken<Struct>(message);
}

// A result and nothing else.
template <typename Struct>
absl::StatusOr<Body> WithResult(const v1::RoundResult& result) {
  PACELINE_RETURN_IF_ERROR(Check(result));
  return Struct{Taken<RoundResult>(result)};
}

absl::StatusOr<Body> BodyOf(const v1::RoundMessage& proto) {
  switch (proto.body_case()) {
    case v1::RoundMessage::kPart:
      return BodyOf<PartOffer>(proto.part());
    case v1::RoundMessage::kWant:
      return BodyOf<Want>(proto.want());
    case v1::RoundMessage::kSpread:
      return BodyOf<Spread>(proto.spread());
    case v1::RoundMessage::kHold:
      return BodyOf<Hold>(proto.hold());
    case v1::RoundMessage::kCommit:
      return BodyOf<Commit>(proto.commit());
    case v1::RoundMessage::kCommitted:
      return WithResult<Committed>(proto.committed());
    case v1::RoundMessage::kTooOld:
      return BodyOf<TooOld>(proto.too_old());
    case v1::RoundMessage::kAnswer:
      return BodyOf<Answer>(proto.answer());
    case v1::RoundMessage::kFetch:
      return BodyOf<Fetch>(proto.fetch());
    case v1::RoundMessage::kFetched:
      return WithResult<Fetched>(proto.fetched());
    case v1::RoundMessage::kLevel:
      return WithResult<Level>(proto.level());
    case v1::RoundMessage::kLevelDone:
      return LevelDone{};
    case v1::RoundMessage::kStateRequest:
      return StateRequest{};
    case v1::RoundMessage::kStateOffer:
      return BodyOf<StateOffer>(proto.state_offer());
    case v1::RoundMessage::kParameters:
      return BodyOf<ParameterOffer>(proto.parameters());
    case v1::RoundMessage::kParameterAnswer:
      return BodyOf<ParameterAnswer>(proto.parameter_answer());
    case v1::RoundMessage::BODY_NOT_SET:
      break;
  }
  return InvalidArgument(
      "a round's message without a body, or of a kind that this version does "
      "not know");
}

// Fills the body in, overloaded by its kind.
struct BodyWriter {
  void operator()(const PartOffer& part) { Write(part, *to.mutable_part()); }
  void operator()(const Want& want) { Write(want, *to.mutable_want()); }
  void operator()(const Spread& spread) { Write(spread, *to.mutable_spread()); }
  void operator()(const Hold& hold) { Write(hold, *to.mutable_hold()); }
  void operator()(const Commit& commit) { Write(commit, *to.mutable_commit()); }
  void operator()(const Committed& committed) {
    Write(committed.result, *to.mutable_committed());
  }
  void operator()(const TooOld& old) { Write(old, *to.mutable_too_old()); }
  void operator()(const Answer& answer) { Write(answer, *to.mutable_answer()); }
  void operator()(const Fetch& fetch) { Write(fetch, *to.mutable_fetch()); }
  void operator()(const Fetched& fetched) {
    Write(fetched.result, *to.mutable_fetched());
  }
  void operator()(const Level& level) {
    Write(level.result, *to.mutable_level());
  }
  void operator()(const LevelDone&) { to.mutable_level_done(); }
  void operator()(const StateRequest&) { to.mutable_state_request(); }
  void operator()(const StateOffer& offer) {
    Write(offer, *to.mutable_state_offer());
  }
  void operator()(const ParameterOffer& offer) {
    Write(offer, *to.mutable_parameters());
  }
  void operator()(const ParameterAnswer& answer) {
    Write(answer, *to.mutable_parameter_answer());
  }

  v1::RoundMessage& to;
};

}  // namespace

v1::RoundMessage ToProto(const RoundMessage& message) {
  v1::RoundMessage proto;
  *proto.mutable_view() = ToProto(message.view);
  proto.set_committed_through(message.committed_through);
  proto.set_committed_hash(message.committed_hash);
  std::visit(BodyWriter{proto}, message.body);
  return proto;
}

absl::StatusOr<RoundMessage> FromProto(const v1::RoundMessage& proto,
                                       int64_t attempt, const MemberId& from) {
  PACELINE_RETURN_IF_ERROR(CheckNumbers(proto));
  RoundMessage message;
  message.attempt = attempt;
  message.from = from;
  Read(proto.view(), message.view);
  message.committed_through = proto.committed_through();
  message.committed_hash = proto.committed_hash();
  PACELINE_ASSIGN_OR_RETURN(message.body, BodyOf(proto));
  return message;
}

}  // namespace paceline

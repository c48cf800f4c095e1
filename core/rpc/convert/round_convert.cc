#include "core/rpc/convert/round_convert.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/errors.h"
#include "core/rpc/convert/member_convert.h"

namespace paceline {
namespace {

absl::Status CheckShard(int64_t shard) {
  return CheckCount("the shard", shard, kMaxRoundShards - 1);
}

void Fill(const ShardResult& result, v1::ShardResult* proto) {
  proto->set_shard(result.shard);
  proto->set_is_void(result.is_void);
  proto->set_hash(result.hash);
  for (const Contributor& each : result.contributors) {
    v1::Contributor* contributor = proto->add_contributors();
    *contributor->mutable_member() = ToProto(each.member);
    contributor->set_samples(each.samples);
  }
  for (const absl::Duration each : result.arrivals) {
    proto->add_arrivals_us(absl::ToInt64Microseconds(each));
  }
  proto->set_divisor(result.divisor);
}

absl::StatusOr<ShardResult> ShardOf(const v1::ShardResult& proto) {
  PACELINE_RETURN_IF_ERROR(CheckShard(proto.shard()));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("contributors", proto.contributors_size(), kMaxRoundMembers));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("arrivals", proto.arrivals_us_size(), kMaxRoundMembers));
  PACELINE_RETURN_IF_ERROR(CheckCount("the divisor", proto.divisor()));
  if (proto.divisor() == 0 && !proto.is_void()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", proto.shard(),
        " is to be divided by 0 and not void: need a divisor of at least 1"));
  }
  ShardResult result;
  result.shard = proto.shard();
  result.is_void = proto.is_void();
  result.hash = proto.hash();
  result.divisor = proto.divisor();
  for (const v1::Contributor& each : proto.contributors()) {
    PACELINE_RETURN_IF_ERROR(CheckCount("samples of a contributor",
                                        each.samples(), kMaxRoundSamples));
    PACELINE_ASSIGN_OR_RETURN(const MemberId member, FromProto(each.member()));
    if (!result.contributors.empty() &&
        member <= result.contributors.back().member) {
      return absl::InvalidArgumentError(absl::StrCat(
          "contributors of shard ", proto.shard(),
          " are not in ascending order: worker ", member.worker.value,
          " after worker ", result.contributors.back().member.worker.value));
    }
    result.contributors.push_back({member, each.samples()});
  }
  for (const int64_t each : proto.arrivals_us()) {
    PACELINE_RETURN_IF_ERROR(CheckCount("an arrival in microseconds", each));
    result.arrivals.push_back(absl::Microseconds(each));
  }
  return result;
}

void Fill(const RoundResult& result, v1::RoundResult* proto) {
  proto->set_step(result.step);
  *proto->mutable_view() = ToProto(result.view);
  for (const ShardResult& shard : result.shards) {
    Fill(shard, proto->add_shards());
  }
}

absl::StatusOr<RoundResult> ResultOf(const v1::RoundResult& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", proto.step()));
  PACELINE_RETURN_IF_ERROR(
      CheckSize("shards", proto.shards_size(), kMaxRoundShards));
  RoundResult result;
  result.step = proto.step();
  PACELINE_ASSIGN_OR_RETURN(result.view, FromProto(proto.view()));
  for (const v1::ShardResult& each : proto.shards()) {
    PACELINE_ASSIGN_OR_RETURN(ShardResult shard, ShardOf(each));
    // They are looked up by number.
    if (shard.shard != static_cast<int>(result.shards.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("result of step ", proto.step(), ": shard ", shard.shard,
                       " in place ", result.shards.size()));
    }
    result.shards.push_back(std::move(shard));
  }
  return result;
}

// Overloaded by kind of body: one pair each.

void FillBody(const PartOffer& part, v1::RoundMessage& proto) {
  v1::PartOffer& to = *proto.mutable_part();
  to.set_step(part.step);
  to.set_shard(part.shard);
  to.set_samples(part.samples);
  to.set_hash(part.hash);
  to.set_division(part.division);
  to.set_not_finite(part.not_finite);
}
void FillBody(const Want& want, v1::RoundMessage& proto) {
  proto.mutable_want()->set_step(want.step);
  proto.mutable_want()->set_shard(want.shard);
}
void FillBody(const Spread& spread, v1::RoundMessage& proto) {
  proto.mutable_spread()->set_step(spread.step);
  Fill(spread.result, proto.mutable_spread()->mutable_result());
}
void FillBody(const Hold& hold, v1::RoundMessage& proto) {
  v1::Hold& to = *proto.mutable_hold();
  to.set_step(hold.step);
  to.set_hash(hold.hash);
  to.set_state_step(hold.state_step);
  to.set_state_hash(hold.state_hash);
}
void FillBody(const Commit& commit, v1::RoundMessage& proto) {
  proto.mutable_commit()->set_step(commit.step);
  proto.mutable_commit()->set_hash(commit.hash);
}
void FillBody(const Committed& committed, v1::RoundMessage& proto) {
  Fill(committed.result, proto.mutable_committed());
}
void FillBody(const TooOld& too_old, v1::RoundMessage& proto) {
  proto.mutable_too_old()->set_step(too_old.step);
}
void FillBody(const Answer& answer, v1::RoundMessage& proto) {
  v1::Answer& to = *proto.mutable_answer();
  to.set_next(answer.next);
  to.set_last_hash(answer.last_hash);
  if (answer.held.has_value()) Fill(*answer.held, to.mutable_held());
}
void FillBody(const Fetch& fetch, v1::RoundMessage& proto) {
  proto.mutable_fetch()->set_step(fetch.step);
  proto.mutable_fetch()->set_hash(fetch.hash);
}
void FillBody(const Fetched& fetched, v1::RoundMessage& proto) {
  Fill(fetched.result, proto.mutable_fetched());
}
void FillBody(const Level& level, v1::RoundMessage& proto) {
  Fill(level.result, proto.mutable_level());
}
void FillBody(const LevelDone&, v1::RoundMessage& proto) {
  proto.mutable_level_done();
}
void FillBody(const CopyRequest&, v1::RoundMessage& proto) {
  proto.mutable_copy_request();
}
void FillBody(const Copy& copy, v1::RoundMessage& proto) {
  v1::Copy& to = *proto.mutable_copy();
  to.set_next(copy.next);
  to.set_last_hash(copy.last_hash);
  to.set_state_hash(copy.state_hash);
}

void FillBody(const ParameterOffer& offer, v1::RoundMessage& proto) {
  proto.mutable_parameters()->set_step(offer.step);
  proto.mutable_parameters()->set_hash(offer.hash);
}
void FillBody(const ParameterAnswer& answer, v1::RoundMessage& proto) {
  v1::ParameterAnswer& to = *proto.mutable_parameter_answer();
  to.set_step(answer.step);
  to.set_hash(answer.hash);
  to.set_verdict(static_cast<v1::ParameterAnswer::Verdict>(answer.verdict));
}

absl::StatusOr<Body> PartOf(const v1::PartOffer& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", proto.step()));
  PACELINE_RETURN_IF_ERROR(CheckShard(proto.shard()));
  PACELINE_RETURN_IF_ERROR(
      CheckCount("samples", proto.samples(), kMaxRoundSamples));
  return PartOffer{proto.step(), proto.shard(),    proto.samples(),
                   proto.hash(), proto.division(), proto.not_finite()};
}

absl::StatusOr<Body> WantOf(const v1::Want& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", proto.step()));
  PACELINE_RETURN_IF_ERROR(CheckShard(proto.shard()));
  return Want{proto.step(), proto.shard()};
}

absl::StatusOr<Body> SpreadOf(const v1::Spread& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", proto.step()));
  PACELINE_ASSIGN_OR_RETURN(ShardResult result, ShardOf(proto.result()));
  return Spread{proto.step(), std::move(result)};
}

absl::StatusOr<Body> HoldOf(const v1::Hold& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", proto.step()));
  PACELINE_RETURN_IF_ERROR(CheckCount("the state's step", proto.state_step()));
  return Hold{proto.step(), proto.hash(), proto.state_step(),
              proto.state_hash()};
}

absl::StatusOr<Body> AnswerOf(const v1::Answer& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the steps applied", proto.next()));
  Answer answer{proto.next(), proto.last_hash(), {}};
  if (proto.has_held()) {
    PACELINE_ASSIGN_OR_RETURN(answer.held, ResultOf(proto.held()));
  }
  return answer;
}

absl::StatusOr<Body> CopyOf(const v1::Copy& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the steps in the copy", proto.next()));
  return Copy{proto.next(), proto.last_hash(), proto.state_hash()};
}

absl::StatusOr<Body> ParameterAnswerOf(const v1::ParameterAnswer& proto) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", proto.step()));
  if (proto.verdict() < v1::ParameterAnswer::VERDICT_TAKEN ||
      proto.verdict() > v1::ParameterAnswer::VERDICT_BEHIND) {
    return absl::InvalidArgumentError(
        absl::StrCat("verdict ", static_cast<int>(proto.verdict()),
                     " on parameters, need 1 to 6"));
  }
  return ParameterAnswer{
      proto.step(), proto.hash(),
      static_cast<ParameterAnswer::Verdict>(proto.verdict())};
}

// Committed, Fetched, Level: a result and nothing else.
template <typename Message>
absl::StatusOr<Body> WithResult(const v1::RoundResult& proto) {
  PACELINE_ASSIGN_OR_RETURN(RoundResult result, ResultOf(proto));
  return Message{std::move(result)};
}

// Commit, TooOld, Fetch, ParameterOffer: a step that is counted, and what
// stands beside it.
absl::StatusOr<Body> AtStep(int64_t step, Body body) {
  PACELINE_RETURN_IF_ERROR(CheckCount("the step", step));
  return body;
}

absl::StatusOr<Body> BodyOf(const v1::RoundMessage& proto) {
  switch (proto.body_case()) {
    case v1::RoundMessage::kPart:
      return PartOf(proto.part());
    case v1::RoundMessage::kWant:
      return WantOf(proto.want());
    case v1::RoundMessage::kSpread:
      return SpreadOf(proto.spread());
    case v1::RoundMessage::kHold:
      return HoldOf(proto.hold());
    case v1::RoundMessage::kCommit:
      return AtStep(proto.commit().step(),
                    Commit{proto.commit().step(), proto.commit().hash()});
    case v1::RoundMessage::kCommitted:
      return WithResult<Committed>(proto.committed());
    case v1::RoundMessage::kTooOld:
      return AtStep(proto.too_old().step(), TooOld{proto.too_old().step()});
    case v1::RoundMessage::kAnswer:
      return AnswerOf(proto.answer());
    case v1::RoundMessage::kFetch:
      return AtStep(proto.fetch().step(),
                    Fetch{proto.fetch().step(), proto.fetch().hash()});
    case v1::RoundMessage::kFetched:
      return WithResult<Fetched>(proto.fetched());
    case v1::RoundMessage::kLevel:
      return WithResult<Level>(proto.level());
    case v1::RoundMessage::kLevelDone:
      return LevelDone{};
    case v1::RoundMessage::kCopyRequest:
      return CopyRequest{};
    case v1::RoundMessage::kCopy:
      return CopyOf(proto.copy());
    case v1::RoundMessage::kParameters:
      return AtStep(
          proto.parameters().step(),
          ParameterOffer{proto.parameters().step(), proto.parameters().hash()});
    case v1::RoundMessage::kParameterAnswer:
      return ParameterAnswerOf(proto.parameter_answer());
    case v1::RoundMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a round's message without a body, or of a kind that this version does "
      "not know");
}

}  // namespace

v1::RoundMessage ToProto(const RoundMessage& message) {
  v1::RoundMessage proto;
  *proto.mutable_view() = ToProto(message.view);
  proto.set_committed_through(message.committed_through);
  proto.set_committed_hash(message.committed_hash);
  std::visit([&proto](const auto& body) { FillBody(body, proto); },
             message.body);
  return proto;
}

absl::StatusOr<RoundMessage> FromProto(const v1::RoundMessage& proto,
                                       int64_t attempt, const MemberId& from) {
  RoundMessage message;
  message.attempt = attempt;
  message.from = from;
  PACELINE_ASSIGN_OR_RETURN(message.view, FromProto(proto.view()));
  PACELINE_RETURN_IF_ERROR(CheckCount("the steps that the sender has applied",
                                      proto.committed_through()));
  message.committed_through = proto.committed_through();
  message.committed_hash = proto.committed_hash();
  PACELINE_ASSIGN_OR_RETURN(message.body, BodyOf(proto));
  return message;
}

}  // namespace paceline

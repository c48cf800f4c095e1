#include "core/rpc/convert/round_convert.h"

#include <utility>

#include "absl/status/status.h"
#include "core/base/errors.h"
#include "core/rpc/convert/member_convert.h"
#include "core/rpc/convert/mirror.h"

namespace paceline {
namespace {

// Checks what CheckNumbers() lets pass.
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

absl::StatusOr<Body> BodyOf(const v1::RoundMessage& proto) {
  absl::StatusOr<Body> body = InvalidArgument(
      "a round's message without a body, or of a kind that this version does "
      "not know");
  VisitBody(proto, [&body](const auto& message, auto taken) {
    const absl::Status right = Check(message);
    if (!right.ok()) {
      body = right;
      return;
    }
    Read(message, taken);
    body = std::move(taken);
  });
  return body;
}

}  // namespace

v1::RoundMessage ToProto(const RoundMessage& message) {
  v1::RoundMessage proto;
  *proto.mutable_view() = ToProto(message.view);
  proto.set_committed_through(message.committed_through);
  proto.set_committed_hash(message.committed_hash);
  std::visit([&proto](const auto& body) { WriteBody(body, proto); },
             message.body);
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

#include "core/rpc/convert/round_convert.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

MemberId Member(int64_t worker) {
  return {WorkerId{worker}, Incarnation{~uint64_t{0} - worker}};
}

ShardResult Shard(int shard) {
  ShardResult result;
  result.shard = shard;
  result.hash = 0xfedcba9876543210u + shard;
  result.contributors = {{Member(1), 32}, {Member(7), 0}};
  result.divisor = 32;
  result.arrivals = {absl::ZeroDuration(), absl::Microseconds(1234)};
  return result;
}

RoundResult Result() {
  RoundResult result;
  result.step = 41;
  result.view = {2, 9};
  result.shards = {Shard(0), Shard(1)};
  result.shards[1] = {};
  result.shards[1].shard = 1;
  result.shards[1].is_void = true;
  return result;
}

RoundMessage With(Body body) {
  RoundMessage message;
  message.attempt = 3;
  message.view = {2, 17};
  message.from = Member(5);
  message.committed_through = 40;
  message.committed_hash = 0x8000000000000001u;
  message.body = std::move(body);
  return message;
}

// One of each kind, in the order of Body.
std::vector<Body> AllBodies() {
  return {PartOffer{41, 63, 32, 0xffffffffffffffffu, 0x9000000000000000u},
          Want{41, 2},
          Spread{41, Shard(2)},
          Hold{41, 11, 40, 12},
          Commit{41, 13},
          Committed{Result()},
          TooOld{3},
          Answer{41, 14, Result()},
          Fetch{41, 15},
          Fetched{Result()},
          Level{Result()},
          LevelDone{},
          CopyRequest{},
          Copy{42, 16, 17},
          ParameterOffer{41, 18},
          ParameterAnswer{41, 19, ParameterAnswer::Verdict::kPast}};
}

// Compared as text, since most bodies have no equality: the proto's.
std::string Text(const RoundMessage& message) {
  return ToProto(message).DebugString();
}

TEST(RoundConvert, BringsEveryKindOfMessageThereAndBack) {
  const std::vector<Body> bodies = AllBodies();
  ASSERT_EQ(bodies.size(), std::variant_size_v<Body>);

  for (size_t kind = 0; kind < bodies.size(); ++kind) {
    ASSERT_EQ(bodies[kind].index(), kind);
    const RoundMessage sent = With(bodies[kind]);

    const v1::RoundMessage proto = ToProto(sent);
    const auto got = Value(FromProto(proto, sent.attempt, sent.from));

    EXPECT_EQ(got.body.index(), kind);
    EXPECT_EQ(got.attempt, sent.attempt);
    EXPECT_EQ(got.from, sent.from);
    EXPECT_EQ(got.view, sent.view);
    EXPECT_EQ(got.committed_through, sent.committed_through);
    EXPECT_EQ(got.committed_hash, sent.committed_hash);
    EXPECT_EQ(Text(got), Text(sent));
  }
}

TEST(RoundConvert, KeepsEveryNumberOfAResult) {
  const auto got =
      Value(FromProto(ToProto(With(Level{Result()})), 3, Member(5)));

  EXPECT_EQ(std::get<Level>(got.body).result, Result());
}

TEST(RoundConvert, KeepsEveryNumberOfAPart) {
  const PartOffer part{41,  63, 32, 0xffffffffffffffffu, 0x9000000000000000u,
                       true};

  const auto got = Value(FromProto(ToProto(With(part)), 3, Member(5)));

  EXPECT_EQ(std::get<PartOffer>(got.body), part);
}

TEST(RoundConvert, TellsAnAnswerThatHoldsNothingFromOneThatHolds) {
  const auto got = Value(
      FromProto(ToProto(With(Answer{41, 14, std::nullopt})), 3, Member(5)));

  EXPECT_FALSE(std::get<Answer>(got.body).held.has_value());
}

void ExpectRefused(const v1::RoundMessage& proto, const std::string& why) {
  const absl::Status status = FromProto(proto, 3, Member(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

// A body that would be right, and the fields that make it wrong.
struct Hostile {
  Body body;
  const char* fields;  // merged into the message
  const char* why;
};

TEST(RoundConvert, RefusesWhatNoMemberWouldSendAndNamesTheNumber) {
  const Hostile kCases[] = {
      {LevelDone{}, "view { term: -1 }", "term is -1"},
      {LevelDone{}, "view { counter: -5 }", "counter is -5"},
      {LevelDone{}, "committed_through: -2", "applied is -2"},
      {PartOffer{}, "part { step: -1 }", "step is -1"},
      {PartOffer{}, "part { step: 9223372036854775807 }",
       "step is 9223372036854775807, need 0 to"},
      {PartOffer{}, "part { shard: 64 }", "shard is 64, need 0 to 63"},
      {PartOffer{}, "part { shard: -1 }", "shard is -1"},
      {PartOffer{}, "part { samples: -32 }", "samples is -32"},
      {PartOffer{}, "part { samples: 1099511627777 }",
       "samples is 1099511627777, need 0 to 1099511627776"},
      {Want{}, "want { shard: 1073741824 }", "need 0 to 63"},
      {Spread{1, Shard(0)}, "spread { step: -9 }", "step is -9"},
      {Spread{1, Shard(0)}, "spread { result { divisor: -1 } }",
       "divisor is -1"},
      {Spread{1, Shard(0)}, "spread { result { contributors {} } }",
       "need a worker of at least 1"},
      {Spread{1, Shard(0)}, "spread { result { arrivals_us: -1 } }",
       "arrival in microseconds is -1"},
      {Spread{1, Shard(0)},
       "spread { result { contributors { samples: -1 } } }",
       "samples of a contributor is -1"},
      {Spread{1, Shard(0)},
       "spread { result { contributors { "
       "member { worker_id: 1 incarnation: 9 } } } }",
       "not in ascending order"},
      {Hold{}, "hold { state_step: -1 }", "state's step is -1"},
      {Commit{}, "commit { step: -1 }", "step is -1"},
      {Committed{Result()}, "committed { shards { shard: 1 divisor: 1 } }",
       "shard 1 in place 2"},
      {Level{Result()}, "level { view { term: -1 } }", "term is -1"},
      {ParameterOffer{}, "parameters { step: -1 }", "step is -1"},
      {ParameterAnswer{}, "parameter_answer { step: -3 }", "step is -3"},
      {TooOld{}, "too_old { step: -1 }", "step is -1"},
      {Answer{}, "answer { next: -1 }", "applied is -1"},
      {Answer{1, 2, Result()}, "answer { held { step: -1 } }", "step is -1"},
      {Fetch{}, "fetch { step: -1 }", "step is -1"},
      {Copy{}, "copy { next: -1 }", "in the copy is -1"},
  };
  for (const Hostile& hostile : kCases) {
    v1::RoundMessage proto = ToProto(With(hostile.body));
    ASSERT_TRUE(FromProto(proto, 3, Member(5)).ok()) << hostile.fields;
    v1::RoundMessage fields;
    ASSERT_TRUE(
        google::protobuf::TextFormat::ParseFromString(hostile.fields, &fields));

    proto.MergeFrom(fields);

    ExpectRefused(proto, hostile.why);
  }
}

TEST(RoundConvert, RefusesAMessageWithoutWhatItNeeds) {
  v1::RoundMessage spread = ToProto(With(Spread{1, Shard(3)}));
  spread.mutable_spread()->mutable_result()->clear_divisor();
  v1::RoundMessage answer = ToProto(With(ParameterAnswer{}));
  answer.mutable_parameter_answer()->clear_verdict();

  ExpectRefused({}, "without a body");
  ExpectRefused(spread, "shard 3 is to be divided by 0");
  ExpectRefused(answer, "verdict 0 on parameters, need 1 to 6");
}

TEST(RoundConvert, RefusesMoreThanAnyGroupHas) {
  v1::RoundMessage contributors = ToProto(With(Spread{1, Shard(0)}));
  v1::RoundMessage arrivals = contributors;
  v1::RoundMessage shards = ToProto(With(Committed{Result()}));
  for (int i = 0; i < kMaxRoundMembers; ++i) {
    contributors.mutable_spread()->mutable_result()->add_contributors();
    arrivals.mutable_spread()->mutable_result()->add_arrivals_us(i);
    shards.mutable_committed()->add_shards()->set_shard(2 + i);
  }

  ExpectRefused(contributors, "contributors: got 1026, need 0 to 1024");
  ExpectRefused(arrivals, "arrivals: got 1026");
  ExpectRefused(shards, "shards: got 1026, need 0 to 64");
}

TEST(RoundConvert, TakesMembersThatNobodyKnows) {
  v1::RoundMessage proto = ToProto(With(Spread{1, Shard(0)}));
  proto.mutable_spread()
      ->mutable_result()
      ->mutable_contributors(1)
      ->mutable_member()
      ->set_worker_id(1'000'000'000'000);

  EXPECT_TRUE(FromProto(proto, 3, Member(5)).ok());
}

}  // namespace
}  // namespace paceline

#include "core/rpc/convert/round_convert.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

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
          StateRequest{},
          StateOffer{42, 16, 17},
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

}  // namespace
}  // namespace paceline

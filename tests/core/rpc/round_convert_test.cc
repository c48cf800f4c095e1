#include "core/rpc/round_convert.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
    const absl::StatusOr<RoundMessage> got =
        FromProto(proto, sent.attempt, sent.from);

    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->body.index(), kind);
    EXPECT_EQ(got->attempt, sent.attempt);
    EXPECT_EQ(got->from, sent.from);
    EXPECT_EQ(got->view, sent.view);
    EXPECT_EQ(got->committed_through, sent.committed_through);
    EXPECT_EQ(got->committed_hash, sent.committed_hash);
    EXPECT_EQ(Text(*got), Text(sent));
  }
}

TEST(RoundConvert, KeepsEveryNumberOfAResult) {
  const absl::StatusOr<RoundMessage> got =
      FromProto(ToProto(With(Level{Result()})), 3, Member(5));

  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(std::get<Level>(got->body).result, Result());
}

TEST(RoundConvert, KeepsEveryNumberOfAPart) {
  const PartOffer part{41,  63, 32, 0xffffffffffffffffu, 0x9000000000000000u,
                       true};

  const absl::StatusOr<RoundMessage> got =
      FromProto(ToProto(With(part)), 3, Member(5));

  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(std::get<PartOffer>(got->body), part);
}

TEST(RoundConvert, TellsAnAnswerThatHoldsNothingFromOneThatHolds) {
  const absl::StatusOr<RoundMessage> got =
      FromProto(ToProto(With(Answer{41, 14, std::nullopt})), 3, Member(5));

  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(std::get<Answer>(got->body).held.has_value());
}

// A message that would be right, made wrong.
struct Hostile {
  std::string name;
  Body body;
  std::function<void(v1::RoundMessage&)> spoil;
  std::string why;
};
void PrintTo(const Hostile& hostile, std::ostream* out) {
  *out << hostile.name;
}

using M = v1::RoundMessage;

void AddContributors(M& m) {
  for (int i = 0; i < kMaxRoundMembers; ++i) {
    m.mutable_spread()->mutable_result()->add_contributors();
  }
}

void AddShards(M& m) {
  for (int i = 0; i < kMaxRoundShards; ++i) {
    m.mutable_committed()->add_shards()->set_shard(2 + i);
  }
}

void AddArrivals(M& m) {
  for (int i = 0; i < kMaxRoundMembers; ++i) {
    m.mutable_spread()->mutable_result()->add_arrivals_us(i);
  }
}

std::vector<Hostile> HostileHeadersAndParts() {
  return {
      {"NoBody", LevelDone{}, [](M& m) { m.clear_body(); }, "without a body"},
      {"NegativeTerm", LevelDone{},
       [](M& m) { m.mutable_view()->set_term(-1); }, "term is -1"},
      {"NegativeCounter", LevelDone{},
       [](M& m) { m.mutable_view()->set_counter(-5); }, "counter is -5"},
      {"NegativeCommitted", LevelDone{},
       [](M& m) { m.set_committed_through(-2); }, "applied is -2"},
      {"PartStep", PartOffer{}, [](M& m) { m.mutable_part()->set_step(-1); },
       "step is -1"},
      {"PartShard", PartOffer{}, [](M& m) { m.mutable_part()->set_shard(64); },
       "shard is 64, need 0 to 63"},
      {"PartNegativeShard", PartOffer{},
       [](M& m) { m.mutable_part()->set_shard(-1); }, "shard is -1"},
      {"PartSamples", PartOffer{},
       [](M& m) { m.mutable_part()->set_samples(-32); }, "samples is -32"},
      {"PartSamplesBeyondSums", PartOffer{},
       [](M& m) { m.mutable_part()->set_samples(kMaxRoundSamples + 1); },
       "samples is 1099511627777, need 0 to 1099511627776"},
      {"PartStepBeyondCounting", PartOffer{},
       [](M& m) {
         m.mutable_part()->set_step(std::numeric_limits<int64_t>::max());
       },
       "step is 9223372036854775807, need 0 to"},
      {"WantShard", Want{}, [](M& m) { m.mutable_want()->set_shard(1 << 30); },
       "need 0 to 63"},
  };
}

std::vector<Hostile> HostileSpreads() {
  return {
      {"SpreadStep", Spread{1, Shard(0)},
       [](M& m) { m.mutable_spread()->set_step(-9); }, "step is -9"},
      {"SpreadDivisor", Spread{1, Shard(0)},
       [](M& m) { m.mutable_spread()->mutable_result()->set_divisor(-1); },
       "divisor is -1"},
      {"SpreadDivisorOfNothing", Spread{1, Shard(3)},
       [](M& m) { m.mutable_spread()->mutable_result()->set_divisor(0); },
       "shard 3 is to be divided by 0"},
      {"ContributorIsNobody", Spread{1, Shard(0)},
       [](M& m) {
         m.mutable_spread()
             ->mutable_result()
             ->mutable_contributors(0)
             ->clear_member();
       },
       "need a worker of at least 1"},
      {"TooManyContributors", Spread{1, Shard(0)}, AddContributors,
       "contributors: got 1026, need 0 to 1024"},
      {"TooManyArrivals", Spread{1, Shard(0)}, AddArrivals,
       "arrivals: got 1026"},
      {"NegativeArrival", Spread{1, Shard(0)},
       [](M& m) {
         m.mutable_spread()->mutable_result()->set_arrivals_us(0, -1);
       },
       "arrival in microseconds is -1"},
      {"ContributorTwice", Spread{1, Shard(0)},
       [](M& m) {
         auto& result = *m.mutable_spread()->mutable_result();
         *result.mutable_contributors(1) = result.contributors(0);
       },
       "not in ascending order"},
      {"ContributorSamples", Spread{1, Shard(0)},
       [](M& m) {
         m.mutable_spread()
             ->mutable_result()
             ->mutable_contributors(0)
             ->set_samples(-1);
       },
       "samples of a contributor is -1"},
  };
}

std::vector<Hostile> HostileOthers() {
  return {
      {"HoldStateStep", Hold{},
       [](M& m) { m.mutable_hold()->set_state_step(-1); },
       "state's step is -1"},
      {"CommitStep", Commit{}, [](M& m) { m.mutable_commit()->set_step(-1); },
       "step is -1"},
      {"TooManyShards", Committed{Result()}, AddShards,
       "shards: got 66, need 0 to 64"},
      {"ShardsOutOfOrder", Committed{Result()},
       [](M& m) { m.mutable_committed()->mutable_shards(0)->set_shard(1); },
       "shard 1 in place 0"},
      {"ResultView", Level{Result()},
       [](M& m) { m.mutable_level()->mutable_view()->set_term(-1); },
       "term is -1"},
      {"ParametersStep", ParameterOffer{},
       [](M& m) { m.mutable_parameters()->set_step(-1); }, "step is -1"},
      {"ParameterAnswerStep", ParameterAnswer{},
       [](M& m) { m.mutable_parameter_answer()->set_step(-3); }, "step is -3"},
      {"ParameterAnswerOfNoVerdict", ParameterAnswer{},
       [](M& m) { m.mutable_parameter_answer()->clear_verdict(); },
       "verdict 0 on parameters, need 1 to 6"},
      {"TooOldStep", TooOld{}, [](M& m) { m.mutable_too_old()->set_step(-1); },
       "step is -1"},
      {"AnswerNext", Answer{}, [](M& m) { m.mutable_answer()->set_next(-1); },
       "applied is -1"},
      {"AnswerHeld", Answer{1, 2, Result()},
       [](M& m) { m.mutable_answer()->mutable_held()->set_step(-1); },
       "step is -1"},
      {"FetchStep", Fetch{}, [](M& m) { m.mutable_fetch()->set_step(-1); },
       "step is -1"},
      {"CopyNext", Copy{}, [](M& m) { m.mutable_copy()->set_next(-1); },
       "in the copy is -1"},
  };
}

std::vector<Hostile> AllHostile() {
  std::vector<Hostile> all = HostileHeadersAndParts();
  for (const auto& more : {HostileSpreads(), HostileOthers()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

class RoundConvertHostile : public ::testing::TestWithParam<Hostile> {};

INSTANTIATE_TEST_SUITE_P(All, RoundConvertHostile,
                         ::testing::ValuesIn(AllHostile()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RoundConvertHostile, IsRefusedWithTheNumberThatIsWrong) {
  v1::RoundMessage proto = ToProto(With(GetParam().body));
  ASSERT_TRUE(FromProto(proto, 3, Member(5)).ok());

  GetParam().spoil(proto);
  const absl::StatusOr<RoundMessage> got = FromProto(proto, 3, Member(5));

  EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(got.status().message()), HasSubstr(GetParam().why));
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

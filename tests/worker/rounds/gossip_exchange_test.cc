// The border of a member that gossips: what peers send that it cannot use, or
// that nobody of its job would send.
#include "worker/rounds/gossip_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/pieces.h"
#include "tests/support/pipeline/round_group.h"
#include "tests/support/status_checks.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr size_t kValues = 1000;
constexpr size_t kBytes = kValues * sizeof(float);

// Member 0 of two, without a compute thread; the test is member 1.
class GossipExchangeTest : public ::testing::Test {
 protected:
  GossipExchangeTest() {
    RoundExchangeOptions options;
    options.attempt = 3;
    options.self = MemberOf(0);
    options.aggregation.mode = "gossip";
    options.aggregation.deadline = 30;
    options.values = kValues;
    options.total_steps = 10;
    options.retry_period = absl::Milliseconds(5);
    exchange = std::make_unique<GossipExchange>(options, clock_, observer);
    transport_ = network_.Connect(options.self, exchange.get());
    EXPECT_TRUE(exchange->Start(*transport_).ok());
  }
  ~GossipExchangeTest() override {
    transport_->Close();
    exchange->Stop();
  }

  // The first part is asked for.
  void Begin() {
    exchange->OnGroup(
        MakeGroup(MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}})));
    ASSERT_EQ(exchange->AwaitTurn(absl::Seconds(30))->kind,
              RoundTurn::Kind::kPart);
  }
  void Meet(int64_t step, float value) {
    OwnParameters own;
    own.step = step;
    own.payload = Parameters(value);
    own.hash = own.payload->hash();
    exchange->Meet(std::move(own));
  }
  static std::shared_ptr<RoundPayload> Parameters(float value) {
    auto payload = BlockPool(0).Make(kBytes);
    const absl::Span<float> values(
        reinterpret_cast<float*>(payload->mutable_bytes().data()), kValues);
    std::fill(values.begin(), values.end(), value);
    MarkAllReady(*payload);
    return payload;
  }
  static RoundMessage From(int member, Body body, int64_t attempt = 3) {
    RoundMessage message;
    message.attempt = attempt;
    message.view = {1, 1};
    message.from = MemberOf(member);
    message.body = std::move(body);
    return message;
  }
  absl::StatusOr<std::shared_ptr<RoundPayload>> Send(PayloadKey::Kind kind,
                                                     int64_t step, size_t bytes,
                                                     int32_t shard = 0) {
    return exchange->OnPayload(MemberOf(1), {kind, step, shard, 0}, bytes);
  }
  // Until that many were refused.
  bool AwaitRefused(int64_t count) {
    for (int i = 0; i < 1000 && exchange->Stats().refused_messages < count;
         ++i) {
      observer.AwaitChange();
    }
    return exchange->Stats().refused_messages == count;
  }

  RecordingObserver observer;
  std::unique_ptr<GossipExchange> exchange;

 private:
  SystemClock clock_;
  MemoryRoundNetwork network_;
  std::unique_ptr<RoundTransport> transport_;
};

TEST_F(GossipExchangeTest, BytesOfAnotherLengthOrKindAreRefusedAndNamed) {
  Begin();

  using Kind = PayloadKey::Kind;
  const struct {
    Kind kind;
    int64_t step;
    size_t bytes;
    int32_t shard;
    const char* why;
  } kBad[] = {
      {Kind::kPart, 0, kBytes + 4, 0,
       "worker 1 sends 4004 bytes of parameters for step 0, where 4000 belong"},
      {Kind::kPart, 0, kBytes / 2, 0, "another model, or in another dtype"},
      {Kind::kResult, 0, kBytes, 0, "members of this job gossip"},
      {Kind::kPart, 0, kBytes, 1, "shard 1"},
      {Kind::kPart, -1, kBytes, 0, "step -1"}};
  for (const auto& bad : kBad) {
    const absl::Status refused =
        Send(bad.kind, bad.step, bad.bytes, bad.shard).status();
    ExpectError(refused, absl::StatusCode::kInvalidArgument,
                HasSubstr(bad.why));
  }
  EXPECT_TRUE(AwaitRefused(5));
}

TEST_F(GossipExchangeTest, NoPeerGetsMemoryForMoreThanTwoStepsOrForPastOnes) {
  Begin();

  const auto first = Send(PayloadKey::Kind::kPart, 0, kBytes);
  const auto second = Send(PayloadKey::Kind::kPart, 1, kBytes);
  const auto third = Send(PayloadKey::Kind::kPart, 2, kBytes);

  EXPECT_NE(*first, nullptr);
  EXPECT_EQ(*Send(PayloadKey::Kind::kPart, 0, kBytes), *first) << "once more";
  EXPECT_NE(*second, nullptr);
  EXPECT_EQ(*third, nullptr);
  // Step 0 is over, since the partner refuses.
  Meet(0, 1);
  const uint64_t own = Parameters(1)->hash();
  exchange->OnMessage(
      From(1, ParameterAnswer{0, own, ParameterAnswer::Verdict::kPast}),
      nullptr);
  ASSERT_EQ(exchange->AwaitTurn(absl::Seconds(30))->kind,
            RoundTurn::Kind::kMeet);
  ASSERT_EQ(exchange->AwaitTurn(absl::Seconds(30))->kind,
            RoundTurn::Kind::kPart);
  EXPECT_EQ(*Send(PayloadKey::Kind::kPart, 0, kBytes), nullptr);
  EXPECT_NE(*Send(PayloadKey::Kind::kPart, 2, kBytes), nullptr);
}

TEST_F(GossipExchangeTest, MessagesOfAnotherAttemptOrOfRoundsAreRefused) {
  Begin();
  Meet(0, 1);
  auto theirs = Parameters(3);

  exchange->OnMessage(From(1, ParameterOffer{0, theirs->hash()}, /*attempt=*/2),
                      theirs);
  exchange->OnMessage(From(1, PartOffer{0, 0, 10, theirs->hash(), 0}), theirs);
  exchange->OnMessage(From(1, Commit{0, 1}), nullptr);

  EXPECT_TRUE(AwaitRefused(3));
  EXPECT_EQ(exchange->AwaitTurn(absl::Milliseconds(1))->kind,
            RoundTurn::Kind::kWait)
      << "nothing of it counts";
}

TEST_F(GossipExchangeTest, AveragesWhatIsGoodWhateverElseThePartnerSays) {
  Begin();
  Meet(0, 1);
  auto theirs = Parameters(3);
  exchange->OnMessage(From(1, ParameterOffer{0, theirs->hash()}), theirs);
  // The same bytes under another hash: they are what they were.
  exchange->OnMessage(From(1, ParameterOffer{0, theirs->hash() + 1}), theirs);

  exchange->OnMessage(
      From(1, ParameterAnswer{0, Parameters(1)->hash(),
                              ParameterAnswer::Verdict::kTaken}),
      nullptr);
  const auto turn = Value(exchange->AwaitTurn(absl::Seconds(30)));

  EXPECT_EQ(turn.kind, RoundTurn::Kind::kMeet);
  EXPECT_EQ(turn.theirs, theirs);
  EXPECT_EQ(exchange->AwaitTurn(absl::Seconds(30))->step, 1);
}

TEST_F(GossipExchangeTest, AnOfferWithoutItsBytesIsNotWaitedFor) {
  Begin();
  Meet(0, 1);

  exchange->OnMessage(From(1, ParameterOffer{0, 77}), nullptr);
  const auto turn = Value(exchange->AwaitTurn(absl::Seconds(30)));

  EXPECT_EQ(turn.kind, RoundTurn::Kind::kMeet);
  EXPECT_EQ(turn.theirs, nullptr);
}

TEST_F(GossipExchangeTest, InfinityInParametersIsRefusedAndTold) {
  Begin();
  Meet(0, 1);
  auto theirs = Parameters(-std::numeric_limits<float>::infinity());

  exchange->OnMessage(From(1, ParameterOffer{0, theirs->hash()}), theirs);
  const auto turn = exchange->AwaitTurn(absl::Seconds(30));

  EXPECT_EQ(turn->theirs, nullptr);
  ASSERT_EQ(observer.records().size(), 1u);
  EXPECT_EQ(observer.records()[0].step(), 0);
  EXPECT_THAT(SkipsOf(observer.records()[0]),
              testing::ElementsAre("1 not-finite"));
}

TEST_F(GossipExchangeTest, AStateThatIsNotWhatItsOfferSaysIsNotTaken) {
  // It listens: the view is another one's.
  exchange->OnGroup(MakeGroup(MakeView(1, {{MemberOf(1), 0}}), {MemberOf(0)}));
  const PiecePtr state = MakePiece({3, 4}, 0, "the state");
  const auto fetch = [&](uint64_t hash, std::vector<PiecePtr> fetched) {
    exchange->OnMessage(From(1, StateOffer{4, 0, hash}), nullptr);
    auto turn = Value(exchange->AwaitTurn(absl::Seconds(30)));
    EXPECT_EQ(turn.kind, RoundTurn::Kind::kFetch);
    EXPECT_EQ(turn.source.holder, MemberOf(1));
    turn.state = std::move(fetched);
    exchange->AnswerState(std::move(turn));
  };

  fetch(state->checksum + 1, {state});
  fetch(state->checksum, {});
  EXPECT_FALSE(exchange->Report().level);
  fetch(state->checksum, {state});
  const auto turn = Value(exchange->AwaitTurn(absl::Seconds(30)));

  EXPECT_EQ(turn.kind, RoundTurn::Kind::kRestore);
  EXPECT_EQ(turn.step, 4);
  EXPECT_EQ(turn.state, std::vector<PiecePtr>{state});
  EXPECT_EQ(exchange->Stats().refused_results, 1);
}

}  // namespace
}  // namespace paceline

// Tests the parts of an exchange: shapes, memory, parts, the store, the queue
// of turns, the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "core/round/rules/rule_blocks.h"
#include "tests/support/pipeline/round_group.h"
#include "worker/rounds/parts/round_event_log.h"
#include "worker/rounds/parts/round_payload.h"
#include "worker/rounds/parts/round_turn.h"
#include "worker/rounds/peer_links.h"

namespace paceline {
namespace {

TEST(RoundShape, ShardsShareTheGradientEvenlyInWholeBlocks) {
  for (const Codec codec : {Codec::kRaw, Codec::kBf16}) {
    for (const size_t values : {0u, 1u, 255u, 257u, 100'000u, 5'824'522u}) {
      for (const int shards : {1, 3, 4, 64}) {
        const RoundShape shape(values, shards, codec);
        EXPECT_EQ(shape.chunk_values() % kRuleBlock, 0u);
        EXPECT_LE(shape.chunk_values() * shape.value_bytes(), kRoundChunkBytes);
        size_t sum = 0;
        for (int shard = 0; shard < shards; ++shard) sum += shape.values(shard);
        EXPECT_EQ(sum, values);
        // No server has a chunk's part more than an even share.
        EXPECT_LE(shape.values(0), values / shards + 100 * kRuleBlock);
      }
    }
  }
  EXPECT_EQ(RoundShape(1000, 1, Codec::kBf16).bytes(0), 2000u);
}

TEST(RoundPart, GivesEveryServerAPieceOfWhatComesFirst) {
  BlockPool pool(0);
  std::vector<float> gradient(600'000);
  std::iota(gradient.begin(), gradient.end(), 1.0f);
  const RoundShape shape(gradient.size(), 3, Codec::kRaw);
  RoundPart part({.gradient = absl::MakeSpan(gradient)}, shape, pool);

  part.MarkReady(shape.begin(shape.chunks() - 3));

  for (const auto& payload : part.payloads()) {
    ASSERT_GT(payload->chunks(), 1);
    EXPECT_TRUE(payload->IsReady(payload->chunks() - 1));
    EXPECT_FALSE(payload->IsReady(0));
  }
  part.MarkReady(0);
  for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
    const auto& payload = part.payloads()[shape.shard_of(chunk)];
    const absl::Span<const uint8_t> bytes =
        payload->chunk(shape.index_of(chunk));
    EXPECT_EQ(reinterpret_cast<const float*>(bytes.data()),
              gradient.data() + shape.begin(chunk));
  }
}

TEST(BlockPool, GivesMemoryAgainThatNobodyUses) {
  BlockPool pool(10'000);
  const uint8_t* first = nullptr;
  {
    const auto payload = pool.Make(4000);
    first = payload->bytes().data();
    EXPECT_EQ(pool.kept_bytes(), 0u);
  }
  EXPECT_EQ(pool.kept_bytes(), 4000u);

  EXPECT_EQ(pool.Make(4000)->bytes().data(), first);
  pool.Make(20'000);
  EXPECT_EQ(pool.kept_bytes(), 4000u);
}

TEST(RoundPart, LeavesFromItsEndToItsBeginning) {
  BlockPool pool(0);
  const size_t chunk = kRoundChunkBytes / 4;
  std::vector<float> gradient(2 * chunk + 10);
  std::iota(gradient.begin(), gradient.end(), 1.0f);
  RoundPart part(
      {.step = 4, .division = 9, .gradient = absl::MakeSpan(gradient)},
      RoundShape(gradient.size(), 1, Codec::kRaw), pool);
  const auto payload = part.payloads()[0];

  part.MarkReady(chunk + 1);

  EXPECT_TRUE(payload->IsReady(2));
  EXPECT_FALSE(payload->IsReady(1));  // begins below
  part.MarkReady(0);
  EXPECT_TRUE(payload->complete());
  const std::vector<PartOffer> offers = part.Offers(32);
  EXPECT_EQ(offers, (std::vector<PartOffer>{{4, 0, 32, payload->hash(), 9}}));
}

TEST(RoundPart, GivesTheGradientBackWhenTheLastUserIsGone) {
  BlockPool pool(0);
  std::vector<float> gradient(100);
  RoundPart part({.gradient = absl::MakeSpan(gradient)},
                 RoundShape(100, 1, Codec::kRaw), pool);
  auto reader = part.payloads()[0];

  part.Release();

  EXPECT_FALSE(part.released().HasBeenNotified());
  reader.reset();
  EXPECT_TRUE(part.released().HasBeenNotified());
}

class RoundStoreTest : public ::testing::Test {
 protected:
  // Memory for a result.
  std::shared_ptr<RoundPayload> Incoming(int from, int64_t step,
                                         uint64_t variant = 7) {
    return store_.Incoming(MemberOf(from),
                           {PayloadKey::Kind::kResult, step, 0, variant});
  }

  BlockPool pool_{0};
  RoundStore store_{
      RoundShape(1000, 1, Codec::kRaw), pool_, {.steps = 4, .variants = 4}};
};

TEST_F(RoundStoreTest, FindsResultsByTheirBytesWhoeverSentThem) {
  const auto payload = Incoming(1, 3);
  std::fill(payload->mutable_bytes().begin(), payload->mutable_bytes().end(),
            5);

  EXPECT_EQ(Incoming(1, 3), payload);
  EXPECT_NE(Incoming(2, 3), payload);
  MarkAllReady(*payload);
  EXPECT_EQ(store_.FindResult(3, 0, payload->hash()).payload, payload);
  EXPECT_EQ(store_.FindResult(3, 0, payload->hash() + 1).payload, nullptr);
  EXPECT_EQ(store_.FindResult(4, 0, payload->hash()).payload, nullptr);
  store_.Forget(4);
  EXPECT_EQ(store_.FindResult(3, 0, payload->hash()).payload, nullptr);
}

TEST_F(RoundStoreTest, KeepsAFewResultsOfAStepAndAFewStepsOfOneSenderOnly) {
  int given = 0;
  for (uint64_t i = 0; i < 100; ++i) given += Incoming(1, 3, i) != nullptr;
  EXPECT_EQ(given, 4);

  for (const int64_t step : {4, 5, 6}) EXPECT_NE(Incoming(1, step), nullptr);
  EXPECT_EQ(Incoming(1, 7), nullptr);
  EXPECT_NE(Incoming(1, 5), nullptr);
  EXPECT_NE(Incoming(2, 7), nullptr);
  store_.Forget(4);
  EXPECT_NE(Incoming(1, 7), nullptr);
}

// A kApply of these divisors, a shard each, the sums uninitialised.
RoundTurn ApplyOf(const RoundShape& shape,
                  const std::vector<int64_t>& divisors) {
  BlockPool pool(0);
  RoundTurn turn;
  turn.divisor = divisors.front();
  for (size_t shard = 0; shard < divisors.size(); ++shard) {
    ShardResult result;
    result.shard = static_cast<int>(shard);
    result.divisor = divisors[shard];
    turn.result.shards.push_back(result);
    turn.sums.push_back(shape.Make(result.shard, pool));
  }
  return turn;
}

TEST(WriteResult, ScalesShardsThatHaveAnotherDivisor) {
  const RoundShape shape(512, 2, Codec::kRaw);
  const RoundTurn turn = ApplyOf(shape, {8, 4});
  const std::vector<float> ones(256, 1);
  for (const auto& sum : turn.sums) {
    std::memcpy(sum->mutable_bytes().data(), ones.data(), 1024);
  }
  std::vector<float> gradient(512);

  WriteResult(turn, shape, absl::MakeSpan(gradient));

  EXPECT_EQ(gradient[255], 1);
  EXPECT_EQ(gradient[256], 2);
}

TEST(ResultInPlace, IsTheShardsSideBySide) {
  const RoundShape shape(300'000, 3, Codec::kRaw);
  RoundTurn turn = ApplyOf(shape, {8, 8, 8});
  std::vector<float> whole(shape.values());
  std::iota(whole.begin(), whole.end(), 0.0f);
  BlockPool pool(0);
  const RoundPart part({.gradient = absl::MakeSpan(whole)}, shape, pool);
  turn.sums = part.payloads();

  const auto chunks = ResultInPlace(turn, shape);

  ASSERT_TRUE(chunks.has_value());
  size_t next = 0;
  for (const absl::Span<const float> chunk : *chunks) {
    EXPECT_EQ(chunk.front(), static_cast<float>(next));
    next += chunk.size();
    EXPECT_EQ(chunk.back(), static_cast<float>(next - 1));
  }
  EXPECT_EQ(next, shape.values());

  turn.result.shards[1].divisor = 4;
  EXPECT_FALSE(ResultInPlace(turn, shape).has_value()) << "to be scaled";
}

TEST(ResultInPlace, IsNothingWhereValuesAreCoded) {
  const RoundShape shape(512, 1, Codec::kBf16);

  EXPECT_FALSE(ResultInPlace(ApplyOf(shape, {8}), shape).has_value());
}

View ViewOf(int64_t counter, const std::vector<int>& numbers) {
  std::vector<ViewMember> members;
  for (const int number : numbers) members.push_back({MemberOf(number), 0});
  return MakeView(counter, members);
}

RoundTurn Turn(RoundTurn::Kind kind, int64_t step) {
  RoundTurn turn;
  turn.kind = kind;
  turn.step = step;
  return turn;
}

TEST(RoundTurns, AskForAPartOnceAndOnlyWhenNothingElseIsToBeDone) {
  RoundTurns turns(10);
  RoundTurns::State state;
  state.view = ViewOf(1, {0});
  state.next = 3;
  state.has_state = true;
  state.needs_part = true;
  turns.Push(Turn(RoundTurn::Kind::kApply, 2));
  turns.Publish(state);

  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kApply);
  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kPart);
  turns.OnPart(3);
  turns.Push(Turn(RoundTurn::Kind::kOffer, 0));
  EXPECT_FALSE(turns.IsOver(3));
  EXPECT_TRUE(turns.TryTakeOffer().has_value());
  EXPECT_FALSE(turns.TryTakeOffer().has_value());
  turns.Push(Turn(RoundTurn::Kind::kApply, 3));
  EXPECT_TRUE(turns.IsOver(3));
  turns.End(absl::CancelledError("over"));
  EXPECT_EQ(turns.Await().status(), absl::CancelledError("over"));
}

TEST(RoundTurns, SayWhichTurnTheComputeThreadIsAt) {
  RoundTurns turns(3);
  turns.Push(Turn(RoundTurn::Kind::kApply, 1));
  turns.Push(Turn(RoundTurn::Kind::kApply, 2));
  RoundTurns::State state;
  state.next = 3;
  state.has_state = true;
  turns.Publish(state);
  EXPECT_EQ(turns.turn(), 0);

  ASSERT_TRUE(turns.Await().ok());
  EXPECT_EQ(turns.turn(), 1);
  ASSERT_TRUE(turns.Await().ok());
  EXPECT_EQ(turns.turn(), 2);
  ASSERT_EQ(turns.Await()->kind, RoundTurn::Kind::kDone);
  EXPECT_EQ(turns.turn(), 0) << "it may take as long as it likes";
}

TEST(RoundTurns, AfterAWhileWithoutAnyItIsTimeToSaySo) {
  RoundTurns turns(10);

  EXPECT_EQ(turns.Await(absl::Milliseconds(1))->kind, RoundTurn::Kind::kWait);
  turns.Push(Turn(RoundTurn::Kind::kMeet, 2));
  EXPECT_EQ(turns.Await(absl::Milliseconds(1))->kind, RoundTurn::Kind::kMeet);
}

TEST(RoundTurns, TellTheEndAndTheUploadOnceEach) {
  RoundTurns turns(3);
  RoundTurns::State state;
  state.next = 3;
  state.has_state = true;
  state.uploads = true;
  turns.Publish(state);

  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kDone);
  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kUpload);
  turns.Publish(state);
  turns.Push(Turn(RoundTurn::Kind::kOffer, 0));
  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kOffer);
}

Instant AtMs(int ms) { return {absl::Milliseconds(ms)}; }

// The result of parts of four samples each.
RoundResult ResultOf(int64_t step, const View& view,
                     const std::vector<int>& contributors) {
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 4 * std::ssize(contributors);
  for (const int member : contributors) {
    shard.contributors.push_back({MemberOf(member), 4});
  }
  return {step, view.id, {shard}};
}

std::function<Instant(const MemberId&)> LostAt(int ms) {
  return [ms](const MemberId&) { return AtMs(ms); };
}

TEST(RoundEventLog, SaysWhoTookOverAndWhosePartsWereSkipped) {
  RoundEventLog log(MemberOf(1), ServerMode::kRolling);
  const View before = ViewOf(1, {0, 1, 2});
  const View after = ViewOf(2, {1, 2});
  log.OnOffer(MemberOf(1), {0, 0, 4, 1, 1}, PartCheck::kFine, AtMs(10));
  log.OnView(before, after, 0, LostAt(20));
  log.OnOffer(MemberOf(2), {0, 0, 0, 1, 1}, PartCheck::kNotFinite, AtMs(40));
  const RoundResult result = ResultOf(0, after, {1});

  const auto record = log.OnApply(result, after, true, AtMs(61), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->server(), 1);
  EXPECT_EQ(record->lost_server(), 0);
  EXPECT_NEAR(record->takeover_seconds(), 0.041, 1e-9);
  EXPECT_NEAR(record->seconds(), 0.051, 1e-9);
  EXPECT_EQ(record->contributors(), 1);
  EXPECT_THAT(SkipsOf(*record), testing::ElementsAre("2 not-finite", "0 lost"));
  EXPECT_EQ(log.stats().takeovers, 1);
}

TEST(PeerLinks, CountABreakFromTheOneThatWasNotMended) {
  PeerLinks links;
  links.OnLink(MemberOf(0), false, false, AtMs(10));  // it did not listen yet
  links.OnLink(MemberOf(0), true, false, AtMs(20));
  EXPECT_FALSE(links.BrokenSince(MemberOf(0)).has_value());
  links.OnLink(MemberOf(0), false, false, AtMs(60'000));

  EXPECT_EQ(links.BrokenSince(MemberOf(0)), AtMs(60'000));
}

TEST(RoundEventLog, CountsHowLongRoundsTookOfWhichItSawAPart) {
  RoundEventLog log(MemberOf(0), ServerMode::kRolling);
  const View view = ViewOf(1, {0});
  for (const int ms : {10, 11, 60'000}) {
    log.OnOffer(MemberOf(0), {0, 0, 4, 1, 1}, PartCheck::kFine, AtMs(0));
    log.OnApply(ResultOf(0, view, {0}), view, true, AtMs(ms), 7);
  }
  log.OnApply(ResultOf(0, view, {0}), view, true, AtMs(70'000), 7);

  const RoundStats& stats = log.stats();

  EXPECT_EQ(stats.committed, 4);
  EXPECT_EQ(stats.durations[3], 1) << "at most 0.01 s";
  EXPECT_EQ(stats.durations[4], 1) << "at most 0.02 s";
  EXPECT_EQ(stats.durations.back(), 1);
  EXPECT_NEAR(stats.seconds, 60.021, 1e-9);
}

TEST(RoundEventLog, SkipsNobodyWhosePartIsInTheSumThoughItIsLost) {
  RoundEventLog log(MemberOf(1), ServerMode::kRolling);
  const View before = ViewOf(1, {0, 1});
  const View after = ViewOf(2, {1});
  log.OnView(before, after, 0, LostAt(30));

  const auto record = log.OnApply(ResultOf(0, after, {0, 1}), after,
                                  /*running=*/false, AtMs(60), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(SkipsOf(*record), testing::IsEmpty());
  EXPECT_EQ(record->lost_server(), 0);
}

TEST(RoundEventLog, TellsNothingFromNaNInAPartThatItsOwnerKeptBack) {
  RoundEventLog log(MemberOf(0), ServerMode::kRolling);
  const View view = ViewOf(1, {0, 1, 2});
  log.OnOffer(MemberOf(0), {0, 0, 4, 1, 1}, PartCheck::kFine, AtMs(10));
  log.OnOffer(MemberOf(1), {0, 0, 0, 0, 1, /*not_finite=*/true},
              PartCheck::kFine, AtMs(11));
  log.OnOffer(MemberOf(2), {0, 0, 0, 0, 1}, PartCheck::kFine, AtMs(12));

  const auto record =
      log.OnApply(ResultOf(0, view, {0}), view, true, AtMs(20), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(SkipsOf(*record),
              testing::ElementsAre("1 not-finite", "2 empty"));
}

TEST(RoundEventLog, SaysWhatTheRuleFoundInThisRoundAlone) {
  RoundEventLog log(MemberOf(0), ServerMode::kCentral);
  const View view = ViewOf(1, {0, 1});
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 1;
  shard.contributors = {{MemberOf(0), 4}, {MemberOf(1), 4}};
  log.OnJudged({MemberOf(1)}, 0.25);

  const auto first =
      log.OnApply({0, view.id, {shard}}, view, true, AtMs(20), 7);
  const auto second =
      log.OnApply({1, view.id, {shard}}, view, true, AtMs(40), 9);

  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_THAT(SkipsOf(*first), testing::ElementsAre("1 outvoted"));
  EXPECT_THAT(SkipsOf(*second), testing::IsEmpty());
  EXPECT_EQ(log.stats().skipped[static_cast<size_t>(SkipReason::kOutvoted)], 1);
  EXPECT_EQ(first->cosine(), 0.25);
  EXPECT_FALSE(second->has_cosine());
}

TEST(RoundEventLog, LeavesTheTellingToWhoeverCommitted) {
  RoundEventLog log(MemberOf(1), ServerMode::kRolling);
  const View view = ViewOf(1, {0, 1});
  RoundResult result{0, view.id, {ShardResult{}}};
  result.shards[0].hash = 1;
  result.shards[0].divisor = 4;

  EXPECT_FALSE(log.OnApply(result, view, true, AtMs(1), 1).has_value());
  result.step = 1;
  const auto record = log.OnApply(result, view, true, AtMs(2), 2);

  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(SkipsOf(*record), testing::ElementsAre("0 late", "1 late"));
  EXPECT_EQ(log.stats().committed, 2);
}

// Only those that are to blame for it.
TEST(RoundEventLog, NamesTheUnusablePartsOfAVoidRoundAndNoOthers) {
  RoundEventLog log(MemberOf(1), ServerMode::kRolling);
  const View before = ViewOf(1, {0, 1, 2, 3});
  const View after = ViewOf(2, {0, 1, 2});
  // The lost one divided the batch otherwise; nobody else did.
  log.OnOffer(MemberOf(3), {1, 0, 4, 1, 2}, PartCheck::kFine, AtMs(1));
  log.OnView(before, after, 1, LostAt(2));
  log.OnOffer(MemberOf(0), {1, 0, 4, 1, 1}, PartCheck::kFine, AtMs(3));
  log.OnOffer(MemberOf(1), {1, 0, 4, 1, 1}, PartCheck::kFine, AtMs(4));
  log.OnOffer(MemberOf(2), {1, 0, 0, 1, 1}, PartCheck::kNotFinite, AtMs(5));
  ShardResult shard;
  shard.is_void = true;
  // Server of step 1 of three.
  RoundResult result{1, after.id, {shard}};

  const auto record = log.OnApply(result, after, true, AtMs(6), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->is_void());
  EXPECT_THAT(SkipsOf(*record), testing::ElementsAre("2 not-finite", "3 lost"));
}

// A thread that asks once.
class Asker {
 public:
  explicit Asker(LossRequests& requests)
      : thread_([this, &requests] { loss_ = requests.After({}, 0); }) {}

  absl::StatusOr<double> Loss() {
    thread_.join();
    return loss_;
  }

 private:
  absl::StatusOr<double> loss_;
  std::thread thread_;
};

class LossRequestsTest : public ::testing::Test {
 protected:
  RoundTurns turns_{10};
  LossRequests requests_{turns_};
};

TEST_F(LossRequestsTest, BringsTheQuestionToTheTurnsAndTheAnswerBack) {
  Asker asker(requests_);

  const RoundTurn turn = turns_.Await().value();
  EXPECT_EQ(turn.kind, RoundTurn::Kind::kLoss);
  EXPECT_TRUE(requests_.Take(turn));
  requests_.Answer(0.5);

  EXPECT_EQ(asker.Loss().value(), 0.5);
}

// Else the compute thread would read memory that is no more.
TEST_F(LossRequestsTest, WaitsForAQuestionThatWasTakenAlthoughTheRunEnds) {
  Asker asker(requests_);
  ASSERT_TRUE(requests_.Take(turns_.Await().value()));

  requests_.Shut();
  requests_.Answer(2.0);

  EXPECT_EQ(asker.Loss().value(), 2.0);
}

TEST_F(LossRequestsTest, WithdrawsWhatNobodyTookWhileItIsShut) {
  Asker asker(requests_);
  const RoundTurn turn = turns_.Await().value();

  requests_.Shut();

  EXPECT_EQ(asker.Loss().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(requests_.Take(turn));
  EXPECT_EQ(requests_.After({}, 0).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(LossRequestsTest, NeverTakesATurnForTheQuestionAfterIt) {
  Asker first(requests_);
  const RoundTurn old = turns_.Await().value();
  requests_.Shut();
  EXPECT_FALSE(first.Loss().ok());
  requests_.Reopen();
  Asker second(requests_);
  const RoundTurn turn = turns_.Await().value();

  EXPECT_FALSE(requests_.Take(old));
  EXPECT_TRUE(requests_.Take(turn));
  requests_.Answer(3.0);

  EXPECT_EQ(second.Loss().value(), 3.0);
}

constexpr absl::Duration kLease = absl::Seconds(3);

std::vector<PeerReport> Peers(const Arrivals& arrivals, int seconds,
                              std::vector<PeerReport> peers = {}) {
  arrivals.AddTo(peers, AtMs(1000 * seconds), kLease);
  return peers;
}

TEST(Arrivals, WhoseBytesComeIsWaitedForLessThanALease) {
  Arrivals arrivals;
  EXPECT_TRUE(Peers(arrivals, 0).empty());
  arrivals.OnBytes(MemberOf(1), AtMs(5'000));

  const auto at_once = Peers(arrivals, 5);
  const auto later = Peers(arrivals, 7);

  ASSERT_EQ(at_once.size(), 1u);
  EXPECT_EQ(at_once[0].peer, MemberOf(1));
  EXPECT_GT(at_once[0].owing, absl::ZeroDuration());
  EXPECT_LT(at_once[0].owing, kLease);
  EXPECT_EQ(later.at(0).owing, absl::Seconds(2));
}

// A wait that ended long ago is no complaint.
TEST(Arrivals, AreForgottenAfterALease) {
  Arrivals arrivals;
  arrivals.OnBytes(MemberOf(1), AtMs(5'000));

  EXPECT_TRUE(Peers(arrivals, 8).empty());
  arrivals.OnBytes(MemberOf(1), AtMs(8'000));
  EXPECT_EQ(Peers(arrivals, 9).size(), 1u);
}

TEST(Arrivals, TakeNothingFromWhatIsOwedBesides) {
  Arrivals arrivals;
  arrivals.OnBytes(MemberOf(1), AtMs(5'000));
  PeerReport known;
  known.peer = MemberOf(1);
  known.broken = absl::Seconds(1);
  known.owing = absl::Seconds(4);

  const auto peers = Peers(arrivals, 6, {known});

  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].owing, absl::Seconds(4));
  EXPECT_EQ(peers[0].broken, absl::Seconds(1));
}

}  // namespace
}  // namespace paceline

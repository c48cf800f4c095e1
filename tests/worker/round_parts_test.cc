// What an exchange is made of: shapes, memory, parts, the store, the queue of
// turns, the chronicle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/round/rule_blocks.h"
#include "tests/support/round_group.h"
#include "worker/rounds/round_event_log.h"
#include "worker/rounds/round_part.h"
#include "worker/rounds/round_payload.h"
#include "worker/rounds/round_store.h"
#include "worker/rounds/round_turn.h"

namespace paceline {
namespace {

constexpr StoreLimits kLimits{.steps = 4, .variants = 4};

TEST(RoundShape, ShardsCoverTheGradientInWholeBlocks) {
  for (const size_t values : {0u, 1u, 255u, 257u, 100'000u}) {
    for (const int shards : {1, 3, 64}) {
      const RoundShape shape(values, shards, Codec::kRaw);
      EXPECT_EQ(shape.begin(0), 0u);
      EXPECT_EQ(shape.begin(shards), values);
      for (int i = 0; i < shards; ++i) {
        EXPECT_LE(shape.begin(i), shape.begin(i + 1));
        EXPECT_TRUE(shape.begin(i) % kRuleBlock == 0 ||
                    shape.begin(i) == values);
      }
    }
  }
  EXPECT_EQ(RoundShape(1000, 1, Codec::kBf16).bytes(0), 2000u);
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

TEST(RoundStore, FindsResultsByTheirBytesWhoeverSentThem) {
  BlockPool pool(0);
  RoundStore store(RoundShape(1000, 1, Codec::kRaw), pool, kLimits);
  const PayloadKey key{PayloadKey::Kind::kResult, 3, 0, 17};
  const auto payload = store.Incoming(MemberOf(1), key, 4000);
  std::fill(payload->mutable_bytes().begin(), payload->mutable_bytes().end(),
            5);

  EXPECT_EQ(store.Incoming(MemberOf(1), key, 4000), payload);
  EXPECT_NE(store.Incoming(MemberOf(2), key, 4000), payload);
  MarkAllReady(*payload);
  EXPECT_EQ(store.FindResult(3, 0, payload->hash()).payload, payload);
  EXPECT_EQ(store.FindResult(3, 0, payload->hash() + 1).payload, nullptr);
  EXPECT_EQ(store.FindResult(4, 0, payload->hash()).payload, nullptr);
  store.Forget(4);
  EXPECT_EQ(store.FindResult(3, 0, payload->hash()).payload, nullptr);
}

TEST(RoundStore, KeepsAFewResultsOfOneSenderOnly) {
  BlockPool pool(0);
  RoundStore store(RoundShape(1000, 1, Codec::kRaw), pool, kLimits);
  int given = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    given += store.Incoming(MemberOf(1), {PayloadKey::Kind::kResult, 3, 0, i},
                            4000) != nullptr;
  }

  EXPECT_EQ(given, 4);
}

TEST(RoundStore, KeepsResultsOfAFewStepsOfOneSenderOnly) {
  BlockPool pool(0);
  RoundStore store(RoundShape(1000, 1, Codec::kRaw), pool, kLimits);
  const auto given = [&store](const MemberId& from, int64_t step) {
    return store.Incoming(from, {PayloadKey::Kind::kResult, step, 0, 7},
                          4000) != nullptr;
  };
  for (const int64_t step : {3, 4, 5, 6}) EXPECT_TRUE(given(MemberOf(1), step));

  EXPECT_FALSE(given(MemberOf(1), 7));
  EXPECT_TRUE(given(MemberOf(1), 5));
  EXPECT_TRUE(given(MemberOf(2), 7));
  store.Forget(4);
  EXPECT_TRUE(given(MemberOf(1), 7));
}

// A kApply of these divisors, a shard each, the sums uninitialised.
RoundTurn ApplyOf(const RoundShape& shape,
                  const std::vector<int64_t>& divisors) {
  RoundTurn turn;
  turn.divisor = divisors.front();
  for (size_t shard = 0; shard < divisors.size(); ++shard) {
    ShardResult result;
    result.shard = static_cast<int>(shard);
    result.divisor = divisors[shard];
    turn.result.shards.push_back(result);
    turn.sums.push_back(RoundPayload::Make(shape.bytes(result.shard)));
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
  const RoundShape shape(1000, 3, Codec::kRaw);
  RoundTurn turn = ApplyOf(shape, {8, 8, 8});
  for (int shard = 0; shard < 3; ++shard) {
    for (const size_t at : {size_t{0}, shape.values(shard) - 1}) {
      const auto value = static_cast<float>(shape.begin(shard) + at);
      std::memcpy(turn.sums[shard]->mutable_bytes().data() + 4 * at, &value, 4);
    }
  }

  const auto pieces = ResultInPlace(turn, shape);

  ASSERT_TRUE(pieces.has_value());
  size_t next = 0;
  for (const absl::Span<const float> piece : *pieces) {
    EXPECT_EQ(piece.front(), static_cast<float>(next));
    next += piece.size();
    EXPECT_EQ(piece.back(), static_cast<float>(next - 1));
  }
  EXPECT_EQ(next, 1000u);

  turn.result.shards[1].divisor = 4;
  EXPECT_FALSE(ResultInPlace(turn, shape).has_value()) << "to be scaled";
}

TEST(ResultInPlace, IsNothingWhereValuesAreCoded) {
  const RoundShape shape(512, 1, Codec::kBf16);

  EXPECT_FALSE(ResultInPlace(ApplyOf(shape, {8}), shape).has_value());
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
  state.view = MakeView(1, {{MemberOf(0), 0}});
  state.next = 3;
  state.has_state = true;
  state.needs_part = true;
  turns.Push(Turn(RoundTurn::Kind::kApply, 2));
  turns.Publish(state);

  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kApply);
  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kPart);
  turns.OnPart(3);
  turns.Push(Turn(RoundTurn::Kind::kCopy, 0));
  EXPECT_FALSE(turns.IsOver(3));
  EXPECT_TRUE(turns.TryTakeCopy().has_value());
  EXPECT_FALSE(turns.TryTakeCopy().has_value());
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
  turns.Push(Turn(RoundTurn::Kind::kCopy, 0));
  EXPECT_EQ(turns.Await()->kind, RoundTurn::Kind::kCopy);
}

Instant At(int ms) { return {absl::Milliseconds(ms)}; }

TEST(RoundEventLog, SaysWhoTookOverAndWhoseParsWereSkipped) {
  RoundEventLog chronicle(MemberOf(1), ServerMode::kRolling);
  const View before =
      MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}, {MemberOf(2), 0}});
  const View after = MakeView(2, {{MemberOf(1), 0}, {MemberOf(2), 0}});
  chronicle.OnOffer(MemberOf(1), {0, 0, 4, 1, 1}, PartCheck::kFine, At(10));
  chronicle.OnLost(MemberOf(0), At(20));
  chronicle.OnView(before, after, 0, At(30));
  chronicle.OnOffer(MemberOf(2), {0, 0, 0, 1, 1}, PartCheck::kNotFinite,
                    At(40));
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 4;
  shard.contributors = {{MemberOf(1), 4}};
  RoundResult result{0, after.id, {shard}};

  const auto record = chronicle.OnApply(result, after, true, At(61), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->server, WorkerId{1});
  EXPECT_EQ(record->lost_server, WorkerId{0});
  EXPECT_NEAR(record->takeover_seconds, 0.041, 1e-9);
  EXPECT_NEAR(record->seconds, 0.051, 1e-9);
  EXPECT_EQ(record->contributors, 1);
  EXPECT_THAT(record->skipped,
              testing::ElementsAre(RoundRecord::Skip{WorkerId{2}, "not-finite"},
                                   RoundRecord::Skip{WorkerId{0}, "lost"}));
  EXPECT_EQ(chronicle.stats().takeovers, 1);
}

TEST(RoundEventLog, CountsATakeoverFromTheBreakThatWasNotMended) {
  RoundEventLog chronicle(MemberOf(1), ServerMode::kRolling);
  const View before = MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}});
  const View after = MakeView(2, {{MemberOf(1), 0}});
  chronicle.OnLost(MemberOf(0), At(10));  // it did not listen yet
  chronicle.OnBack(MemberOf(0));
  chronicle.OnLost(MemberOf(0), At(60'000));
  chronicle.OnView(before, after, 0, At(60'010));
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 4;
  shard.contributors = {{MemberOf(1), 4}};

  const auto record =
      chronicle.OnApply({0, after.id, {shard}}, after, true, At(60'040), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_NEAR(record->takeover_seconds, 0.040, 1e-9);
}

TEST(RoundEventLog, CountsHowLongRoundsTookOfWhichItSawAPart) {
  RoundEventLog chronicle(MemberOf(0), ServerMode::kRolling);
  const View view = MakeView(1, {{MemberOf(0), 0}});
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 4;
  shard.contributors = {{MemberOf(0), 4}};
  for (const int ms : {10, 11, 60'000}) {
    chronicle.OnOffer(MemberOf(0), {0, 0, 4, 1, 1}, PartCheck::kFine, At(0));
    chronicle.OnApply({0, view.id, {shard}}, view, true, At(ms), 7);
  }
  chronicle.OnApply({0, view.id, {shard}}, view, true, At(70'000), 7);

  const RoundStats& stats = chronicle.stats();

  EXPECT_EQ(stats.committed, 4);
  EXPECT_EQ(stats.durations[3], 1) << "at most 0.01 s";
  EXPECT_EQ(stats.durations[4], 1) << "at most 0.02 s";
  EXPECT_EQ(stats.durations.back(), 1);
  EXPECT_NEAR(stats.seconds, 60.021, 1e-9);
}

TEST(RoundEventLog, SkipsNobodyWhosePartIsInTheSumThoughItIsLost) {
  RoundEventLog chronicle(MemberOf(1), ServerMode::kRolling);
  const View before = MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}});
  const View after = MakeView(2, {{MemberOf(1), 0}});
  chronicle.OnView(before, after, 0, At(30));
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 8;
  shard.contributors = {{MemberOf(0), 4}, {MemberOf(1), 4}};

  const auto record = chronicle.OnApply({0, after.id, {shard}}, after,
                                        /*running=*/false, At(60), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(record->skipped, testing::IsEmpty());
  EXPECT_EQ(record->lost_server, WorkerId{0});
}

TEST(RoundEventLog, TellsNothingFromNaNInAPartThatItsOwnerKeptBack) {
  RoundEventLog chronicle(MemberOf(0), ServerMode::kRolling);
  const View view =
      MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}, {MemberOf(2), 0}});
  chronicle.OnOffer(MemberOf(0), {0, 0, 4, 1, 1}, PartCheck::kFine, At(10));
  chronicle.OnOffer(MemberOf(1), {0, 0, 0, 0, 1, /*not_finite=*/true},
                    PartCheck::kFine, At(11));
  chronicle.OnOffer(MemberOf(2), {0, 0, 0, 0, 1}, PartCheck::kFine, At(12));
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 4;
  shard.contributors = {{MemberOf(0), 4}};

  const auto record =
      chronicle.OnApply({0, view.id, {shard}}, view, true, At(20), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(record->skipped,
              testing::ElementsAre(RoundRecord::Skip{WorkerId{1}, "not-finite"},
                                   RoundRecord::Skip{WorkerId{2}, "empty"}));
}

TEST(RoundEventLog, SaysWhomTheRuleLeftOutOfThisRoundAlone) {
  RoundEventLog chronicle(MemberOf(0), ServerMode::kCentral);
  const View view = MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}});
  ShardResult shard;
  shard.hash = 1;
  shard.divisor = 1;
  shard.contributors = {{MemberOf(0), 4}, {MemberOf(1), 4}};
  chronicle.OnJudged({MemberOf(1)});

  const auto first =
      chronicle.OnApply({0, view.id, {shard}}, view, true, At(20), 7);
  const auto second =
      chronicle.OnApply({1, view.id, {shard}}, view, true, At(40), 9);

  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_THAT(first->skipped,
              testing::ElementsAre(RoundRecord::Skip{WorkerId{1}, "outvoted"}));
  EXPECT_THAT(second->skipped, testing::IsEmpty());
  EXPECT_EQ(
      chronicle.stats().skipped[static_cast<size_t>(SkipReason::kOutvoted)], 1);
}

TEST(RoundEventLog, LeavesTheTellingToWhoeverCommitted) {
  RoundEventLog chronicle(MemberOf(1), ServerMode::kRolling);
  const View view = MakeView(1, {{MemberOf(0), 0}, {MemberOf(1), 0}});
  RoundResult result{0, view.id, {ShardResult{}}};
  result.shards[0].hash = 1;
  result.shards[0].divisor = 4;

  EXPECT_FALSE(chronicle.OnApply(result, view, true, At(1), 1).has_value());
  result.step = 1;
  const auto record = chronicle.OnApply(result, view, true, At(2), 2);

  ASSERT_TRUE(record.has_value());
  EXPECT_THAT(record->skipped,
              testing::ElementsAre(RoundRecord::Skip{WorkerId{0}, "late"},
                                   RoundRecord::Skip{WorkerId{1}, "late"}));
  EXPECT_EQ(chronicle.stats().committed, 2);
}

// Only those that are to blame for it.
TEST(RoundEventLog, NamesTheUnusablePartsOfAVoidRoundAndNoOthers) {
  RoundEventLog chronicle(MemberOf(1), ServerMode::kRolling);
  const View before = MakeView(
      1,
      {{MemberOf(0), 0}, {MemberOf(1), 0}, {MemberOf(2), 0}, {MemberOf(3), 0}});
  const View after =
      MakeView(2, {{MemberOf(0), 0}, {MemberOf(1), 0}, {MemberOf(2), 0}});
  // The lost one divided the batch otherwise; nobody else did.
  chronicle.OnOffer(MemberOf(3), {1, 0, 4, 1, 2}, PartCheck::kFine, At(1));
  chronicle.OnView(before, after, 1, At(2));
  chronicle.OnOffer(MemberOf(0), {1, 0, 4, 1, 1}, PartCheck::kFine, At(3));
  chronicle.OnOffer(MemberOf(1), {1, 0, 4, 1, 1}, PartCheck::kFine, At(4));
  chronicle.OnOffer(MemberOf(2), {1, 0, 0, 1, 1}, PartCheck::kNotFinite, At(5));
  ShardResult shard;
  shard.is_void = true;
  // Server of step 1 of three.
  RoundResult result{1, after.id, {shard}};

  const auto record = chronicle.OnApply(result, after, true, At(6), 7);

  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->is_void);
  EXPECT_THAT(record->skipped,
              testing::ElementsAre(RoundRecord::Skip{WorkerId{2}, "not-finite"},
                                   RoundRecord::Skip{WorkerId{3}, "lost"}));
}

}  // namespace
}  // namespace paceline

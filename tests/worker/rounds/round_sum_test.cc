#include "worker/rounds/parts/round_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/support/pipeline/round_group.h"
#include "worker/rounds/parts/round_payload.h"

namespace paceline {
namespace {

constexpr size_t kValues = 1000;

// No rule of these tests asks.
class NoLoss final : public TrustedLoss {
 public:
  absl::StatusOr<double> After(absl::Span<const float>, double) override {
    return absl::UnimplementedError("no data here");
  }
};

// Stands still at the first part that was looked at.
class StandingSink final : public SumSink {
 public:
  void OnPartChecked(const RoundMessage& offer, PartCheck) override {
    checked.push_back(offer.from);
    if (stands.HasBeenNotified()) return;
    stands.Notify();
    go_on.WaitForNotification();
  }
  void OnDecided(const SumRequest&, std::shared_ptr<RoundPayload>) override {}
  void OnSummed(const SumRequest&, std::shared_ptr<RoundPayload>,
                const SumVerdict&) override {
    summed.Notify();
  }

  absl::Notification stands, go_on, summed;
  std::vector<MemberId> checked;  // read it when all is done
};

std::shared_ptr<RoundPayload> Zeros(BlockPool& pool) {
  auto payload = pool.Make(kValues * sizeof(float));
  std::ranges::fill(payload->mutable_bytes(), uint8_t{0});
  MarkAllReady(*payload);
  return payload;
}

RoundMessage OfferOf(int member, const RoundPayload& payload) {
  RoundMessage message;
  message.from = MemberOf(member);
  message.body = PartOffer{0, 0, 4, payload.hash(), 0};
  return message;
}

// A listener's part is dropped with a view; it comes anew, and stops halfway.
TEST(RoundSum, LooksAtNoPartThatIsNotWhollyHere) {
  BlockPool pool(0);
  NoLoss loss;
  StandingSink sink;
  RoundSum sum({}, RoundShape(kValues, 1, Codec::kRaw), pool, loss, sink);
  const auto first = Zeros(pool), second = Zeros(pool);
  sum.AddPart(0, 0, MemberOf(0), first);
  sum.AddPart(0, 0, MemberOf(1), second);
  sum.Check(OfferOf(0, *first));
  sink.stands.WaitForNotification();
  sum.Check(OfferOf(1, *second));

  sum.Retain({MemberOf(0)});
  sum.AddPart(0, 0, MemberOf(1), pool.Make(kValues * sizeof(float)));
  sum.Check(OfferOf(0, *first));
  sink.go_on.Notify();
  sum.Close({{1, 1}, 0, 0, {{MemberOf(0), 4}}});
  sink.summed.WaitForNotification();

  EXPECT_THAT(sink.checked, testing::ElementsAre(MemberOf(0), MemberOf(0)));
}

// Hands out the sum, and says when the thread has come to a message.
class QuickSink final : public SumSink {
 public:
  void OnPartChecked(const RoundMessage&, PartCheck) override {
    checked.Notify();
  }
  void OnDecided(const SumRequest&,
                 std::shared_ptr<RoundPayload> of_now) override {
    for (int i = 0; i < of_now->chunks(); ++i) ready += of_now->IsReady(i);
  }
  void OnSummed(const SumRequest&, std::shared_ptr<RoundPayload> of_now,
                const SumVerdict& of_rule) override {
    sum = std::move(of_now);
    verdict = of_rule;
    summed.Notify();
  }

  int ready = 0;  // chunks, when the round was closed
  std::shared_ptr<RoundPayload> sum;
  SumVerdict verdict;
  absl::Notification checked, summed;
};

// The chunks that all have sent of their parts are summed while the rest is on
// its way: the bytes of a chunk that change afterwards, as none ever do, are
// not in the sum.
TEST(RoundSum, SumsChunksBeforeThePartsAreWhole) {
  constexpr size_t kLong = 2 * (kRoundChunkBytes / sizeof(float)) + 10;
  const RoundShape shape(kLong, 1, Codec::kRaw);
  ASSERT_EQ(shape.chunks(), 3);
  BlockPool pool(0);
  NoLoss loss;
  QuickSink sink;
  RoundSum sum({}, shape, pool, loss, sink);
  std::vector<std::shared_ptr<RoundPayload>> parts;
  const auto fill = [&](float value) {
    for (const auto& part : parts) {
      auto* const values =
          reinterpret_cast<float*>(part->mutable_bytes().data());
      std::fill_n(values, kLong, value);
    }
  };
  const auto arrive = [&](int chunk) {
    for (const auto& part : parts) {
      part->MarkReady(chunk, HashBytes(part->chunk(chunk)));
    }
  };
  sum.Expect(0, 0, {MemberOf(0), MemberOf(1)});
  for (const int member : {0, 1}) {
    parts.push_back(shape.Make(0, pool));
    sum.AddPart(0, 0, MemberOf(member), parts.back());
  }
  fill(1);
  arrive(0);
  arrive(2);
  // Behind the sums of these chunks on the thread.
  const auto other = shape.Make(0, pool);
  std::ranges::fill(other->mutable_bytes(), uint8_t{0});
  MarkAllReady(*other);
  sum.AddPart(1, 0, MemberOf(0), other);
  RoundMessage offer = OfferOf(0, *other);
  std::get<PartOffer>(offer.body).step = 1;
  sum.Check(offer);
  sink.checked.WaitForNotification();

  fill(5);
  arrive(1);
  sum.Close({{1, 1}, 0, 0, {{MemberOf(0), 4}, {MemberOf(1), 4}}});
  sink.summed.WaitForNotification();

  EXPECT_EQ(sink.ready, 3) << "nothing was left to do";
  const auto* const values =
      reinterpret_cast<const float*>(sink.sum->bytes().data());
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[shape.chunk_values()], 10);
  EXPECT_EQ(values[kLong - 1], 2);
}

TEST(RoundSum, TellsWhosePartsTheRuleLeftOut) {
  BlockPool pool(0);
  NoLoss loss;
  QuickSink sink;
  RoundSum sum({.rule = {.name = "suspicion", .k = 1}},
               RoundShape(kValues, 1, Codec::kRaw), pool, loss, sink);
  const float values[] = {1, -50, 2, 1.5};
  std::vector<Contributor> contributors;
  for (const int member : {0, 1, 2, 3}) {
    const auto part = Zeros(pool);
    auto* const of_part =
        reinterpret_cast<float*>(part->mutable_bytes().data());
    std::fill_n(of_part, kValues, values[member]);
    sum.AddPart(0, 0, MemberOf(member), part);
    contributors.push_back({MemberOf(member), 1});
  }

  sum.Close({{1, 1}, 0, 0, contributors});
  sink.summed.WaitForNotification();

  EXPECT_EQ(sink.verdict.divisor, 1);
  EXPECT_THAT(sink.verdict.dropped, testing::ElementsAre(MemberOf(1)));
}

// A round of these parts, a value or two each, gives this.
std::optional<double> CosineOf(const std::vector<std::vector<float>>& parts) {
  BlockPool pool(0);
  NoLoss loss;
  QuickSink sink;
  const RoundShape shape(parts[0].size(), 1, Codec::kRaw);
  RoundSumOptions options;
  options.conflict = true;
  RoundSum sum(options, shape, pool, loss, sink);
  std::vector<Contributor> contributors;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto payload = shape.Make(0, pool);
    std::memcpy(payload->mutable_bytes().data(), parts[i].data(),
                payload->size());
    MarkAllReady(*payload);
    sum.AddPart(0, 0, MemberOf(static_cast<int>(i)), payload);
    contributors.push_back({MemberOf(static_cast<int>(i)), 4});
  }
  sum.Close({{1, 1}, 0, 0, contributors});
  sink.summed.WaitForNotification();
  return sink.verdict.cosine;
}

TEST(RoundSum, MeasuresHowAlikePartsAreWhereItIsAsked) {
  EXPECT_NEAR(*CosineOf({{1, 2}, {1, 2}, {1, 2}}), 1, 1e-12);
  EXPECT_NEAR(*CosineOf({{1, 0}, {0, 1}}), 0, 1e-12);
  EXPECT_NEAR(*CosineOf({{1, 2}, {-1, -2}}), -1, 1e-12);
  EXPECT_FALSE(CosineOf({{0, 0}, {0, 0}}).has_value());
  EXPECT_FALSE(CosineOf({{1, 2}}).has_value());
}

}  // namespace
}  // namespace paceline

#include "worker/round_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/support/round_group.h"
#include "worker/round_part.h"

namespace paceline {
namespace {

constexpr size_t kValues = 1000;

// No rule of these tests asks.
class NoLoss final : public TrustedLoss {
 public:
  absl::StatusOr<double> AtPresent() override {
    return absl::UnimplementedError("no data here");
  }
  absl::StatusOr<double> After(absl::Span<const float>, double) override {
    return AtPresent();
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
  void OnSummed(const SumRequest&, std::shared_ptr<RoundPayload>, int64_t,
                const std::string&) override {
    summed.Notify();
  }

  absl::Notification stands, go_on, summed;
  std::vector<MemberId> checked;  // read it when all is done
};

std::shared_ptr<RoundPayload> Zeros(BlockPool& pool) {
  auto payload = pool.Make(kValues * sizeof(float));
  std::fill(payload->mutable_bytes().begin(), payload->mutable_bytes().end(),
            uint8_t{0});
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

}  // namespace
}  // namespace paceline

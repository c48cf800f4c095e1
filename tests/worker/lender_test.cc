#include "worker/rpc/lender.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr LoanReceipt kFirst{/*word=*/77, /*readable=*/false, /*taken=*/0};
constexpr LoanReceipt kShown{77, true, 0};

PayloadKey Part(int64_t step) { return {PayloadKey::Kind::kPart, step, 0, 0}; }

std::shared_ptr<RoundPayload> Payload() { return RoundPayload::Make(8); }

TEST(Lender, ShowsItsMemoryOnceToAReceiverThatAsks) {
  Lender lender(/*near=*/true);
  EXPECT_FALSE(lender.TakeIntroduction().has_value());

  lender.OnReceipt(kFirst);

  const auto memory = lender.TakeIntroduction();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->process, getpid());
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(memory->word_address), 77u);
  EXPECT_FALSE(lender.TakeIntroduction().has_value());
  EXPECT_FALSE(lender.lends());
  lender.OnReceipt(kFirst);
  EXPECT_FALSE(lender.TakeIntroduction().has_value());
}

TEST(Lender, TellsAPeerElsewhereNothing) {
  Lender lender(/*near=*/false);

  lender.OnReceipt(kShown);

  EXPECT_FALSE(lender.TakeIntroduction().has_value());
  EXPECT_FALSE(lender.lends());
}

TEST(Lender, LendsSoManyAndGetsThemBackInTheirOrder) {
  Lender lender(/*near=*/true);
  lender.OnReceipt(kShown);
  const auto first = Payload();
  lender.Lend(Part(1), first);
  while (lender.has_room()) lender.Lend(Part(2), Payload());
  EXPECT_TRUE(lender.HasLentBefore(2));

  EXPECT_THAT(lender.OnReceipt({77, true, 1}), ::testing::ElementsAre(first));

  EXPECT_TRUE(lender.has_room());
  EXPECT_FALSE(lender.HasLentBefore(2));
  EXPECT_TRUE(lender.HasLentBefore(3));
  EXPECT_THAT(lender.OnReceipt({77, true, 1}), IsEmpty());
  // More than there are, or less than before: a peer that cannot count.
  EXPECT_THAT(lender.OnReceipt({77, true, 1 << 20}),
              SizeIs(Lender::kMostLent - 1));
  EXPECT_THAT(lender.OnReceipt({77, true, 0}), IsEmpty());
}

TEST(Lender, KeepsCopiesOfTheStateWhateverTheirStep) {
  Lender lender(/*near=*/true);
  lender.OnReceipt(kShown);

  lender.Lend({PayloadKey::Kind::kState, 1, 0, 0}, Payload());

  EXPECT_FALSE(lender.HasLentBefore(5));
}

TEST(Lender, StartsAnewWithEveryCall) {
  Lender lender(/*near=*/true);
  lender.OnReceipt(kShown);
  lender.Lend(Part(1), Payload());

  EXPECT_THAT(lender.OnCallDone(/*data_lost=*/false), SizeIs(1));

  EXPECT_FALSE(lender.lends());
  lender.OnReceipt({78, true, 0});
  EXPECT_TRUE(lender.lends());
  EXPECT_TRUE(lender.TakeIntroduction().has_value());
}

TEST(Lender, LendsNothingMoreToAPeerThatCouldNotUseIt) {
  Lender lender(/*near=*/true);
  lender.OnReceipt(kShown);
  lender.Lend(Part(1), Payload());

  lender.OnCallDone(/*data_lost=*/true);

  lender.OnReceipt({78, true, 0});
  EXPECT_FALSE(lender.lends());
}

}  // namespace
}  // namespace paceline

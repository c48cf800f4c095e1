#include <unistd.h>

#include <cstdint>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/near_memory.h"

namespace paceline {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr LoanReceipt kFirst{/*word=*/77, /*readable=*/false, /*taken=*/0};
constexpr LoanReceipt kShown{77, true, 0};

constexpr RoundProcess kSelf{1, 100};
constexpr RoundProcess kPeer{2, 200};

PayloadKey Part(int64_t step) { return {PayloadKey::Kind::kPart, step, 0, 0}; }

std::shared_ptr<RoundPayload> Payload() { return RoundPayload::Make(8); }

class LenderTest : public ::testing::Test {
 protected:
  Lender lender{/*near=*/true, kSelf, kPeer};
};

TEST_F(LenderTest, ShowsItsMemoryOnceToAReceiverThatAsks) {
  EXPECT_FALSE(lender.TakeIntroduction().has_value());

  lender.OnReceipt(kFirst);

  const auto memory = lender.TakeIntroduction();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->process, getpid());
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(memory->word_address),
            MemoryProof(77, kSelf, kPeer));
  EXPECT_FALSE(lender.TakeIntroduction().has_value());
  EXPECT_FALSE(lender.lends());
  lender.OnReceipt(kFirst);
  EXPECT_FALSE(lender.TakeIntroduction().has_value());
}

TEST(Lender, TellsAPeerElsewhereNothing) {
  Lender lender(/*near=*/false, kSelf, kPeer);

  lender.OnReceipt(kShown);

  EXPECT_FALSE(lender.TakeIntroduction().has_value());
  EXPECT_FALSE(lender.lends());
}

TEST_F(LenderTest, LendsSoManyAndGetsThemBackInTheirOrder) {
  lender.OnReceipt(kShown);
  const auto first = Payload();
  lender.Lend(Part(1), first);
  while (lender.has_room()) lender.Lend(Part(2), Payload());
  EXPECT_EQ(lender.LastLoanBefore(2), 1);

  EXPECT_THAT(lender.OnReceipt({77, true, 1}), ::testing::ElementsAre(first));

  EXPECT_TRUE(lender.has_room());
  EXPECT_EQ(lender.LastLoanBefore(2), 0);
  EXPECT_EQ(lender.LastLoanBefore(3), static_cast<int64_t>(Lender::kMostLent));
  EXPECT_FALSE(lender.IsOut(1));
  EXPECT_TRUE(lender.IsOut(2));
  EXPECT_THAT(lender.OnReceipt({77, true, 1}), IsEmpty());
  // More than there are, or less than before: a peer that cannot count.
  EXPECT_THAT(lender.OnReceipt({77, true, 1 << 20}),
              SizeIs(Lender::kMostLent - 1));
  EXPECT_THAT(lender.OnReceipt({77, true, 0}), IsEmpty());
  lender.Lend(Part(3), Payload());
  EXPECT_THAT(lender.OnReceipt({77, true, INT64_MIN}), IsEmpty());
}

// Loans of a step that are made after it was forgotten are others.
TEST_F(LenderTest, TellsLoansOfOneStepApart) {
  lender.OnReceipt(kShown);
  lender.Lend(Part(1), Payload());
  const int64_t before = lender.LastLoanBefore(2);
  lender.Lend(Part(1), Payload());

  lender.OnReceipt({77, true, 1});

  EXPECT_FALSE(lender.IsOut(before));
  EXPECT_TRUE(lender.IsOut(lender.LastLoanBefore(2)));
}

TEST(MemoryProof, IsOfOneWordAndOneOrderedPair) {
  const uint64_t proof = MemoryProof(77, kSelf, kPeer);

  EXPECT_EQ(MemoryProof(77, kSelf, kPeer), proof);
  EXPECT_NE(MemoryProof(78, kSelf, kPeer), proof);
  EXPECT_NE(MemoryProof(77, kPeer, kSelf), proof);
  EXPECT_NE(MemoryProof(77, kSelf, {2, 201}), proof);
}

TEST_F(LenderTest, KeepsCopiesOfTheStateWhateverTheirStep) {
  lender.OnReceipt(kShown);

  lender.Lend({PayloadKey::Kind::kState, 1, 0, 0}, Payload());

  EXPECT_EQ(lender.LastLoanBefore(5), 0);
}

TEST_F(LenderTest, StartsAnewWithEveryCall) {
  lender.OnReceipt(kShown);
  lender.Lend(Part(1), Payload());

  EXPECT_THAT(lender.OnCallDone(/*data_lost=*/false), SizeIs(1));

  EXPECT_FALSE(lender.lends());
  lender.OnReceipt({78, true, 0});
  EXPECT_TRUE(lender.lends());
  EXPECT_TRUE(lender.TakeIntroduction().has_value());
}

TEST_F(LenderTest, LendsNothingMoreToAPeerThatCouldNotUseIt) {
  lender.OnReceipt(kShown);
  lender.Lend(Part(1), Payload());

  lender.OnCallDone(/*data_lost=*/true);

  lender.OnReceipt({78, true, 0});
  EXPECT_FALSE(lender.lends());
}

}  // namespace
}  // namespace paceline

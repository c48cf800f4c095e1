#include <vector>

#include "core/round/round_roles.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/round/small_group.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kDeadline = absl::Seconds(1);

Gather GatherOf(int members) {
  std::vector<MemberId> ids;
  for (int i = 0; i < members; ++i) ids.push_back(Member(i));
  return Gather(0, ids, At(-2));
}

PartOffer Part(int64_t samples) { return {5, 0, samples, 77}; }

TEST(Gather, ClosesWhenAllPartsAreIn) {
  Gather gather = GatherOf(2);
  EXPECT_EQ(gather.first_after(), absl::ZeroDuration());
  EXPECT_TRUE(gather.Add(Member(1), Part(3), At(0)));
  EXPECT_EQ(gather.first_after(), absl::Seconds(2));
  EXPECT_FALSE(gather.TryClose(1, kDeadline, At(0.1)));
  EXPECT_TRUE(gather.Add(Member(0), Part(4), At(0.2)));
  EXPECT_TRUE(gather.TryClose(1, kDeadline, At(0.2)));
  // By id, not in order of arrival.
  EXPECT_THAT(gather.contributors(), ElementsAre(Contributor{Member(0), 4},
                                                 Contributor{Member(1), 3}));
}

TEST(Gather, AtTheDeadlineEnoughPartsDo) {
  Gather gather = GatherOf(3);
  gather.Add(Member(0), Part(1), At(10));
  gather.Add(Member(2), Part(1), At(10.5));
  EXPECT_EQ(gather.DueAt(2, kDeadline), At(11));
  EXPECT_FALSE(gather.TryClose(2, kDeadline, At(10.999)));
  EXPECT_TRUE(gather.TryClose(2, kDeadline, At(11)));
  EXPECT_EQ(gather.contributors().size(), 2u);
}

TEST(Gather, GoesOnGatheringWhileTooFewPartsAreThere) {
  Gather gather = GatherOf(3);
  gather.Add(Member(0), Part(1), At(0));
  EXPECT_FALSE(gather.DueAt(2, kDeadline).has_value());
  EXPECT_FALSE(gather.TryClose(2, kDeadline, At(100)));
  gather.Add(Member(1), Part(1), At(100));
  EXPECT_TRUE(gather.TryClose(2, kDeadline, At(100)));
}

// Eight parts are needed, and one member sends NaN: the ninth's is awaited
// though the deadline is long over.
TEST(Gather, AMemberThatIsLateHasNotSpoken) {
  Gather gather = GatherOf(9);
  gather.Add(Member(0), Part(0), At(0));
  for (int i = 1; i < 8; ++i) gather.Add(Member(i), Part(16), At(0.1));
  EXPECT_FALSE(gather.TryClose(8, kDeadline, At(100)));

  gather.Add(Member(8), Part(16), At(200));

  ASSERT_TRUE(gather.TryClose(8, kDeadline, At(200)));
  EXPECT_FALSE(gather.is_void());
  EXPECT_EQ(gather.contributors().size(), 8u);
}

TEST(Gather, IsVoidWhenAllHaveSpokenAndTooFewPartsAreUsable) {
  Gather gather = GatherOf(3);
  gather.Add(Member(0), Part(1), At(0));
  gather.Add(Member(1), Part(0), At(0));
  gather.Add(Member(2), Part(0), At(0));
  EXPECT_TRUE(gather.TryClose(2, kDeadline, At(0)));
  EXPECT_TRUE(gather.is_void());
  EXPECT_THAT(gather.contributors(), IsEmpty());
  ASSERT_TRUE(gather.result().has_value());
  EXPECT_TRUE(gather.result()->is_void);
}

TEST(Gather, ALatePartChangesNothing) {
  Gather gather = GatherOf(2);
  gather.Add(Member(0), Part(1), At(0));
  ASSERT_TRUE(gather.TryClose(1, kDeadline, At(1)));
  EXPECT_FALSE(gather.Add(Member(1), Part(1), At(1.1)));
  EXPECT_EQ(gather.contributors().size(), 1u);
  // Whose part is in may say so again.
  EXPECT_FALSE(gather.Add(Member(0), Part(1), At(1.2)));
}

TEST(Gather, WhoIsMissingAtTheDeadlineCountsAsTwiceAsLate) {
  Gather gather = GatherOf(4);
  gather.Add(Member(0), Part(1), At(10));
  gather.Add(Member(2), Part(1), At(10.5));
  ASSERT_TRUE(gather.TryClose(2, kDeadline, At(11.5)));
  gather.SetResult(7, 2);

  EXPECT_THAT(gather.result()->arrivals,
              ElementsAre(absl::ZeroDuration(), absl::Seconds(0.5),
                          absl::Seconds(3), absl::Seconds(3)));
}

// One of two, of whom the deadline has learnt that it takes 10 ms.
TEST(Gather, AMemberThatBecameSlowerIsWaitedForAgain) {
  const auto slow = absl::Milliseconds(300);
  Deadline deadline({.floor = absl::Milliseconds(50),
                     .share = 0,
                     .ceiling = absl::Seconds(30),
                     .deviations = 6,
                     .remembered = 16});
  deadline.Add(std::vector<absl::Duration>(17, absl::Milliseconds(10)));

  int rounds = 0;
  for (bool taken = false; !taken && rounds < 100; ++rounds) {
    Gather gather = GatherOf(2);
    gather.Add(Member(0), Part(1), At(0));
    const absl::Duration wait = deadline.Get(gather.first_after());
    taken = slow <= wait;
    if (taken) gather.Add(Member(1), Part(1), At(absl::ToDoubleSeconds(slow)));
    ASSERT_TRUE(gather.TryClose(1, wait, At(absl::ToDoubleSeconds(wait))));
    gather.SetResult(7, 1);
    deadline.Add(gather.result()->arrivals);
  }

  EXPECT_GT(rounds, 8) << "most of what it remembers has to say so";
  EXPECT_LT(rounds, 30);
}

TEST(Gather, TheFirstWordOfAMemberStays) {
  Gather gather = GatherOf(2);
  EXPECT_TRUE(gather.Add(Member(0), Part(3), At(0)));
  EXPECT_FALSE(gather.Add(Member(0), Part(9), At(0.1)));
  gather.Add(Member(1), Part(1), At(0.2));
  gather.TryClose(1, kDeadline, At(0.2));
  EXPECT_EQ(gather.contributors().front().samples, 3);
}

TEST(Gather, IsVoidWhenTheRuleCanMakeNothingOfTheParts) {
  Gather gather = GatherOf(1);
  gather.Add(Member(0), Part(3), At(0));
  ASSERT_TRUE(gather.TryClose(1, kDeadline, At(0)));
  gather.SetResult(0, 0);
  EXPECT_TRUE(gather.result()->is_void);
  EXPECT_THAT(gather.result()->contributors, IsEmpty());
}

TEST(Gather, TheResultTellsWhenThePartsCame) {
  Gather gather = GatherOf(2);
  gather.Add(Member(1), Part(1), At(3));
  gather.Add(Member(0), Part(1), At(3.25));
  gather.TryClose(1, kDeadline, At(3.25));
  EXPECT_FALSE(gather.result().has_value());
  gather.SetResult(42, 7);
  EXPECT_EQ(gather.result()->hash, 42u);
  EXPECT_THAT(gather.result()->arrivals,
              ElementsAre(absl::ZeroDuration(), absl::Milliseconds(250)));
}

}  // namespace
}  // namespace paceline

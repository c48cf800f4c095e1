#include "core/cluster/eviction.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MemberId Number(int64_t n) { return {WorkerId{n}, {uint64_t(100 + n)}}; }

View ViewOf(int members) {
  View view;
  view.id = {1, 4};
  for (int i = 1; i <= members; ++i) view.members.push_back({Number(i), 0});
  view.leveller = Number(1);
  return view;
}

MismatchVerdict Judge(int members, const std::vector<uint64_t>& hashes) {
  std::map<MemberId, uint64_t> states;
  for (size_t i = 0; i < hashes.size(); ++i) states[Number(i + 1)] = hashes[i];
  return DecideMismatch(ViewOf(members), states);
}

TEST(DecideMismatch, TheMinorityGoes) {
  const MismatchVerdict verdict = Judge(5, {7, 9, 7, 8, 7});

  EXPECT_FALSE(verdict.torn);
  EXPECT_EQ(verdict.majority, 3u);
  EXPECT_THAT(verdict.minority, ElementsAre(Number(2), Number(4)));
}

TEST(DecideMismatch, OfATieNobodyIsBelieved) {
  const MismatchVerdict verdict = Judge(5, {7, 9, 7, 9, 8});

  EXPECT_TRUE(verdict.torn);
  EXPECT_THAT(verdict.minority, IsEmpty());
}

TEST(DecideMismatch, EqualStatesAreNone) {
  EXPECT_THAT(Judge(3, {7, 7, 7}).minority, IsEmpty());
  EXPECT_FALSE(Judge(3, {}).torn);
}

TEST(DecideMismatch, WhoIsNoMemberAndWhoDoesNotKnowHaveNoVoice) {
  EXPECT_THAT(Judge(2, {7, 7, 9, 9, 9}).minority, IsEmpty());
  EXPECT_THAT(Judge(3, {7, 7, 0}).minority, IsEmpty());
  EXPECT_THAT(Judge(4, {0, 7, 7, 9}).minority, ElementsAre(Number(4)));
}

}  // namespace
}  // namespace paceline

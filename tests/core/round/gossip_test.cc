#include <cstring>
#include <set>

#include "core/base/random.h"
#include "core/round/gossip_member.h"
#include "core/round/rule_blocks.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

std::vector<MemberId> Members(int count) {
  std::vector<MemberId> members;
  for (int i = 1; i <= count; ++i) {
    members.push_back({WorkerId(i), Incarnation(1000 + i)});
  }
  return members;
}

TEST(Gossip, EverybodyMeetsAtMostOneAndOneOfAnOddNumberNobody) {
  for (const int count : {0, 1, 2, 3, 8, 9}) {
    for (int64_t step = 0; step < 50; ++step) {
      const auto pairs = GossipPairs(Members(count), 7, step);

      std::set<MemberId> met;
      for (const auto& [first, second] : pairs) {
        EXPECT_LT(first, second);
        met.insert(first);
        met.insert(second);
      }
      EXPECT_EQ(std::ssize(pairs), count / 2);
      EXPECT_EQ(met.size(), 2 * pairs.size()) << "pairs are disjoint";
    }
  }
}

TEST(Gossip, PartnersAgreeOnWhomTheyMeet) {
  const std::vector<MemberId> members = Members(7);
  for (int64_t step = 0; step < 50; ++step) {
    int alone = 0;
    for (const MemberId& self : members) {
      const auto partner = GossipPartner(members, 3, step, self);
      if (!partner.has_value()) {
        ++alone;
        continue;
      }
      EXPECT_EQ(GossipPartner(members, 3, step, *partner), self);
    }
    EXPECT_EQ(alone, 1);
  }
  EXPECT_EQ(GossipPartner(members, 3, 0, {WorkerId(99), Incarnation(1)}),
            std::nullopt);
}

TEST(Gossip, EveryPairMeetsSoonerOrLaterAndSeedsDiffer) {
  const std::vector<MemberId> members = Members(6);
  std::set<std::pair<MemberId, MemberId>> seen;
  bool differs = false;
  for (int64_t step = 0; step < 200; ++step) {
    const auto pairs = GossipPairs(members, 1, step);
    seen.insert(pairs.begin(), pairs.end());
    differs |= pairs != GossipPairs(members, 2, step);
    EXPECT_EQ(pairs, GossipPairs(members, 1, step));
  }
  EXPECT_EQ(seen.size(), 15u);
  EXPECT_TRUE(differs);
}

TEST(Gossip, BothPartnersEndWithTheSameBytes) {
  SplitMix64 random(5);
  std::vector<float> a, b;
  for (int i = 0; i < 1000; ++i) {
    a.push_back(static_cast<float>(random.Unit() - 0.5));
    b.push_back(static_cast<float>(1e3 * random.Unit()));
  }
  for (const float value : {3.4e38f, -3.4e38f, 1e-45f, 0.0f}) {
    a.push_back(value);
    b.push_back(value);
  }
  const std::vector<float> before = a;

  AverageWith(absl::MakeSpan(a), b);
  AverageWith(absl::MakeSpan(b), before);

  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  EXPECT_FLOAT_EQ(a[1000], 3.4e38f) << "no overflow";
  EXPECT_FLOAT_EQ(a[1002], 1e-45f) << "nor underflow of equal values";
}

}  // namespace
}  // namespace paceline
